#!/usr/bin/env bash
# k8s.io/dynamic-resource-allocation 0.37.2, what kube-scheduler 1.37.2 knows of extended resources that a DeviceClass serves. Each
# class serves the resource deviceclass.resource.kubernetes.io/NAME, whatever else it serves, and of two classes with the same
# extendedResourceName the younger one counts: so far as one would guess. But a class that comes second and is older is forgotten
# altogether, its own name too. Classes come by name when a scheduler starts: a younger class "a" beside an older "b" makes the
# pods that ask for deviceclass.resource.kubernetes.io/b wait after the scheduler's next start. (0.38.0-beta.0 keeps it, by its
# source.) Whoever moves from one class to another with the same resource meets it. Needs Go, which fetches the pinned modules into
# its cache.
#
# Output seen with 0.37.2:
#   as they were made: example.com/gpu by a, deviceclass.resource.kubernetes.io/b by b
#   after a restart: example.com/gpu by a, deviceclass.resource.kubernetes.io/b by no class
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >main.go <<'GO'
package main

import (
	"fmt"
	"time"

	core "k8s.io/api/core/v1"
	api "k8s.io/api/resource/v1"
	meta "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/dynamic-resource-allocation/deviceclass/extendedresourcecache"
	"k8s.io/klog/v2"
)

func class(name string, made time.Time) *api.DeviceClass {
	gpu := "example.com/gpu"
	return &api.DeviceClass{
		ObjectMeta: meta.ObjectMeta{Name: name, CreationTimestamp: meta.NewTime(made)},
		Spec:       api.DeviceClassSpec{ExtendedResourceName: &gpu},
	}
}

func served(classes ...*api.DeviceClass) string {
	cache := extendedresourcecache.NewExtendedResourceCache(klog.Background())
	for _, class := range classes {
		cache.OnAdd(class, true)
	}
	text := ""
	for _, name := range []string{"example.com/gpu", "deviceclass.resource.kubernetes.io/b"} {
		by := "no class"
		if class := cache.GetDeviceClass(core.ResourceName(name)); class != nil {
			by = class.Name
		}
		text += fmt.Sprintf(", %s by %s", name, by)
	}
	return text[2:]
}

func main() {
	day := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	older, younger := class("b", day), class("a", day.AddDate(0, 0, 1))
	fmt.Println("as they were made:", served(older, younger))
	fmt.Println("after a restart:", served(younger, older))
}
GO

go mod init finding >/dev/null 2>&1
go get k8s.io/dynamic-resource-allocation@v0.37.2 k8s.io/api@v0.37.2 k8s.io/apimachinery@v0.37.2 >/dev/null 2>&1
go mod tidy >/dev/null 2>&1
go run . | tee output

diff output - <<'EXPECTED'
as they were made: example.com/gpu by a, deviceclass.resource.kubernetes.io/b by b
after a restart: example.com/gpu by a, deviceclass.resource.kubernetes.io/b by no class
EXPECTED
