// Command allocator asks the scheduler's allocator of devices (k8s.io/dynamic-resource-allocation) of one release what it
// gives to the claims of a pod on a node.
//
//	allocator [-times N] [-limit 10s] < SCENARIOS > ANSWERS
//
// A line of SCENARIOS is one of tests/vectors/claims/dra.jsonl.gz. Its answer has `name` and `result`, with an error `error` and
// `class`, and `stable`: whether it was the same each time; every second time the slices are listed the other way round.
// Gates are those of the release; `features` sets some of them otherwise. Where a scheduler would not start with them, or has
// them locked, the class is `gates`.
//
//	allocator -counted < PODS > ANSWERS
//
// says what the scheduler of 1.37 makes of pods whose claims count as resources of their node: see counted.go.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"reflect"
	"slices"
	"time"

	core "k8s.io/api/core/v1"
	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/structured"
	defaults "k8s.io/kubernetes/pkg/apis/resource/v1"
	_ "k8s.io/kubernetes/pkg/features"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/dynamicresources"
	plugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins/feature"
)

type scenario struct {
	Name              string
	Node              *core.Node
	Slices            []*resource.ResourceSlice
	Classes           classes
	Claims, Allocated []*resource.ResourceClaim
	Features          map[string]bool
}

type device struct {
	Request          string            `json:"request"`
	Driver           string            `json:"driver"`
	Pool             string            `json:"pool"`
	Device           string            `json:"device"`
	AdminAccess      bool              `json:"adminAccess,omitempty"`
	Shared           bool              `json:"shared,omitempty"`
	ConsumedCapacity map[string]string `json:"consumedCapacity,omitempty"`
	Conditions       []string          `json:"bindingConditions,omitempty"`
}

type claim struct {
	Claim        string             `json:"claim"`
	Devices      []device           `json:"devices"`
	NodeSelector *core.NodeSelector `json:"nodeSelector,omitempty"`
}

type answer struct {
	Name   string  `json:"name"`
	Result []claim `json:"result"`
	Error  string  `json:"error,omitempty"`
	Class  string  `json:"class,omitempty"`
	Stable bool    `json:"stable"`
}

// classes is what the allocator asks for DeviceClasses.
type classes []*resource.DeviceClass

func (all classes) List() ([]*resource.DeviceClass, error) { return all, nil }

func (all classes) Get(name string) (*resource.DeviceClass, error) {
	at := slices.IndexFunc(all, func(one *resource.DeviceClass) bool { return one.Name == name })
	if at < 0 {
		return nil, apierrors.NewNotFound(resource.Resource("deviceclass"), name)
	}
	return all[at], nil
}

var caches = map[cel.Features]*cel.Cache{}

// gates returns what a scheduler with these feature gates knows, and where it caches selectors.
func gates(features map[string]bool) (structured.Features, *cel.Cache, bool, error) {
	set := feature.DefaultMutableFeatureGate.DeepCopy()
	if err := set.SetFromMap(features); err != nil {
		return structured.Features{}, nil, false, err
	}
	if wrong := set.Validate(); len(wrong) > 0 {
		return structured.Features{}, nil, false, errors.Join(wrong...)
	}
	known := plugins.NewSchedulerFeaturesFromGates(set)
	key := cel.Features{
		EnableConsumableCapacity: known.EnableDRAConsumableCapacity,
		EnableListTypeAttributes: known.EnableDRAListTypeAttributes,
	}
	if caches[key] == nil {
		caches[key] = cel.NewCache(1000, key)
	}
	return dynamicresources.AllocatorFeatures(known), caches[key], known.EnableDRAConsumableCapacity, nil
}

// inUse returns what allocated claims hold, as the scheduler's plugin counts it.
func inUse(claims []*resource.ResourceClaim, shares bool) structured.AllocatedState {
	state := structured.AllocatedState{
		AllocatedDevices:         sets.New[structured.DeviceID](),
		AllocatedSharedDeviceIDs: sets.New[shared](),
		AggregatedCapacity:       structured.NewConsumedCapacityCollection(),
	}
	for _, one := range claims {
		if one.Status.Allocation == nil {
			continue
		}
		for _, held := range one.Status.Allocation.Devices.Results {
			id := structured.MakeDeviceID(held.Driver, held.Pool, held.Device)
			switch {
			case held.AdminAccess != nil && *held.AdminAccess:
			case shares && held.ShareID != nil:
				state.AllocatedSharedDeviceIDs.Insert(sharedOf(id, held.ShareID))
				if held.ConsumedCapacity != nil {
					state.AggregatedCapacity.Insert(structured.NewDeviceConsumedCapacity(id, held.ConsumedCapacity))
				}
			default:
				state.AllocatedDevices.Insert(id)
			}
		}
	}
	return state
}

func ask(one *scenario, limit time.Duration) (told answer) {
	told.Name = one.Name
	features, cache, shares, err := gates(one.Features)
	if err != nil {
		told.Error, told.Class = err.Error(), "gates"
		return
	}
	for _, claim := range one.Claims {
		defaults.SetObjectDefaults_ResourceClaim(claim)
	}
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	views, err := viewed(one.Slices)
	if err != nil {
		told.Error, told.Class = err.Error(), "fatal"
		return
	}
	allocator, err := structured.NewAllocator(ctx, features, inUse(one.Allocated, shares), one.Classes, views, cache)
	if err != nil {
		told.Error, told.Class = err.Error(), "gates"
		return
	}
	results, err := allocator.Allocate(ctx, one.Node, one.Claims)
	switch {
	case err == nil:
	case errors.Is(err, context.DeadlineExceeded):
		told.Class = "timeout"
	case errors.Is(err, structured.ErrFailedAllocationOnNode):
		told.Class = "node"
	default:
		told.Class = "fatal"
	}
	if err != nil {
		told.Error = err.Error()
		return
	}
	for i, result := range results {
		found := claim{Claim: one.Claims[i].Namespace + "/" + one.Claims[i].Name, NodeSelector: result.NodeSelector}
		for _, got := range result.Devices.Results {
			given := device{Request: got.Request, Driver: got.Driver, Pool: got.Pool, Device: got.Device, Conditions: got.BindingConditions}
			given.AdminAccess, given.Shared = got.AdminAccess != nil && *got.AdminAccess, got.ShareID != nil
			for name, amount := range got.ConsumedCapacity {
				if given.ConsumedCapacity == nil {
					given.ConsumedCapacity = map[string]string{}
				}
				given.ConsumedCapacity[string(name)] = amount.String()
			}
			found.Devices = append(found.Devices, given)
		}
		told.Result = append(told.Result, found)
	}
	return
}

// asked returns the answer to a line, and whether it stays the same when it is asked again.
func asked(line []byte, times int, limit time.Duration) (any, error) {
	var first answer
	for i := range times {
		var one scenario
		if err := json.Unmarshal(line, &one); err != nil {
			return nil, err
		}
		if i%2 == 1 {
			slices.Reverse(one.Slices)
		}
		told := ask(&one, limit)
		if i == 0 {
			first = told
			first.Stable = true
		} else if !reflect.DeepEqual(told.Class, first.Class) || !equality.Semantic.DeepEqual(told.Result, first.Result) {
			first.Stable = false
		}
		if told.Class == "timeout" {
			break
		}
	}
	return first, nil
}

func main() {
	times := flag.Int("times", 4, "how often each is asked")
	limit := flag.Duration("limit", 10*time.Second, "what a search may take; the scheduler's own bound is 10s")
	isCounted := flag.Bool("counted", false, "answer pods whose claims count as resources of their node")
	flag.Parse()
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<28)
	out := json.NewEncoder(os.Stdout)
	for in.Scan() {
		var told any
		var err error
		if *isCounted {
			told, err = counted(in.Bytes())
		} else {
			told, err = asked(in.Bytes(), *times, *limit)
		}
		if err == nil {
			err = out.Encode(told)
		}
		if err != nil {
			panic(err)
		}
	}
	if err := in.Err(); err != nil {
		panic(err)
	}
}
