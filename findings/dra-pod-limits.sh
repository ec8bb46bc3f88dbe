#!/usr/bin/env bash
# k8s.io/component-helpers 0.37.2, what a pod may use at most (`PodLimits`, from which kubelets make the pod's cgroup) when devices
# of its claims count as memory and hugepages of the node (KEP-5517). One would guess that both are added or neither is. The
# hugepages always are; the memory only where some container of the pod has a limit of memory, of whichever size. (0.38.0-beta.0,
# by its source: where all containers have one.) Whoever plans a node by the limits of its pods meets it. Needs Go, which fetches the
# pinned modules into its cache.
#
# Output seen with 0.37.2 (0.38.0-beta.0, built as the rig builds it, printed the same):
#   claims of 1Gi memory and 4Mi hugepages, no limits: hugepages-2Mi 4Mi
#   the same, a container limited to memory 1Mi: hugepages-2Mi 4Mi, memory 1025Mi
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

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	helpers "k8s.io/component-helpers/resource"
)

func limits(memory string) string {
	container := core.Container{Name: "c"}
	if memory != "" {
		container.Resources.Limits = core.ResourceList{core.ResourceMemory: resource.MustParse(memory)}
	}
	pages, size := resource.MustParse("4Mi"), resource.MustParse("1Gi")
	status := core.NodeAllocatableResourceClaimStatus{
		ResourceClaimName: "claim", Containers: []string{"c"},
		Mapping: []core.NodeAllocatableMappedResources{
			{Name: core.ResourceMemory, Quantity: &size}, {Name: "hugepages-2Mi", Quantity: &pages},
		},
	}
	pod := &core.Pod{Spec: core.PodSpec{Containers: []core.Container{container}}}
	pod.Status.NodeAllocatableResourceClaimStatuses = []core.NodeAllocatableResourceClaimStatus{status}

	var texts []string
	for name, quantity := range helpers.PodLimits(pod, helpers.PodResourcesOptions{UseDRANodeAllocatableResourceClaimStatus: true}) {
		texts = append(texts, fmt.Sprintf("%s %s", name, quantity.String()))
	}
	slices.Sort(texts)
	return strings.Join(texts, ", ")
}

func main() {
	fmt.Println("claims of 1Gi memory and 4Mi hugepages, no limits:", limits(""))
	fmt.Println("the same, a container limited to memory 1Mi:", limits("1Mi"))
}
GO

go mod init finding >/dev/null 2>&1
go get k8s.io/component-helpers@v0.37.2 k8s.io/api@v0.37.2 k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . | tee output

diff output - <<'EXPECTED'
claims of 1Gi memory and 4Mi hugepages, no limits: hugepages-2Mi 4Mi
the same, a container limited to memory 1Mi: hugepages-2Mi 4Mi, memory 1025Mi
EXPECTED
