//go:build views

// From 1.38 on, the allocator takes slices in a form of its own, and asks of a shared device only which one it is.

package main

import (
	resource "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	view "k8s.io/dynamic-resource-allocation/api"
	"k8s.io/dynamic-resource-allocation/structured"
)

type (
	slice  = view.ResourceSlice
	shared = structured.DeviceID
)

func sharedOf(id structured.DeviceID, _ *types.UID) shared { return id }

func viewed(slices []*resource.ResourceSlice) ([]*slice, error) {
	views := make([]*slice, len(slices))
	for i, given := range slices {
		views[i] = &slice{}
		if err := view.Convert_v1_ResourceSlice_To_api_ResourceSlice(given, views[i], nil); err != nil {
			return nil, err
		}
	}
	return views, nil
}
