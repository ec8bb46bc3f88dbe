#!/usr/bin/env bash
# k8s.io/dynamic-resource-allocation 0.37.2, the allocator of kube-scheduler 1.37.2: a capacity that a device publishes without a
# domain has the driver's domain, and selectors find it there. A request that names it with that domain is served by no device;
# the same request without the domain is. (0.38.0-beta.0 serves both.) Whoever writes the full name, as selectors have to,
# waits for ever for a device that is free. Needs Go, which fetches the pinned modules into its cache.
#
# Output seen with 0.37.2:
#   selector on device.capacity["gpu.example.com"].memory: gpu-0
#   request of memory: gpu-0
#   request of gpu.example.com/memory: no device
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
	"k8s.io/apimachinery/pkg/api/resource"
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

func given(request api.ExactDeviceRequest) string {
	request.DeviceClassName = "gpu"
	request.AllocationMode = api.DeviceAllocationModeExactCount
	request.Count = 1
	claim := &api.ResourceClaim{ObjectMeta: meta.ObjectMeta{Name: "claim", Namespace: "default", UID: "1"}}
	claim.Spec.Devices.Requests = []api.DeviceRequest{{Name: "r", Exactly: &request}}

	node, shared := "node", true
	slice := &api.ResourceSlice{ObjectMeta: meta.ObjectMeta{Name: "slice"}}
	slice.Spec = api.ResourceSliceSpec{
		Driver: driver, NodeName: &node, Pool: api.ResourcePool{Name: node, Generation: 1, ResourceSliceCount: 1},
		Devices: []api.Device{{
			Name: "gpu-0", AllowMultipleAllocations: &shared,
			Capacity: map[api.QualifiedName]api.DeviceCapacity{"memory": {Value: resource.MustParse("8Gi")}},
		}},
	}

	features := structured.Features{ConsumableCapacity: true}
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[structured.SharedDeviceID](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	ctx := context.Background()
	cache := cel.NewCache(10, cel.Features{EnableConsumableCapacity: true})
	allocator, err := structured.NewAllocator(ctx, features, state, lister{}, []*api.ResourceSlice{slice}, cache)
	if err != nil {
		return err.Error()
	}
	results, err := allocator.Allocate(ctx, &core.Node{ObjectMeta: meta.ObjectMeta{Name: node}}, []*api.ResourceClaim{claim})
	if err != nil {
		return err.Error()
	}
	if len(results) == 0 {
		return "no device"
	}
	return results[0].Devices.Results[0].Device
}

func asking(name api.QualifiedName) api.ExactDeviceRequest {
	amounts := map[api.QualifiedName]resource.Quantity{name: resource.MustParse("1Gi")}
	return api.ExactDeviceRequest{Capacity: &api.CapacityRequirements{Requests: amounts}}
}

func main() {
	expression := `device.capacity["gpu.example.com"].memory.compareTo(quantity("1Gi")) >= 0`
	selector := api.DeviceSelector{CEL: &api.CELDeviceSelector{Expression: expression}}
	fmt.Println(`selector on device.capacity["gpu.example.com"].memory:`, given(api.ExactDeviceRequest{Selectors: []api.DeviceSelector{selector}}))
	fmt.Println("request of memory:", given(asking("memory")))
	fmt.Println("request of gpu.example.com/memory:", given(asking(driver+"/memory")))
}
GO

go mod init finding >/dev/null 2>&1
go get k8s.io/dynamic-resource-allocation@v0.37.2 k8s.io/api@v0.37.2 k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . | tee output

diff output - <<'EXPECTED'
selector on device.capacity["gpu.example.com"].memory: gpu-0
request of memory: gpu-0
request of gpu.example.com/memory: no device
EXPECTED
