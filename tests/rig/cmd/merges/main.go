// Command merges times how long the topology manager of a kubelet's release takes to merge lists of hints.
//
//	merges < CASES > ANSWERS
//
// A line of CASES is {"policy", "numaNodes", "seconds", "lists"}, each list hints as {"mask", "preferred"}; it is merged again and
// again for so many seconds. Its answer is {"best", "admit", "calls", "median"}, the median in microseconds.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

// hint is a mask over NUMA nodes (nil: any node) and whether it is preferred.
type hint struct {
	Mask      *uint64 `json:"mask"`
	Preferred bool    `json:"preferred"`
}

type question struct {
	Policy    string
	NUMANodes int
	Seconds   float64
	Lists     [][]hint
}

type answer struct {
	Best   hint    `json:"best"`
	Admit  bool    `json:"admit"`
	Calls  int     `json:"calls"`
	Median float64 `json:"median"`
}

func failed(err error) {
	fmt.Fprintln(os.Stderr, "merges:", err)
	os.Exit(1)
}

// policyOf makes a policy. What it takes of NUMA nodes is of another package in another release, and so made by reflection.
func policyOf(asked question) topologymanager.Policy {
	options := topologymanager.PolicyOptions{MaxAllowableNUMANodes: 64}
	info := reflect.ValueOf(topologymanager.NewNUMAInfo)
	nodes := reflect.MakeSlice(info.Type().In(0), asked.NUMANodes, asked.NUMANodes)
	for id := range asked.NUMANodes {
		nodes.Index(id).FieldByName("Id").SetInt(int64(id))
	}
	made := info.Call([]reflect.Value{nodes, reflect.ValueOf(options)})
	if err, _ := made[1].Interface().(error); err != nil {
		failed(err)
	}
	numaInfo := made[0].Interface().(*topologymanager.NUMAInfo)
	switch asked.Policy {
	case "best-effort":
		return topologymanager.NewBestEffortPolicy(numaInfo, options)
	case "restricted":
		return topologymanager.NewRestrictedPolicy(numaInfo, options)
	case "single-numa-node":
		return topologymanager.NewSingleNumaNodePolicy(numaInfo, options)
	}
	failed(fmt.Errorf("expected a policy that merges, got %q", asked.Policy))
	return nil
}

func affinityOf(mask *uint64) bitmask.BitMask {
	if mask == nil {
		return nil
	}
	bits := []int{}
	for bit := range 64 {
		if *mask>>bit&1 == 1 {
			bits = append(bits, bit)
		}
	}
	made, err := bitmask.NewBitMask(bits...)
	if err != nil {
		failed(err)
	}
	return made
}

func maskOf(affinity bitmask.BitMask) *uint64 {
	if affinity == nil {
		return nil
	}
	var mask uint64
	for _, bit := range affinity.GetBits() {
		mask |= 1 << bit
	}
	return &mask
}

// providersOf makes a provider of each list, with one resource each, so that their order is kept.
func providersOf(lists [][]hint) (providers []map[string][]topologymanager.TopologyHint) {
	for _, list := range lists {
		hints := []topologymanager.TopologyHint{}
		for _, given := range list {
			hints = append(hints, topologymanager.TopologyHint{
				NUMANodeAffinity: affinityOf(given.Mask), Preferred: given.Preferred,
			})
		}
		providers = append(providers, map[string][]topologymanager.TopologyHint{"resource": hints})
	}
	return providers
}

func timed(asked question) (made answer) {
	policy, providers := policyOf(asked), providersOf(asked.Lists)
	silent := logr.Discard() // each merge is logged, which would be timed with it
	var calls []time.Duration
	for begun := time.Now(); len(calls) == 0 || time.Since(begun).Seconds() < asked.Seconds; {
		start := time.Now()
		best, admit := policy.Merge(silent, providers)
		calls = append(calls, time.Since(start))
		made.Best, made.Admit = hint{maskOf(best.NUMANodeAffinity), best.Preferred}, admit
	}
	slices.Sort(calls)
	made.Calls, made.Median = len(calls), float64(calls[len(calls)/2].Nanoseconds())/1e3
	return made
}

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	answers := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		var asked question
		if err := json.Unmarshal(lines.Bytes(), &asked); err != nil {
			failed(err)
		}
		if err := answers.Encode(timed(asked)); err != nil {
			failed(err)
		}
	}
	if err := lines.Err(); err != nil {
		failed(err)
	}
}
