//go:build operations

// From 1.37 on, claims may count as resources of their node (KEP-5517).

package main

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"unsafe"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/klog/v2"
	framework "k8s.io/kube-scheduler/framework"
	podDefaults "k8s.io/kubernetes/pkg/apis/core/v1"
	scheduler "k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	plugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

// footprint is the plugin's own function of what a pod comes to on a node with its claims; it checks the pod's own resources.
//
//go:linkname footprint k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources.(*DynamicResources).getPodNodeAllocatableResourceFootprint
func footprint(
	plugin *dynamicresources.DynamicResources, logger klog.Logger, pod *core.Pod,
	allocations map[types.UID]*resource.AllocationResult, claims []*resource.ResourceClaim,
	slices []*resource.ResourceSlice, node *core.Node,
) (*scheduler.Resource, []core.NodeAllocatableResourceClaimStatus, *framework.Status)

type question struct {
	Pod    *core.Pod
	Node   *core.Node
	Slices []*resource.ResourceSlice
	Claims []*resource.ResourceClaim // with their allocations
}

type verdict struct {
	Pod      *core.Pod        `json:"pod"` // with the API server's defaults
	Refusals []string         `json:"refusals"`
	Requests map[string]int64 `json:"requests,omitempty"`
}

// known is what the plugin knows of claims; it asks for nothing else.
type known struct {
	framework.SharedDRAManager
	framework.ResourceClaimTracker
	claims []*resource.ResourceClaim
}

func (all known) ResourceClaims() framework.ResourceClaimTracker { return all }

func (all known) Get(namespace, name string) (*resource.ResourceClaim, error) {
	for _, one := range all.claims {
		if one.Namespace == namespace && one.Name == name {
			return one, nil
		}
	}
	return nil, fmt.Errorf("no claim %s/%s", namespace, name)
}

func put(plugin *dynamicresources.DynamicResources, name string, value any) {
	field := reflect.ValueOf(plugin).Elem().FieldByName(name)
	reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem().Set(reflect.ValueOf(value))
}

// counted returns the answer to a line: what the pod comes to, or each of the refusals that the plugin may give, since it looks
// at resources in no order.
func counted(line []byte) (any, error) {
	var one question
	if err := json.Unmarshal(line, &one); err != nil {
		return nil, err
	}
	podDefaults.SetObjectDefaults_Pod(one.Pod)
	plugin := &dynamicresources.DynamicResources{}
	put(plugin, "fts", plugins.NewSchedulerFeaturesFromGates(feature.DefaultFeatureGate))
	put(plugin, "draManager", known{claims: one.Claims})
	told := verdict{Pod: one.Pod, Refusals: []string{}}
	for range 30 {
		total, _, status := footprint(plugin, klog.Background(), one.Pod, nil, one.Claims, one.Slices, one.Node)
		if status != nil {
			if text := status.Message(); !slices.Contains(told.Refusals, text) {
				told.Refusals = append(told.Refusals, text)
			}
			continue
		}
		told.Requests = map[string]int64{"cpu": total.MilliCPU, "memory": total.Memory}
		for name, amount := range total.ScalarResources {
			told.Requests[string(name)] = amount
		}
	}
	return told, nil
}
