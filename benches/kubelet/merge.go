package main

import (
	"encoding/json"
	"fmt"
	"time"

	cadvisor "github.com/google/cadvisor/info/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
)

// hint is a mask over NUMA nodes (nil: any node) and whether it is preferred.
type hint struct {
	Mask      *uint64 `json:"mask"`
	Preferred bool    `json:"preferred"`
}

// mergeCase is one list of hints for each provider, to be merged again and again for so many seconds.
type mergeCase struct {
	Name      string   `json:"name"`
	NumaNodes int      `json:"numaNodes"`
	Policy    string   `json:"policy"`
	Lists     [][]hint `json:"lists"`
	Seconds   float64  `json:"seconds"`
}

type mergeAnswer struct {
	Name   string `json:"name"`
	Best   hint   `json:"best"`
	Admit  bool   `json:"admit"`
	Timing timing `json:"timing"`
}

func policyOf(given mergeCase) (topologymanager.Policy, error) {
	nodes := []cadvisor.Node{}
	for id := range given.NumaNodes {
		nodes = append(nodes, cadvisor.Node{Id: id})
	}
	options := topologymanager.PolicyOptions{MaxAllowableNUMANodes: 64}
	info, err := topologymanager.NewNUMAInfo(nodes, options)
	if err != nil {
		return nil, err
	}
	switch given.Policy {
	case "best-effort":
		return topologymanager.NewBestEffortPolicy(info, options), nil
	case "restricted":
		return topologymanager.NewRestrictedPolicy(info, options), nil
	case "single-numa-node":
		return topologymanager.NewSingleNumaNodePolicy(info, options), nil
	}
	return nil, fmt.Errorf("expected a policy that merges, got %q", given.Policy)
}

func bitsOf(mask uint64) []int {
	bits := []int{}
	for bit := range 64 {
		if mask>>bit&1 == 1 {
			bits = append(bits, bit)
		}
	}
	return bits
}

func maskOf(mask bitmask.BitMask) *uint64 {
	if mask == nil {
		return nil
	}
	var word uint64
	for _, bit := range mask.GetBits() {
		word |= 1 << bit
	}
	return &word
}

// providersOf makes one provider of each list, with one resource each, so that their order is kept.
func providersOf(lists [][]hint) ([]map[string][]topologymanager.TopologyHint, error) {
	var providers []map[string][]topologymanager.TopologyHint
	for _, list := range lists {
		hints := []topologymanager.TopologyHint{}
		for _, one := range list {
			made := topologymanager.TopologyHint{Preferred: one.Preferred}
			if one.Mask != nil {
				mask, err := bitmask.NewBitMask(bitsOf(*one.Mask)...)
				if err != nil {
					return nil, err
				}
				made.NUMANodeAffinity = mask
			}
			hints = append(hints, made)
		}
		providers = append(providers, map[string][]topologymanager.TopologyHint{"resource": hints})
	}
	return providers, nil
}

func timeMerge(line []byte) (any, error) {
	var given mergeCase
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	policy, err := policyOf(given)
	if err != nil {
		return nil, err
	}
	providers, err := providersOf(given.Lists)
	if err != nil {
		return nil, err
	}
	made := mergeAnswer{Name: given.Name}
	var calls []time.Duration
	for begin := time.Now(); len(calls) == 0 || time.Since(begin).Seconds() < given.Seconds; {
		start := time.Now()
		best, admit := policy.Merge(silent, providers)
		calls = append(calls, time.Since(start))
		made.Best, made.Admit = hint{maskOf(best.NUMANodeAffinity), best.Preferred}, admit
	}
	made.Timing = timingOf(calls)
	return made, nil
}
