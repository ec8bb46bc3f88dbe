#!/usr/bin/env bash
# k8s.io/dynamic-resource-allocation 0.37.2, the standard attribute numaNode of a device as a list: "its NUMA node, and those of its
# socket at the least distance". One would guess that it names the socket. On two sockets of four NUMA nodes each (SNC4, distances
# 10, 11, 12, 21) each list has half of the socket, so that matchAttribute keeps two devices of one socket apart; a NUMA node
# without CPUs counts as of every socket; and where the ids of NUMA nodes have gaps (0 and 8), columns of the distance table are
# taken for ids: the list names NUMA node 1, which is not there. Whoever matches devices by NUMA node meets it. Needs Go, which
# fetches the pinned modules into its cache.
#
# Output seen with 0.37.2 (0.38.0-beta.0, built as the rig builds it, printed the same):
#   SNC4: 0 has [0 1], 1 has [1 0], 2 has [2 3], 3 has [3 2]
#   two sockets and a NUMA node without CPUs: 0 has [0 2], 1 has [1 2], 2 has [2 0 1]
#   NUMA nodes 0 and 8 of one socket: 0 has [0 1], 8 has [8]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >main.go <<'GO'
package main

import (
	"fmt"
	"strings"
	"testing/fstest"

	"k8s.io/dynamic-resource-allocation/deviceattribute"
)

type node struct {
	id        int
	cpu       int // of the socket it is on; -1: it has none
	distances string
}

func lists(sockets map[int]int, nodes ...node) string {
	files := fstest.MapFS{}
	for _, node := range nodes {
		folder := fmt.Sprintf("devices/system/node/node%d/", node.id)
		files[folder+"distance"] = &fstest.MapFile{Data: []byte(node.distances + "\n")}
		cpus := ""
		if node.cpu >= 0 {
			cpus = fmt.Sprint(node.cpu)
			path := fmt.Sprintf("devices/system/cpu/cpu%d/topology/physical_package_id", node.cpu)
			files[path] = &fstest.MapFile{Data: []byte(fmt.Sprintln(sockets[node.cpu]))}
		}
		files[folder+"cpulist"] = &fstest.MapFile{Data: []byte(cpus + "\n")}
	}
	var texts []string
	for _, node := range nodes {
		attribute, err := deviceattribute.GetNUMANodeAttribute(
			node.id, deviceattribute.ListAttribute, deviceattribute.WithFS(files))
		if err != nil {
			return err.Error()
		}
		texts = append(texts, fmt.Sprintf("%d has %v", node.id, attribute.Value.IntValues))
	}
	return strings.Join(texts, ", ")
}

func main() {
	snc4 := []node{
		{0, 0, "10 11 12 12 21 21 21 21"}, {1, 1, "11 10 12 12 21 21 21 21"},
		{2, 2, "12 12 10 11 21 21 21 21"}, {3, 3, "12 12 11 10 21 21 21 21"},
		{4, 4, "21 21 21 21 10 11 12 12"}, {5, 5, "21 21 21 21 11 10 12 12"},
		{6, 6, "21 21 21 21 12 12 10 11"}, {7, 7, "21 21 21 21 12 12 11 10"},
	}
	sockets := map[int]int{4: 1, 5: 1, 6: 1, 7: 1}
	text := lists(sockets, snc4...)
	fmt.Println("SNC4:", text[:strings.Index(text, ", 4")])

	far := []node{{0, 0, "10 21 14"}, {1, 1, "21 10 14"}, {2, -1, "14 14 10"}}
	fmt.Println("two sockets and a NUMA node without CPUs:", lists(map[int]int{1: 1}, far...))

	gap := []node{{0, 0, "10 12"}, {8, 8, "12 10"}}
	fmt.Println("NUMA nodes 0 and 8 of one socket:", lists(map[int]int{}, gap...))
}
GO

go mod init finding >/dev/null 2>&1
go get k8s.io/dynamic-resource-allocation@v0.37.2 k8s.io/api@v0.37.2 k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . | tee output

diff output - <<'EXPECTED'
SNC4: 0 has [0 1], 1 has [1 0], 2 has [2 3], 3 has [3 2]
two sockets and a NUMA node without CPUs: 0 has [0 2], 1 has [1 2], 2 has [2 0 1]
NUMA nodes 0 and 8 of one socket: 0 has [0 1], 8 has [8]
EXPECTED
