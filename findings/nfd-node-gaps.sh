#!/usr/bin/env bash
# Node Feature Discovery 0.18.3, the zones that its topology updater writes into NodeResourceTopology. On a machine whose NUMA nodes are 0
# and 8 (POWER9; others have gaps where a node is offline), one would guess the zones node-0 and node-8. The zones are counted: node-0, and
# a node-1 that is not there and has no CPUs; the CPUs of NUMA node 8 are in no zone. Costs name zones by position, too. A scheduler that
# goes by these zones counts half the machine; with ids 0, 2 and 3 it would be the last NUMA node that is left out. Needs Go, which fetches
# the pinned modules into its cache.
#
# Output seen with 0.18.3 (the program itself, which read a machine of nodes 0, 2 and 3, wrote zones node-0 to node-2 alike):
#   allocatable CPUs: 8
#   node-0: cpu 4, costs node-0 10, node-1 40
#   node-1: cpu 0, costs
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >main.go <<'GO'
package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/jaypipes/ghw"
	"github.com/jaypipes/ghw/pkg/cpu"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/node-feature-discovery/pkg/resourcemonitor"
)

func numaNode(id int, distances []int, cpus ...int) *ghw.TopologyNode {
	node := &ghw.TopologyNode{ID: id, Distances: distances}
	for _, number := range cpus {
		node.Cores = append(node.Cores, &cpu.ProcessorCore{ID: number, LogicalProcessors: []int{number}})
	}
	return node
}

func main() {
	topology := &ghw.TopologyInfo{Nodes: []*ghw.TopologyNode{
		numaNode(0, []int{10, 40}, 0, 1, 2, 3), numaNode(8, []int{40, 10}, 4, 5, 6, 7),
	}}
	allocatable := &podresources.AllocatableResourcesResponse{CpuIds: []int64{0, 1, 2, 3, 4, 5, 6, 7}}
	fmt.Println("allocatable CPUs:", len(allocatable.CpuIds))

	aggregator := resourcemonitor.NewResourcesAggregatorFromData(topology, allocatable, nil, resourcemonitor.ExcludeResourceList{})
	var lines []string
	for _, zone := range aggregator.Aggregate(nil) {
		var amounts, costs []string
		for _, resource := range zone.Resources {
			amounts = append(amounts, fmt.Sprintf("%s %s", resource.Name, resource.Allocatable.String()))
		}
		for _, cost := range zone.Costs {
			costs = append(costs, fmt.Sprintf("%s %d", cost.Name, cost.Value))
		}
		line := fmt.Sprintf("%s: %s, costs %s", zone.Name, strings.Join(amounts, ", "), strings.Join(costs, ", "))
		lines = append(lines, strings.TrimSpace(line))
	}
	slices.Sort(lines)
	fmt.Println(strings.Join(lines, "\n"))
}
GO

go mod init finding >/dev/null 2>&1
go get sigs.k8s.io/node-feature-discovery@v0.18.3 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . | tee output

diff output - <<'EXPECTED'
allocatable CPUs: 8
node-0: cpu 4, costs node-0 10, node-1 40
node-1: cpu 0, costs
EXPECTED
