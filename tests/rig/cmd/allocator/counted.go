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
	pods "k8s.io/kubernetes/pkg/api/pod"
	internal "k8s.io/kubernetes/pkg/apis/core"
	apis "k8s.io/kubernetes/pkg/apis/core/v1"
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
	slices []*slice, node *core.Node,
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

// created returns a pod as the API server keeps it: the resources that it has as a whole are filled in when it is created.
func created(pod *core.Pod) (*core.Pod, error) {
	inner, kept := &internal.Pod{}, &core.Pod{}
	apis.SetObjectDefaults_Pod(pod)
	if err := apis.Convert_v1_Pod_To_core_Pod(pod, inner, nil); err != nil {
		return nil, err
	}
	pods.DefaultPodLevelResources(inner)
	return kept, apis.Convert_core_Pod_To_v1_Pod(inner, kept, nil)
}

// counted returns the answer to a line: what the pod comes to, or each of the refusals that the plugin may give, since it looks
// at resources in no order.
func counted(line []byte) (any, error) {
	var one question
	if err := json.Unmarshal(line, &one); err != nil {
		return nil, err
	}
	pod, err := created(one.Pod)
	if err != nil {
		return nil, err
	}
	views, err := viewed(one.Slices)
	if err != nil {
		return nil, err
	}
	plugin := &dynamicresources.DynamicResources{}
	put(plugin, "fts", plugins.NewSchedulerFeaturesFromGates(feature.DefaultFeatureGate))
	put(plugin, "draManager", known{claims: one.Claims})
	told := verdict{Pod: pod, Refusals: []string{}}
	for range 300 { // a small map is mostly walked in one order
		total, _, status := footprint(plugin, klog.Background(), pod, nil, one.Claims, views, one.Node)
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
