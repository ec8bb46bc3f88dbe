//go:build operations

// From 1.37 on, managers are told the operation for which they are asked.

package main

import (
	"context"

	"github.com/go-logr/logr"
	core "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

func (m *manager) GetTopologyHints(
	_ logr.Logger, pod *core.Pod, container *core.Container, _ lifecycle.Operation,
) map[string][]topologymanager.TopologyHint {
	return m.ofContainer(pod, container)
}

func (m *manager) GetPodTopologyHints(_ logr.Logger, pod *core.Pod, _ lifecycle.Operation) map[string][]topologymanager.TopologyHint {
	return m.ofPod(pod)
}

func (m *manager) Allocate(_ context.Context, pod *core.Pod, container *core.Container, _ lifecycle.Operation) error {
	return m.allocate(pod, container)
}

func (m *manager) AllocatePod(_ logr.Logger, pod *core.Pod, _ lifecycle.Operation) error {
	return m.allocatePod(pod)
}
