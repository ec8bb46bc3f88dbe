"""Writes what Node Feature Discovery's updater says: `python tests/recorded/nfd.py FOLDER`.

The module is pinned, and Go fetches it. Its aggregator is asked as the updater asks it, for nodes
that are made up: what a kubelet says that it has, and what a pod holds of that.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

RELEASE = "v0.18.3"

PROGRAM = """package main

import (
	"encoding/json"
	"fmt"
	"sort"

	"github.com/jaypipes/ghw"
	processors "github.com/jaypipes/ghw/pkg/cpu"
	corev1 "k8s.io/api/core/v1"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
	"sigs.k8s.io/node-feature-discovery/pkg/resourcemonitor"
	"sigs.k8s.io/node-feature-discovery/pkg/utils"
)

const (
	gpu = "example.com/gpu"
	gibi = 1 << 30
)

// machine returns NUMA nodes of some ids, each of four CPUs.
func machine(ids ...int) *ghw.TopologyInfo {
	topology := &ghw.TopologyInfo{}
	for position, id := range ids {
		node := &ghw.TopologyNode{ID: id}
		for cpu := 4 * position; cpu < 4*position+4; cpu++ {
			core := &processors.ProcessorCore{ID: cpu, LogicalProcessors: []int{cpu}}
			node.Cores = append(node.Cores, core)
		}
		for other := range ids {
			distance := 20
			if other == position {
				distance = 10
			}
			node.Distances = append(node.Distances, distance)
		}
		topology.Nodes = append(topology.Nodes, node)
	}
	return topology
}

func near(ids ...int64) *podresources.TopologyInfo {
	topology := &podresources.TopologyInfo{}
	for _, id := range ids {
		topology.Nodes = append(topology.Nodes, &podresources.NUMANode{ID: id})
	}
	return topology
}

func devices(ids []string, nodes ...int64) *podresources.ContainerDevices {
	place := near(nodes...)
	return &podresources.ContainerDevices{ResourceName: gpu, DeviceIds: ids, Topology: place}
}

func memory(size uint64, id int64) *podresources.ContainerMemory {
	return &podresources.ContainerMemory{MemoryType: "memory", Size: size, Topology: near(id)}
}

func cpus(first, last int64) []int64 {
	ids := []int64{}
	for id := first; id <= last; id++ {
		ids = append(ids, id)
	}
	return ids
}

func held(name corev1.ResourceName, ids ...string) []resourcemonitor.PodResources {
	resource := resourcemonitor.ResourceInfo{Name: name, Data: ids}
	containers := []resourcemonitor.ContainerResources{
		{Name: "main", Resources: []resourcemonitor.ResourceInfo{resource}},
	}
	return []resourcemonitor.PodResources{{Name: "p", Namespace: "default", Containers: containers}}
}

// say prints the zones of a node by name, and the resources of each by name.
func say(
	name string, topology *ghw.TopologyInfo, has *podresources.AllocatableResourcesResponse,
	sizes utils.NumaMemoryResources, pods []resourcemonitor.PodResources,
) {
	none := resourcemonitor.NewExcludeResourceList(nil, "")
	node := resourcemonitor.NewResourcesAggregatorFromData(topology, has, sizes, none)
	zones := node.Aggregate(pods)
	sort.Slice(zones, func(i, j int) bool { return zones[i].Name < zones[j].Name })
	for _, zone := range zones {
		resources := zone.Resources
		sort.Slice(resources, func(i, j int) bool { return resources[i].Name < resources[j].Name })
	}
	text, err := json.Marshal(map[string]any{"name": name, "zones": zones})
	if err != nil {
		panic(err)
	}
	fmt.Println(string(text))
}

func main() {
	has := podresources.AllocatableResourcesResponse{
		CpuIds: cpus(1, 7),
		Memory: []*podresources.ContainerMemory{memory(3*gibi, 0), memory(4*gibi, 1)},
		Devices: []*podresources.ContainerDevices{
			devices([]string{"g0", "g1"}, 0),
			devices([]string{"g2"}, 1),
		},
	}
	sizes := utils.NumaMemoryResources{0: {"memory": 4 * gibi}, 1: {"memory": 4 * gibi}}
	say("reserved", machine(0, 1), &has, sizes, nil)
	say("cpus-held", machine(0, 1), &has, sizes, held("cpu", "4", "5"))
	say("gpu-held", machine(0, 1), &has, sizes, held(gpu, "g0"))

	has.Memory = nil
	say("no-memory-manager", machine(0, 1), &has, sizes, nil)

	gaps := podresources.AllocatableResourcesResponse{CpuIds: cpus(0, 11)}
	say("gaps", machine(0, 2, 3), &gaps, nil, nil)

	has.Devices = []*podresources.ContainerDevices{devices([]string{"g0"}, 0, 1)}
	say("near-two", machine(0, 1), &has, sizes, nil)
	say("near-two-held", machine(0, 1), &has, sizes, held(gpu, "g0"))
}
"""


def main() -> None:
    """Write the file."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    package = f"sigs.k8s.io/node-feature-discovery/pkg/resourcemonitor@{RELEASE}"
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "main.go").write_text(PROGRAM)
        commands = [
            ["go", "mod", "init", "recorder"],
            # not `go mod tidy`, which asks for what only the tests of others need
            ["go", "get", package],
            ["go", "run", "."],
        ]
        for command in commands:
            done = subprocess.run(  # noqa: S603  # ours
                command, cwd=folder, stdout=subprocess.PIPE, text=True, check=True
            )

    (target / f"{RELEASE}.jsonl").write_text(done.stdout)


if __name__ == "__main__":
    main()
