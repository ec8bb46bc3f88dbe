#!/usr/bin/env bash
# k8s.io/component-helpers 0.35.4, 0.36.3, 0.37.2, the features that nodes declare in their status, so that the API server can refuse what a
# node cannot do: one would guess that releases add some. 1.35 declares GuaranteedQoSPodCPUResize, that the node resizes exclusive CPUs in
# place; from 1.36 on no node declares it, though the kubelet's gate for it is still there, and off. A controller that looks for the
# feature before it resizes a pod finds it on old nodes alone. Needs Go, which fetches the pinned modules into its cache.
#
# Output seen:
#   0.35.4 declares GuaranteedQoSPodCPUResize: true, InPlacePodLevelResourcesVerticalScaling: true
#   0.36.3 declares GuaranteedQoSPodCPUResize: false, InPlacePodLevelResourcesVerticalScaling: true
#   0.37.2 declares GuaranteedQoSPodCPUResize: false, InPlacePodLevelResourcesVerticalScaling: true
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >main.go <<'GO'
package main

import (
	"fmt"

	"k8s.io/component-helpers/nodedeclaredfeatures/features"
)

func main() {
	declared := map[string]bool{}
	for _, feature := range features.AllFeatures {
		declared[feature.Name()] = true
	}
	exclusive, podLevel := "GuaranteedQoSPodCPUResize", "InPlacePodLevelResourcesVerticalScaling"
	fmt.Printf("%s: %t, %s: %t\n", exclusive, declared[exclusive], podLevel, declared[podLevel])
}
GO

for release in 0.35.4 0.36.3 0.37.2; do
    rm -f go.mod go.sum
    go mod init finding >/dev/null 2>&1
    go get "k8s.io/component-helpers@v$release" >/dev/null 2>&1
    go mod tidy >/dev/null 2>&1
    echo "$release declares $(go run .)"
done | tee output

diff output - <<'EXPECTED'
0.35.4 declares GuaranteedQoSPodCPUResize: true, InPlacePodLevelResourcesVerticalScaling: true
0.36.3 declares GuaranteedQoSPodCPUResize: false, InPlacePodLevelResourcesVerticalScaling: true
0.37.2 declares GuaranteedQoSPodCPUResize: false, InPlacePodLevelResourcesVerticalScaling: true
EXPECTED
