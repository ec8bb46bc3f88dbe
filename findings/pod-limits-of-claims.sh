#!/usr/bin/env bash
# k8s.io/component-helpers 0.37.2, PodLimits for a pod whose claims (DRA) count as memory and hugepages of the node: one would guess that
# the limits grow by both, or by neither. A pod that declares no limit of memory gets the claim's hugepages as a limit, and not its
# memory; with a limit of memory of its own both are added. The requests of the same pod have both in either case.
# Who compares limits with requests, or adds limits up over a node, meets this. Needs Go, which fetches the pinned modules into its cache.
#
# Output seen with 0.37.2:
#   no limit of memory: requests hugepages-2Mi=64Mi memory=2Gi, limits hugepages-2Mi=64Mi
#   limit of memory: requests hugepages-2Mi=64Mi memory=2Gi, limits hugepages-2Mi=64Mi memory=5Gi
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >main.go <<'GO'
package main

import (
	"fmt"
	"sort"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

func listed(amounts core.ResourceList) string {
	var words []string
	for name, amount := range amounts {
		words = append(words, fmt.Sprintf(" %s=%s", name, amount.String()))
	}
	sort.Strings(words)
	return fmt.Sprint(words)
}

func quantity(text string) *resource.Quantity {
	amount := resource.MustParse(text)
	return &amount
}

func main() {
	requests := core.ResourceList{"memory": *quantity("1Gi")}
	for label, limits := range map[string]core.ResourceList{"no limit of memory": nil, "limit of memory": {"memory": *quantity("4Gi")}} {
		container := core.Container{Name: "c", Resources: core.ResourceRequirements{Requests: requests, Limits: limits}}
		pod := &core.Pod{Spec: core.PodSpec{Containers: []core.Container{container}}}
		pod.Status.NodeAllocatableResourceClaimStatuses = []core.NodeAllocatableResourceClaimStatus{{
			Containers: []string{"c"},
			Mapping: []core.NodeAllocatableMappedResources{
				{Name: "memory", Quantity: quantity("1Gi")}, {Name: "hugepages-2Mi", Quantity: quantity("64Mi")},
			},
		}}
		options := helpers.PodResourcesOptions{UseDRANodeAllocatableResourceClaimStatus: true}
		fmt.Printf("%s: requests%s, limits%s\n", label, listed(helpers.PodRequests(pod, options)), listed(helpers.PodLimits(pod, options)))
	}
}
GO

go mod init finding >/dev/null 2>&1
go get k8s.io/component-helpers@v0.37.2 k8s.io/api@v0.37.2 k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . | tr -d '[]' | tr -s ' ' | sort -r | tee output

diff output - <<'EXPECTED'
no limit of memory: requests hugepages-2Mi=64Mi memory=2Gi, limits hugepages-2Mi=64Mi
limit of memory: requests hugepages-2Mi=64Mi memory=2Gi, limits hugepages-2Mi=64Mi memory=5Gi
EXPECTED
