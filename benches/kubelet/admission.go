package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"time"

	v1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager/bitmask"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
)

// hint is a mask over NUMA nodes (nil: any node) and whether it is preferred.
type hint struct {
	Mask      *uint64 `json:"mask"`
	Preferred bool    `json:"preferred"`
}

func maskOf(mask bitmask.BitMask) *uint64 {
	if mask == nil {
		return nil
	}
	var word uint64
	for _, bit := range mask.GetBits() {
		word |= 1 << bit
	}
	return &word
}

// admissionCase is a node on which pods are admitted (timed) and removed, over and over for so many seconds.
type admissionCase struct {
	Name      string              `json:"name"`
	Machine   machine             `json:"machine"`
	Kubelet   configuration       `json:"kubelet"`
	Devices   map[string][]device `json:"devices"`
	Pod       *v1.Pod             `json:"pod"`
	Container string              `json:"container"`
	Seconds   float64             `json:"seconds"`
}

type admissionAnswer struct {
	Name     string              `json:"name"`
	Admitted bool                `json:"admitted"`
	Reason   string              `json:"reason"`
	Affinity hint                `json:"affinity"`
	CPUs     string              `json:"cpus"`
	Devices  map[string][]string `json:"devices"`
	Timing   timing              `json:"timing"`
}

func timeAdmission(line []byte) (any, error) {
	var given admissionCase
	if err := json.Unmarshal(line, &given); err != nil {
		return nil, err
	}
	managed, err := newNode(given)
	if err != nil {
		return nil, err
	}
	defer managed.stop()
	made := admissionAnswer{Name: given.Name, Devices: map[string][]string{}}
	var calls []time.Duration
	for begin := time.Now(); len(calls) == 0 || time.Since(begin).Seconds() < given.Seconds; {
		managed.active = []*v1.Pod{given.Pod}
		start := time.Now()
		result := managed.manager.Admit(&lifecycle.PodAdmitAttributes{Pod: given.Pod})
		calls = append(calls, time.Since(start))
		made.Admitted, made.Reason = result.Admit, result.Reason
		if result.Admit {
			managed.describe(given, &made)
		}
		managed.remove(given.Pod)
	}
	made.Timing = timingOf(calls)
	return made, nil
}

// describe notes what the container got.
func (n *node) describe(given admissionCase, made *admissionAnswer) {
	uid := string(given.Pod.UID)
	affinity := n.manager.GetAffinity(uid, given.Container)
	made.Affinity = hint{maskOf(affinity.NUMANodeAffinity), affinity.Preferred}
	cpus, _ := n.cpus.GetCPUSet(uid, given.Container)
	made.CPUs = cpus.String()
	for resource, ids := range n.devices.GetDevices(uid, given.Container) {
		made.Devices[resource] = []string{}
		for id := range ids {
			made.Devices[resource] = append(made.Devices[resource], id)
		}
		slices.Sort(made.Devices[resource])
	}
}

// remove takes everything back that the pod holds; removing a container id drops the stored affinity.
func (n *node) remove(pod *v1.Pod) {
	n.active = nil
	for index := range pod.Spec.Containers {
		container := &pod.Spec.Containers[index]
		n.cpuPolicy.RemoveContainer(silent, n.cpus, string(pod.UID), container.Name)
		n.memoryPolicy.RemoveContainer(silent, n.memory, string(pod.UID), container.Name)
		id := fmt.Sprintf("%s/%s", pod.UID, container.Name)
		n.manager.AddContainer(pod, container, id)
		_ = n.manager.RemoveContainer(id)
	}
	n.devices.UpdateAllocatedDevices()
}
