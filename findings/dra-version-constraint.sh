#!/usr/bin/env bash
# k8s.io/dynamic-resource-allocation 0.37.2, the allocator of kube-scheduler 1.37.2: a constraint `matchAttribute` over attributes of
# type version compares their texts, a selector compares versions as semver.org does, without build metadata. Two devices of
# 1.2.3+one and 1.2.3 are equal to a selector, and cannot be had together under the constraint: a driver that puts a build into its
# version splits its devices. (0.38.0-beta.0 gives both.) Needs Go, which fetches the pinned modules into its cache.
#
# Output seen with 0.37.2:
#   two devices that a selector finds equal to 1.2.3: gpu-0 gpu-1
#   two devices with matchAttribute driverVersion: no devices
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >main.go <<'GO'
package main

import (
	"context"
	"fmt"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
)

const driver = "gpu.example.com"

type lister struct{}

func (lister) List() ([]*api.DeviceClass, error) { return nil, nil }

func (lister) Get(name string) (*api.DeviceClass, error) {
	return &api.DeviceClass{ObjectMeta: meta.ObjectMeta{Name: name}}, nil
}

func given(selectors []api.DeviceSelector, constraints []api.DeviceConstraint) string {
	claim := &api.ResourceClaim{ObjectMeta: meta.ObjectMeta{Name: "claim", Namespace: "default", UID: "1"}}
	claim.Spec.Devices.Constraints = constraints
	claim.Spec.Devices.Requests = []api.DeviceRequest{{Name: "r", Exactly: &api.ExactDeviceRequest{
		DeviceClassName: "gpu", AllocationMode: api.DeviceAllocationModeExactCount, Count: 2, Selectors: selectors,
	}}}

	node := "node"
	slice := &api.ResourceSlice{ObjectMeta: meta.ObjectMeta{Name: "slice"}}
	slice.Spec = api.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: api.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
	}
	for number, version := range []string{"1.2.3+one", "1.2.3"} {
		slice.Spec.Devices = append(slice.Spec.Devices, api.Device{
			Name:       fmt.Sprintf("gpu-%d", number),
			Attributes: map[api.QualifiedName]api.DeviceAttribute{"driverVersion": {VersionValue: &version}},
		})
	}

	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	ctx := context.Background()
	cache := cel.NewCache(10, cel.Features{})
	allocator, err := structured.NewAllocator(ctx, structured.Features{}, state, lister{}, []*api.ResourceSlice{slice}, cache)
	if err != nil {
		return err.Error()
	}
	results, err := allocator.Allocate(ctx, &core.Node{ObjectMeta: meta.ObjectMeta{Name: node}}, []*api.ResourceClaim{claim})
	if err != nil {
		return err.Error()
	}
	if len(results) == 0 {
		return "no devices"
	}
	return results[0].Devices.Results[0].Device + " " + results[0].Devices.Results[1].Device
}

func main() {
	expression := `device.attributes["gpu.example.com"].driverVersion.compareTo(semver("1.2.3")) == 0`
	selector := api.DeviceSelector{CEL: &api.CELDeviceSelector{Expression: expression}}
	fmt.Println("two devices that a selector finds equal to 1.2.3:", given([]api.DeviceSelector{selector}, nil))

	attribute := api.FullyQualifiedName(driver + "/driverVersion")
	constraint := api.DeviceConstraint{MatchAttribute: &attribute}
	fmt.Println("two devices with matchAttribute driverVersion:", given(nil, []api.DeviceConstraint{constraint}))
}
GO

go mod init finding >/dev/null 2>&1
go get k8s.io/dynamic-resource-allocation@v0.37.2 k8s.io/api@v0.37.2 k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . | tee output

diff output - <<'EXPECTED'
two devices that a selector finds equal to 1.2.3: gpu-0 gpu-1
two devices with matchAttribute driverVersion: no devices
EXPECTED
