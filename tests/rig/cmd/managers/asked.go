//go:build !operations

package main

import (
	core "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
)

func (m *manager) GetTopologyHints(pod *core.Pod, container *core.Container) map[string][]topologymanager.TopologyHint {
	return m.ofContainer(pod, container)
}

func (m *manager) GetPodTopologyHints(pod *core.Pod) map[string][]topologymanager.TopologyHint {
	return m.ofPod(pod)
}

func (m *manager) Allocate(pod *core.Pod, container *core.Container) error {
	return m.allocate(pod, container)
}

func (m *manager) AllocatePod(pod *core.Pod) error { return m.allocatePod(pod) }
