package main

import (
	"context"
	"errors"
	"os"

	cadvisor "github.com/google/cadvisor/info/v1"
	"google.golang.org/grpc"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	plugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/utils/cpuset"
)

// pluginFolder is fixed in the kubelet; the device manager writes its socket and checkpoint there.
const pluginFolder = "/var/lib/kubelet/device-plugins/"

type machine struct {
	NumaNodes []struct {
		ID        int      `json:"id"`
		Memory    uint64   `json:"memory"`
		Distances []uint64 `json:"distances"`
		Cores     []struct {
			CPUs   []int `json:"cpus"`
			Socket int   `json:"socket"`
		} `json:"cores"`
	} `json:"numaNodes"`
}

type device struct {
	ID   string  `json:"id"`
	Numa []int64 `json:"numa"`
}

type configuration struct {
	Policy         string            `json:"topologyManagerPolicy"`
	Scope          string            `json:"topologyManagerScope"`
	Options        map[string]string `json:"topologyManagerPolicyOptions"`
	ReservedCPUs   string            `json:"reservedSystemCPUs"`
	ReservedMemory []struct {
		NumaNode int               `json:"numaNode"`
		Limits   map[string]string `json:"limits"`
	} `json:"reservedMemory"`
}

// node is what a kubelet wires together: the managers of CPUs (static), memory (Static) and devices.
type node struct {
	active       []*v1.Pod
	manager      topologymanager.Manager
	devices      *devicemanager.ManagerImpl
	cpuPolicy    cpumanager.Policy
	cpus         cpustate.State
	memoryPolicy memorymanager.Policy
	memory       memorystate.State
}

func machineInfo(given machine) *cadvisor.MachineInfo {
	info := &cadvisor.MachineInfo{}
	sockets := map[int]bool{}
	cores := 0
	for _, numa := range given.NumaNodes {
		made := cadvisor.Node{Id: numa.ID, Memory: numa.Memory, Distances: numa.Distances}
		info.MemoryCapacity += numa.Memory
		for _, core := range numa.Cores {
			made.Cores = append(made.Cores, cadvisor.Core{Id: cores, Threads: core.CPUs, SocketID: core.Socket})
			info.NumCores += len(core.CPUs)
			sockets[core.Socket] = true
			cores++
		}
		info.Topology = append(info.Topology, made)
	}
	info.NumPhysicalCores = cores
	info.NumSockets = len(sockets)
	return info
}

func newNode(given admissionCase) (*node, error) {
	info := machineInfo(given.Machine)
	kubelet := given.Kubelet
	manager, err := topologymanager.NewManager(info.Topology, kubelet.Policy, kubelet.Scope, kubelet.Options)
	if err != nil {
		return nil, err
	}
	made := &node{manager: manager}
	if err := made.addDevices(info, given.Devices); err != nil {
		return nil, err
	}
	if err := made.addCPUs(info, kubelet); err != nil {
		return nil, err
	}
	return made, made.addMemory(info, kubelet)
}

type ready struct{}

func (ready) AddSource(string) {}
func (ready) AllReady() bool   { return true }

func (n *node) addDevices(info *cadvisor.MachineInfo, inventory map[string][]device) error {
	if err := errors.Join(os.RemoveAll(pluginFolder), os.MkdirAll(pluginFolder, 0o755)); err != nil {
		return err
	}
	manager, err := devicemanager.NewManagerImpl(info.Topology, n.manager)
	if err != nil {
		return err
	}
	pods := func() []*v1.Pod { return n.active }
	err = manager.Start(silent, pods, ready{}, containermap.NewContainerMap(), sets.New[string]())
	if err != nil {
		return err
	}
	// Nobody else empties this channel; when it is full the manager waits.
	go func() {
		for range manager.Updates() {
		}
	}()
	for name, devices := range inventory {
		if err := manager.PluginConnected(context.Background(), name, &endpoint{name: name}); err != nil {
			return err
		}
		report := &plugin.ListAndWatchResponse{}
		for _, one := range devices {
			topology := &plugin.TopologyInfo{}
			for _, id := range one.Numa {
				topology.Nodes = append(topology.Nodes, &plugin.NUMANode{ID: id})
			}
			reported := &plugin.Device{ID: one.ID, Health: plugin.Healthy, Topology: topology}
			report.Devices = append(report.Devices, reported)
		}
		manager.PluginListAndWatchReceiver(silent, name, report)
	}
	n.devices = manager
	n.manager.AddHintProvider(silent, manager)
	return nil
}

func (n *node) stop() { _ = n.devices.Stop(silent) }

// cpuManager gives the static policy the form of a hint provider, which in the kubelet the manager around it has.
type cpuManager struct{ *node }

func (m cpuManager) GetTopologyHints(pod *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	return m.cpuPolicy.GetTopologyHints(silent, m.cpus, pod, c)
}

func (m cpuManager) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return m.cpuPolicy.GetPodTopologyHints(silent, m.cpus, pod)
}

func (m cpuManager) Allocate(pod *v1.Pod, c *v1.Container) error {
	return m.cpuPolicy.Allocate(silent, m.cpus, pod, c)
}

func (m cpuManager) AllocatePod(pod *v1.Pod) error {
	return m.cpuPolicy.AllocatePod(silent, m.cpus, pod)
}

func (n *node) addCPUs(info *cadvisor.MachineInfo, kubelet configuration) error {
	discovered, err := topology.Discover(silent, info)
	if err != nil {
		return err
	}
	reserved, err := cpuset.Parse(kubelet.ReservedCPUs)
	if err != nil {
		return err
	}
	n.cpuPolicy, err = cpumanager.NewStaticPolicy(silent, discovered, reserved.Size(), reserved, n.manager, nil)
	if err != nil {
		return err
	}
	n.cpus = cpustate.NewMemoryState(silent)
	n.manager.AddHintProvider(silent, cpuManager{n})
	return n.cpuPolicy.Start(silent, n.cpus)
}

// memoryManager does the same for memory.
type memoryManager struct{ *node }

func (m memoryManager) GetTopologyHints(pod *v1.Pod, c *v1.Container) map[string][]topologymanager.TopologyHint {
	return m.memoryPolicy.GetTopologyHints(silent, m.memory, pod, c)
}

func (m memoryManager) GetPodTopologyHints(pod *v1.Pod) map[string][]topologymanager.TopologyHint {
	return m.memoryPolicy.GetPodTopologyHints(silent, m.memory, pod)
}

func (m memoryManager) Allocate(pod *v1.Pod, c *v1.Container) error {
	return m.memoryPolicy.Allocate(silent, m.memory, pod, c)
}

func (m memoryManager) AllocatePod(pod *v1.Pod) error {
	return m.memoryPolicy.AllocatePod(silent, m.memory, pod)
}

func (n *node) addMemory(info *cadvisor.MachineInfo, kubelet configuration) error {
	reserved := map[int]map[v1.ResourceName]uint64{}
	for _, numa := range info.Topology {
		reserved[numa.Id] = map[v1.ResourceName]uint64{}
	}
	for _, entry := range kubelet.ReservedMemory {
		for name, quantity := range entry.Limits {
			parsed, err := resource.ParseQuantity(quantity)
			if err != nil {
				return err
			}
			reserved[entry.NumaNode][v1.ResourceName(name)] = uint64(parsed.Value())
		}
	}
	policy, err := memorymanager.NewPolicyStatic(silent, info, reserved, n.manager)
	if err != nil {
		return err
	}
	n.memoryPolicy, n.memory = policy, memorystate.NewMemoryState(silent)
	n.manager.AddHintProvider(silent, memoryManager{n})
	return policy.Start(silent, n.memory)
}

// endpoint stands for a device plugin that allows everything and prefers nothing.
type endpoint struct{ name string }

func (e *endpoint) API() plugin.DevicePluginClient { return e }
func (e *endpoint) Resource() string               { return e.name }
func (e *endpoint) SocketPath() string             { return "/nowhere" }

func (e *endpoint) GetDevicePluginOptions(
	context.Context, *plugin.Empty, ...grpc.CallOption,
) (*plugin.DevicePluginOptions, error) {
	return &plugin.DevicePluginOptions{}, nil
}

func (e *endpoint) ListAndWatch(
	context.Context, *plugin.Empty, ...grpc.CallOption,
) (grpc.ServerStreamingClient[plugin.ListAndWatchResponse], error) {
	return nil, errors.New("devices are reported without a stream")
}

func (e *endpoint) PreStartContainer(
	context.Context, *plugin.PreStartContainerRequest, ...grpc.CallOption,
) (*plugin.PreStartContainerResponse, error) {
	return &plugin.PreStartContainerResponse{}, nil
}

func (e *endpoint) GetPreferredAllocation(
	context.Context, *plugin.PreferredAllocationRequest, ...grpc.CallOption,
) (*plugin.PreferredAllocationResponse, error) {
	return &plugin.PreferredAllocationResponse{}, nil
}

func (e *endpoint) Allocate(
	_ context.Context, request *plugin.AllocateRequest, _ ...grpc.CallOption,
) (*plugin.AllocateResponse, error) {
	response := &plugin.AllocateResponse{}
	for range request.ContainerRequests {
		response.ContainerResponses = append(response.ContainerResponses, &plugin.ContainerAllocateResponse{})
	}
	return response, nil
}
