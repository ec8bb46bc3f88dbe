// Command managers asks the managers of a kubelet's release what they decide: the topology manager, and the CPU, memory and
// device managers with their static policies.
//
//	managers [-v=LEVEL [-logging-format=json]] < SCENARIOS > ANSWERS
//
// A line of SCENARIOS is a scenario as docs/scenarios.md describes it, with all steps that it has: admit, remove, start, restart.
// Its answer is the same object with "expect", an answer a step, or with "configError", with which a kubelet would not start.
// Hints have a "score" where the release counts one and it is not 0.
//
// A restart that names another release (kubeletVersion) is the work of two programs: with "keep", the older one adds "kept" to
// its answer, which is what it leaves behind: its files, and pods. A scenario that has "kept", and a restart as its first step,
// goes on from there.
//
// With -v the "log" of an answer is what the managers have logged since the one before, in klog's text or as JSON.
// It writes into the folder in which kubelets keep device plugins, and empties it: run it as root in a mount namespace of its own.
//
// One source serves all releases: what they pass each other differs, so functions are called by reflection, with those of the
// arguments at hand that a release takes. Only what a manager is asked by has its signatures written out, in asked*.go.
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"sync"

	"github.com/go-logr/logr"
	"google.golang.org/grpc"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	logs "k8s.io/component-base/logs/api/v1"
	jsonlogs "k8s.io/component-base/logs/json"
	"k8s.io/component-base/version"
	"k8s.io/klog/v2"
	plugins "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
	"k8s.io/kubernetes/pkg/kubelet/cm/containermap"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager"
	cpustate "k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/cpumanager/topology"
	"k8s.io/kubernetes/pkg/kubelet/cm/devicemanager"
	"k8s.io/kubernetes/pkg/kubelet/cm/memorymanager"
	memorystate "k8s.io/kubernetes/pkg/kubelet/cm/memorymanager/state"
	"k8s.io/kubernetes/pkg/kubelet/cm/topologymanager"
	"k8s.io/kubernetes/pkg/kubelet/lifecycle"
	"k8s.io/utils/cpuset"
)

type scenario struct {
	Machine struct {
		NUMANodes []struct {
			ID        int
			Memory    uint64
			HugePages map[string]uint64
			Distances []uint64
			Cores     []struct {
				ID, Socket int
				L3         *int
				CPUs       []int
			}
		}
	}
	Kubelet struct {
		TopologyManagerPolicy, TopologyManagerScope string
		TopologyManagerPolicyOptions                map[string]string
		CPUManagerPolicy, ReservedSystemCPUs        string
		CPUManagerPolicyOptions                     map[string]string
		MemoryManagerPolicy                         string
		ReservedMemory                              []struct {
			NUMANode int
			Limits   map[core.ResourceName]resource.Quantity
		}
		FeatureGates map[string]bool
	}
	Devices map[string][]struct {
		ID   string
		NUMA []int64 // nil: the plugin tells no topology
	}
	PreferredSets map[string][][]string
	Steps         []struct {
		Admit                    *core.Pod
		Remove, Start, Container string
		Restart                  bool
		KubeletVersion           string
	}
	Keep bool
	Kept *kept
}

// kept is what a kubelet leaves behind: its files by name, the pods that it admitted in their order, and which of their init
// containers have ended.
type kept struct {
	Files map[string]string `json:"files"`
	Pods  []*core.Pod       `json:"pods"`
	Ended []string          `json:"ended"`
}

type hint struct {
	NUMA      []int `json:"numa"`
	Preferred bool  `json:"preferred"`
	Score     int64 `json:"score,omitempty"`
}

type block struct {
	NUMA []int  `json:"numa"`
	Type string `json:"type"`
	Size uint64 `json:"size"`
}

type hints map[string]map[string][]hint

type held struct {
	Affinity *hint               `json:"affinity"`
	CPUs     *string             `json:"cpus"`
	Memory   []block             `json:"memory"`
	Devices  map[string][]string `json:"devices"`
	Hints    hints               `json:"hints,omitempty"`
}

type answer struct {
	UID        string          `json:"uid,omitempty"` // of a pod that is admitted again
	Admitted   bool            `json:"admitted"`
	Reason     string          `json:"reason,omitempty"`
	Message    string          `json:"message,omitempty"`
	Containers map[string]held `json:"containers,omitempty"`
	PodHints   hints           `json:"podHints,omitempty"`
	PodCPUs    string          `json:"podCpus,omitempty"`
	PodMemory  []block         `json:"podMemory,omitempty"`
	SharedCPUs string          `json:"sharedCpus"`
	Again      *[]answer       `json:"again,omitempty"`
	Log        string          `json:"log,omitempty"`
}

// --- calls that a release may write in its own way

var atHand = []any{logr.Discard(), logr.NewContext(context.Background(), logr.Discard())}

// call calls a function with those arguments that it takes, in their order; what releases added, such as a logger, is at hand.
func call(function reflect.Value, arguments ...any) []reflect.Value {
	var passed []reflect.Value
	for i := 0; i < function.Type().NumIn(); i++ { // a release before 1.30 has an older Go
		passed = append(passed, taken(function.Type().In(i), &arguments))
	}
	return function.Call(passed)
}

func taken(wanted reflect.Type, arguments *[]any) reflect.Value {
	for i, one := range *arguments {
		if one != nil && reflect.TypeOf(one).AssignableTo(wanted) {
			*arguments = slices.Concat((*arguments)[:i], (*arguments)[i+1:])
			return reflect.ValueOf(one)
		}
	}
	for _, one := range atHand {
		if reflect.TypeOf(one).AssignableTo(wanted) {
			return reflect.ValueOf(one)
		}
	}
	if wanted.Name() == "Operation" {
		return reflect.ValueOf("add").Convert(wanted)
	}
	panic(fmt.Sprintf("nothing to pass as %v", wanted))
}

func made(function any, arguments ...any) (any, error) {
	results := call(reflect.ValueOf(function), arguments...)
	return results[0].Interface(), failure(results)
}

func ask(of any, method string, arguments ...any) []reflect.Value {
	return call(reflect.ValueOf(of).MethodByName(method), arguments...)
}

func failure(results []reflect.Value) error {
	if len(results) == 0 {
		return nil
	}
	err, _ := results[len(results)-1].Interface().(error)
	return err
}

// --- a manager, as the topology manager asks it

type manager struct {
	name         string
	asked, state any // state is nil for one that keeps its own
	hints        map[string]map[string][]topologymanager.TopologyHint
	podHints     map[string][]topologymanager.TopologyHint
}

func (m *manager) ofContainer(pod *core.Pod, container *core.Container) map[string][]topologymanager.TopologyHint {
	told := ask(m.asked, "GetTopologyHints", m.state, pod, container)[0].Interface()
	m.hints[container.Name] = told.(map[string][]topologymanager.TopologyHint)
	return m.hints[container.Name]
}

func (m *manager) ofPod(pod *core.Pod) map[string][]topologymanager.TopologyHint {
	m.podHints = ask(m.asked, "GetPodTopologyHints", m.state, pod)[0].Interface().(map[string][]topologymanager.TopologyHint)
	return m.podHints
}

func (m *manager) allocate(pod *core.Pod, container *core.Container) error {
	return failure(ask(m.asked, "Allocate", m.state, pod, container))
}

func (m *manager) allocatePod(pod *core.Pod) error {
	return failure(ask(m.asked, "AllocatePod", m.state, pod))
}

func told(all map[string][]topologymanager.TopologyHint) map[string][]hint {
	if all == nil {
		return nil
	}
	found := map[string][]hint{}
	for name, some := range all {
		if some == nil {
			found[name] = nil
			continue
		}
		found[name] = []hint{}
		for _, one := range some {
			found[name] = append(found[name], hintOf(one))
		}
		slices.SortFunc(found[name], func(a, b hint) int {
			if order := mask(a.NUMA) - mask(b.NUMA); order != 0 {
				return order
			}
			return rank(a.Preferred) - rank(b.Preferred)
		})
	}
	return found
}

func hintOf(one topologymanager.TopologyHint) hint {
	made := hint{Preferred: one.Preferred}
	if one.NUMANodeAffinity != nil {
		made.NUMA = one.NUMANodeAffinity.GetBits()
	}
	if score := reflect.ValueOf(one).FieldByName("Score"); score.IsValid() { // from 1.38 on
		made.Score = score.Int()
	}
	return made
}

func mask(nodes []int) (bits int) {
	for _, one := range nodes {
		bits |= 1 << one
	}
	return bits
}

func rank(preferred bool) int {
	if preferred {
		return 0
	}
	return 1
}

// --- a device plugin

type plugin struct {
	plugins.DevicePluginClient // what nobody asks
	resource                   string
	preferred                  [][]string
}

func (p *plugin) API() plugins.DevicePluginClient { return p }
func (p *plugin) Resource() string                { return p.resource }
func (p *plugin) SocketPath() string              { return "/nowhere" }

func (p *plugin) GetDevicePluginOptions(context.Context, *plugins.Empty, ...grpc.CallOption) (*plugins.DevicePluginOptions, error) {
	return &plugins.DevicePluginOptions{GetPreferredAllocationAvailable: len(p.preferred) > 0}, nil
}

func (p *plugin) Allocate(
	_ context.Context, asked *plugins.AllocateRequest, _ ...grpc.CallOption,
) (*plugins.AllocateResponse, error) {
	given := &plugins.AllocateResponse{}
	for range asked.ContainerRequests {
		given.ContainerResponses = append(given.ContainerResponses, &plugins.ContainerAllocateResponse{})
	}
	return given, nil
}

func (p *plugin) PreStartContainer(
	context.Context, *plugins.PreStartContainerRequest, ...grpc.CallOption,
) (*plugins.PreStartContainerResponse, error) {
	return &plugins.PreStartContainerResponse{}, nil
}

func (p *plugin) GetPreferredAllocation(
	_ context.Context, asked *plugins.PreferredAllocationRequest, _ ...grpc.CallOption,
) (*plugins.PreferredAllocationResponse, error) {
	given := &plugins.PreferredAllocationResponse{}
	for _, one := range asked.ContainerRequests {
		chosen := &plugins.ContainerPreferredAllocationResponse{DeviceIDs: p.preferredOf(one)}
		given.ContainerResponses = append(given.ContainerResponses, chosen)
	}
	return given, nil
}

func (p *plugin) preferredOf(asked *plugins.ContainerPreferredAllocationRequest) []string {
	available, taken := sets.New(asked.AvailableDeviceIDs...), sets.New(asked.MustIncludeDeviceIDs...)
	for _, some := range p.preferred {
		if wider := taken.Union(sets.New(some...)); available.HasAll(some...) && wider.Len() <= int(asked.AllocationSize) {
			taken = wider
		}
	}
	for _, one := range sets.List(available) {
		if taken.Len() < int(asked.AllocationSize) {
			taken.Insert(one)
		}
	}
	return sets.List(taken)
}

// --- a node

// sources is what a kubelet knows of where its pods come from. Until all of them have told theirs, it takes nothing back.
type sources struct{ ready bool }

func (*sources) AddSource(string) {}
func (s *sources) AllReady() bool { return s.ready }

type node struct {
	scenario     *scenario
	sources      sources
	topology     topologymanager.Manager
	devices      *devicemanager.ManagerImpl
	cpus, memory *manager // nil: no static policy
	managers     []*manager
	active       []*core.Pod      // in the order in which they were admitted
	ended        sets.Set[string] // the ids of init containers
	stopped      error            // with which a kubelet did not start again
}

// folder is where a kubelet keeps its files.
var folder = filepath.Dir(filepath.Clean(plugins.DevicePluginPath))

var files = []string{"cpu_manager_state", "memory_manager_state", "device-plugins/kubelet_internal_checkpoint"}

// start starts the managers on a node without files and pods, or with those that were kept; an error is what would keep a
// kubelet from starting.
func start(s *scenario) (*node, error) {
	n := &node{scenario: s, ended: sets.New[string]()}
	if err := errors.Join(os.RemoveAll(plugins.DevicePluginPath), os.MkdirAll(plugins.DevicePluginPath, 0o755)); err != nil {
		return nil, err
	}
	for _, name := range files {
		_ = os.Remove(filepath.Join(folder, name))
	}
	if s.Kept == nil {
		n.sources.ready = true
		return n, errors.Join(n.startManagers(), n.connectPlugins())
	}
	for name, text := range s.Kept.Files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o600); err != nil {
			return nil, err
		}
	}
	n.active, n.ended = s.Kept.Pods, sets.New(s.Kept.Ended...)
	return n, nil
}

func (n *node) startManagers() error {
	machine := n.machine()
	numaNodes := machine.Elem().FieldByName("Topology").Interface()
	k := n.scenario.Kubelet
	topologyManager, err := made(topologymanager.NewManager, numaNodes, k.TopologyManagerPolicy, k.TopologyManagerScope, k.TopologyManagerPolicyOptions)
	if err != nil {
		return err
	}
	n.topology, n.managers = topologyManager.(topologymanager.Manager), nil
	if len(n.scenario.Devices) > 0 {
		if err := n.startDevices(numaNodes); err != nil {
			return err
		}
	}
	if k.CPUManagerPolicy == "static" {
		if err := n.startCPUs(machine.Interface()); err != nil {
			return err
		}
	}
	if k.MemoryManagerPolicy == "Static" {
		if err := n.startMemory(machine.Interface()); err != nil {
			return err
		}
	}
	return nil
}

func (n *node) add(one *manager) *manager {
	one.hints = map[string]map[string][]topologymanager.TopologyHint{}
	n.managers = append(n.managers, one)
	ask(n.topology, "AddHintProvider", one)
	return one
}

// machine makes what cAdvisor tells of a machine, whose package is another one in another release.
func (n *node) machine() reflect.Value {
	var numaNodes []map[string]any
	sockets, cores, threads := sets.New[int](), 0, 0
	for _, one := range n.scenario.Machine.NUMANodes {
		var pages, made []map[string]any
		for _, size := range sets.List(sets.KeySet(one.HugePages)) {
			bytes := resource.MustParse(size)
			pages = append(pages, map[string]any{"page_size": bytes.Value() / 1024, "num_pages": one.HugePages[size]})
		}
		for _, c := range one.Cores {
			core := map[string]any{"core_id": c.ID, "socket_id": c.Socket, "thread_ids": c.CPUs}
			if c.L3 != nil {
				core["uncore_caches"] = []map[string]any{{"id": *c.L3, "level": 3}}
			}
			made = append(made, core)
			sockets.Insert(c.Socket)
			threads += len(c.CPUs)
		}
		cores += len(one.Cores)
		numaNodes = append(numaNodes, map[string]any{
			"node_id": one.ID, "memory": one.Memory, "hugepages": pages, "distances": one.Distances, "cores": made,
		})
	}
	written, _ := json.Marshal(map[string]any{
		"num_cores": threads, "num_physical_cores": cores, "num_sockets": sockets.Len(), "topology": numaNodes,
	})
	discover := reflect.TypeOf(topology.Discover)
	machine := reflect.New(discover.In(discover.NumIn() - 1).Elem())
	if err := json.Unmarshal(written, machine.Interface()); err != nil {
		panic(err)
	}
	return machine
}

func (n *node) startDevices(numaNodes any) error {
	deviceManager, err := made(devicemanager.NewManagerImpl, numaNodes, n.topology)
	if err != nil {
		return err
	}
	n.devices = deviceManager.(*devicemanager.ManagerImpl)
	pods := devicemanager.ActivePodsFunc(func() []*core.Pod { return n.active })
	known, running := containermap.NewContainerMap(), sets.New[string]()
	for _, pod := range n.active {
		for _, one := range containers(pod) {
			id := idOf(pod, one.Name)
			known.Add(string(pod.UID), one.Name, id)
			if !n.ended.Has(id) {
				running.Insert(id)
			}
		}
	}
	if err := failure(ask(n.devices, "Start", pods, &n.sources, known, running)); err != nil {
		return err
	}
	if updates := reflect.ValueOf(n.devices).MethodByName("Updates"); updates.IsValid() {
		go func() { // its channel must never be full
			for channel := updates.Call(nil)[0]; ; {
				if _, open := channel.Recv(); !open {
					return
				}
			}
		}()
	}
	n.add(&manager{name: "devices", asked: n.devices})
	return nil
}

// connectPlugins registers the device plugins; when a kubelet restarts, they do so again after its pods have been admitted.
func (n *node) connectPlugins() error {
	for _, name := range sets.List(sets.KeySet(n.scenario.Devices)) {
		if err := failure(ask(n.devices, "PluginConnected", name, &plugin{resource: name, preferred: n.scenario.PreferredSets[name]})); err != nil {
			return err
		}
		listed := &plugins.ListAndWatchResponse{}
		for _, one := range n.scenario.Devices[name] {
			device := &plugins.Device{ID: one.ID, Health: plugins.Healthy}
			if one.NUMA != nil {
				device.Topology = &plugins.TopologyInfo{}
				for _, id := range one.NUMA {
					device.Topology.Nodes = append(device.Topology.Nodes, &plugins.NUMANode{ID: id})
				}
			}
			listed.Devices = append(listed.Devices, device)
		}
		ask(n.devices, "PluginListAndWatchReceiver", name, listed)
	}
	return nil
}

// stateOf returns where a policy keeps what it gave: in a file where the scenario restarts its kubelet, which takes longer.
func (n *node) stateOf(policy any, file string, inFile, inMemory any) (any, error) {
	if !n.scenario.restarts() {
		return call(reflect.ValueOf(inMemory))[0].Interface(), nil
	}
	return made(inFile, folder, file, ask(policy, "Name")[0].String(), containermap.NewContainerMap())
}

func (n *node) startCPUs(machine any) error {
	found, err := made(topology.Discover, machine)
	if err != nil {
		return err
	}
	reserved, err := cpuset.Parse(n.scenario.Kubelet.ReservedSystemCPUs)
	if err != nil {
		return err
	}
	policy, err := made(cpumanager.NewStaticPolicy, found, reserved.Size(), reserved, n.topology, n.scenario.Kubelet.CPUManagerPolicyOptions)
	if err != nil {
		return err
	}
	state, err := n.stateOf(policy, files[0], cpustate.NewCheckpointState, cpustate.NewMemoryState)
	if err != nil {
		return err
	}
	if err := failure(ask(policy, "Start", state)); err != nil {
		return err
	}
	n.cpus = n.add(&manager{name: "cpu", asked: policy, state: state})
	return nil
}

func (n *node) startMemory(machine any) error {
	reserved := map[int]map[core.ResourceName]uint64{}
	for _, one := range n.scenario.Machine.NUMANodes {
		reserved[one.ID] = map[core.ResourceName]uint64{}
	}
	for _, one := range n.scenario.Kubelet.ReservedMemory {
		for name, amount := range one.Limits {
			reserved[one.NUMANode][name] = uint64(amount.Value())
		}
	}
	policy, err := made(memorymanager.NewPolicyStatic, machine, reserved, n.topology)
	if err != nil {
		return err
	}
	state, err := n.stateOf(policy, files[1], memorystate.NewCheckpointState, memorystate.NewMemoryState)
	if err != nil {
		return err
	}
	if err := failure(ask(policy, "Start", state)); err != nil {
		return err
	}
	n.memory = n.add(&manager{name: "memory", asked: policy, state: state})
	return nil
}

func (n *node) stop() {
	if n.devices != nil {
		ask(n.devices, "Stop")
	}
}

// --- steps

func containers(pod *core.Pod) []core.Container {
	return slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers)
}

// idOf returns the id that a container runtime gives to a container.
func idOf(pod *core.Pod, container string) string { return string(pod.UID) + "/" + container }

func (n *node) indexOf(uid string) int {
	return slices.IndexFunc(n.active, func(one *core.Pod) bool { return string(one.UID) == uid })
}

// admit admits a pod, and takes back what a pod that is refused was given.
func (n *node) admit(pod *core.Pod) answer {
	if at := n.indexOf(string(pod.UID)); at >= 0 {
		n.active = slices.Delete(n.active, at, at+1)
	}
	n.active = append(n.active, pod)
	a := n.admission(pod)
	if !a.Admitted {
		n.remove(pod)
	}
	return a
}

func (n *node) admission(pod *core.Pod) (a answer) {
	for _, one := range n.managers {
		clear(one.hints)
		one.podHints = nil
	}
	attributes := reflect.ValueOf(&lifecycle.PodAdmitAttributes{Pod: pod})
	if operation := attributes.Elem().FieldByName("Operation"); operation.IsValid() {
		operation.SetString("add")
	}
	result := ask(n.topology, "Admit", attributes.Interface())[0].Interface().(lifecycle.PodAdmitResult)
	a = answer{Admitted: result.Admit, Reason: result.Reason, Message: result.Message, Containers: map[string]held{}}
	if n.scenario.Kubelet.TopologyManagerScope == "pod" && n.scenario.Kubelet.TopologyManagerPolicy != "none" {
		a.PodHints = hints{}
		for _, one := range n.managers {
			a.PodHints[one.name] = told(one.podHints)
		}
	}
	for _, container := range containers(pod) {
		var h held
		if result.Admit {
			h = n.held(string(pod.UID), container.Name)
		}
		for _, one := range n.managers {
			if some, asked := one.hints[container.Name]; asked {
				if h.Hints == nil {
					h.Hints = hints{}
				}
				h.Hints[one.name] = told(some)
			}
		}
		a.Containers[container.Name] = h
	}
	if result.Admit {
		a.PodCPUs, a.PodMemory = n.heldByPod(string(pod.UID))
	} else {
		// as every kubelet from 1.31 on does
		klog.InfoS("Pod admission denied", "podUID", pod.UID, "pod", klog.KObj(pod), "reason", a.Reason, "message", a.Message)
	}
	return a
}

func (n *node) held(uid, name string) (h held) {
	if n.scenario.Kubelet.TopologyManagerPolicy != "none" {
		found := hintOf(ask(n.topology, "GetAffinity", uid, name)[0].Interface().(topologymanager.TopologyHint))
		h.Affinity = &found
	}
	if n.cpus != nil {
		if some, ok := n.cpus.state.(cpustate.State).GetCPUSet(uid, name); ok {
			text := some.String()
			h.CPUs = &text
		}
	}
	if n.memory != nil {
		h.Memory = blocks(n.memory.state.(memorystate.State).GetMemoryBlocks(uid, name))
	}
	if n.devices != nil {
		for resource, some := range n.devices.GetDevices(uid, name) {
			if h.Devices == nil {
				h.Devices = map[string][]string{}
			}
			h.Devices[resource] = sets.List(sets.KeySet(some))
		}
	}
	return h
}

// heldByPod returns what a pod holds as a whole, in the releases that have such pods.
func (n *node) heldByPod(uid string) (cpus string, memory []block) {
	if n.cpus != nil && reflect.ValueOf(n.cpus.state).MethodByName("GetPodCPUSet").IsValid() {
		if found := ask(n.cpus.state, "GetPodCPUSet", uid); found[1].Bool() {
			cpus = found[0].Interface().(cpuset.CPUSet).String()
		}
	}
	if n.memory != nil && reflect.ValueOf(n.memory.state).MethodByName("GetPodMemoryBlocks").IsValid() {
		memory = blocks(ask(n.memory.state, "GetPodMemoryBlocks", uid)[0].Interface().([]memorystate.Block))
	}
	return cpus, memory
}

func blocks(some []memorystate.Block) (made []block) {
	for _, one := range some {
		made = append(made, block{one.NUMAAffinity, string(one.Type), one.Size})
	}
	slices.SortFunc(made, func(a, b block) int {
		if a.Type < b.Type {
			return -1
		}
		return 1
	})
	return made
}

func (n *node) remove(pod *core.Pod) {
	uid := string(pod.UID)
	if at := n.indexOf(uid); at >= 0 {
		n.active = slices.Delete(n.active, at, at+1)
	}
	for _, container := range containers(pod) {
		for _, one := range []*manager{n.cpus, n.memory} {
			if one != nil {
				ask(one.asked, "RemoveContainer", one.state, uid, container.Name)
			}
		}
		id := idOf(pod, container.Name)
		n.ended.Delete(id)
		ask(n.topology, "AddContainer", pod, &container, id)
		ask(n.topology, "RemoveContainer", id)
	}
	if n.devices != nil {
		ask(n.devices, "UpdateAllocatedDevices")
	}
}

// startContainer does what of the managers' work is done when a container starts: the memory manager forgets the init
// containers that ended before it, and the device manager allocates what is still missing.
func (n *node) startContainer(pod *core.Pod, name string) error {
	all := containers(pod)
	here := slices.IndexFunc(all, func(one core.Container) bool { return one.Name == name })
	if here < 0 {
		return fmt.Errorf("no container %q", name)
	}
	for i, one := range pod.Spec.InitContainers {
		stays := one.RestartPolicy != nil && *one.RestartPolicy == core.ContainerRestartPolicyAlways
		if i >= here || stays {
			continue
		}
		n.ended.Insert(idOf(pod, one.Name))
		if n.memory != nil {
			ask(n.memory.asked, "RemoveContainer", n.memory.state, string(pod.UID), one.Name)
		}
	}
	if n.devices == nil {
		return nil
	}
	return failure(ask(n.devices, "GetDeviceRunContainerOptions", pod, &all[here]))
}

// restart does what is done when a kubelet restarts on its files: it admits its pods again, in their order. Containers run, so
// they keep their devices, and device plugins register after that. What a pod held that is refused now is taken back when all
// have been seen.
func (n *node) restart() (a answer) {
	a = answer{Admitted: true, Again: &[]answer{}}
	if n.stop(); n.stopped == nil {
		n.sources.ready = false
		n.stopped = n.startManagers()
	}
	if n.stopped != nil {
		a.Admitted, a.Message = false, n.stopped.Error()
		return a
	}
	var refused []*core.Pod
	for _, pod := range n.active {
		again := n.admission(pod)
		again.UID, again.SharedCPUs = string(pod.UID), n.sharedCPUs()
		*a.Again = append(*a.Again, again)
		if !again.Admitted {
			refused = append(refused, pod)
		}
	}
	n.sources.ready = true
	if n.stopped = n.connectPlugins(); n.stopped != nil {
		a.Admitted, a.Message = false, n.stopped.Error()
	}
	for _, pod := range refused {
		n.remove(pod)
	}
	return a
}

func (n *node) sharedCPUs() string {
	if n.cpus == nil {
		return ""
	}
	return n.cpus.state.(cpustate.State).GetDefaultCPUSet().String()
}

// leave returns what is there when a kubelet stops.
func (n *node) leave() *kept {
	left := &kept{Files: map[string]string{}, Pods: n.active, Ended: sets.List(n.ended)}
	for _, name := range files {
		if text, err := os.ReadFile(filepath.Join(folder, name)); err == nil {
			left.Files[name] = string(text)
		}
	}
	return left
}

// --- scenarios

// restarts says whether a kubelet restarts at some time.
func (s *scenario) restarts() bool {
	for _, step := range s.Steps {
		if step.Restart {
			return true
		}
	}
	return s.Keep || s.Kept != nil
}

// ofRelease returns an error for a scenario whose kubelet becomes one of another release.
func (s *scenario) ofRelease() error {
	here := version.Get()
	for _, step := range s.Steps {
		if step.KubeletVersion != "" && step.KubeletVersion != here.Major+"."+here.Minor {
			return fmt.Errorf("restarts with a kubelet %s, and this is %s.%s", step.KubeletVersion, here.Major, here.Minor)
		}
	}
	return nil
}

// setGates sets a scenario's feature gates, and those that it leaves out to their defaults; without any, the options of the
// CPU manager of all stages are there. undo puts the ones before back.
func setGates(given map[string]bool) (undo func(), err error) {
	undo = func() {}
	if given == nil {
		return undo, nil
	}
	gates := feature.DefaultMutableFeatureGate
	wanted, before := map[string]bool{"CPUManagerPolicyAlphaOptions": false}, map[string]bool{}
	for name, on := range given {
		if _, known := gates.GetAll()[featuregate.Feature(name)]; !known {
			return undo, fmt.Errorf("unrecognized feature gate: %s", name)
		}
		wanted[name] = on
	}
	for name := range wanted {
		before[name] = gates.Enabled(featuregate.Feature(name))
	}
	undo = func() { _ = gates.SetFromMap(before) }
	return undo, gates.SetFromMap(wanted)
}

// run returns the answers to the steps of a scenario, and what is there after them where it is asked for.
func run(s *scenario) ([]answer, *kept, error) {
	if err := s.ofRelease(); err != nil {
		return nil, nil, err
	}
	undo, err := setGates(s.Kubelet.FeatureGates)
	defer undo()
	if err != nil {
		return nil, nil, err
	}
	n, err := start(s)
	if err != nil {
		return nil, nil, err
	}
	defer n.stop()
	answers := []answer{}
	for _, step := range s.Steps {
		a := answer{Admitted: true}
		switch {
		case step.Restart:
			a = n.restart()
		case n.stopped != nil:
			a.Admitted, a.Message = false, n.stopped.Error()
		case step.Admit != nil:
			a = n.admit(step.Admit)
		case step.Start != "" && n.indexOf(step.Start) >= 0:
			if err := n.startContainer(n.active[n.indexOf(step.Start)], step.Container); err != nil {
				a.Message = err.Error()
			}
		case step.Remove != "" && n.indexOf(step.Remove) >= 0:
			n.remove(n.active[n.indexOf(step.Remove)])
		}
		a.SharedCPUs = n.sharedCPUs()
		a.Log = log.taken()
		answers = append(answers, a)
	}
	if !s.Keep {
		return answers, nil, nil
	}
	return answers, n.leave(), nil
}

// --- what the managers log

// logged is what has been logged. Managers log from goroutines of their own, too.
type logged struct {
	mutex sync.Mutex
	bytes.Buffer
}

var log logged

func (l *logged) Write(some []byte) (int, error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	return l.Buffer.Write(some)
}

func (l *logged) Sync() error { return nil }

func (l *logged) taken() string {
	klog.Flush()
	l.mutex.Lock()
	defer l.mutex.Unlock()
	defer l.Reset()
	return l.String()
}

// startLogging starts what -v asks for; without it nothing is logged.
func startLogging() {
	flags := flag.NewFlagSet("managers", flag.ExitOnError)
	klog.InitFlags(flags)
	format := flags.String("logging-format", "text", "text or json")
	_ = flags.Parse(os.Args[1:]) // it exits
	wanted := flags.Lookup("v").Value.String()
	// klog writes an error to the files of lower severities as well, which are one here
	_ = errors.Join(flags.Set("logtostderr", "false"), flags.Set("one_output", "true"))
	if wanted == "0" {
		klog.SetOutput(io.Discard)
		klog.SetLogger(logr.Discard())
		return
	}
	klog.SetOutput(&log)
	if *format == "json" {
		level, _ := strconv.Atoi(wanted)
		logger, _ := jsonlogs.NewJSONLogger(logs.VerbosityLevel(level), &log, nil, nil)
		klog.SetLoggerWithOptions(logger, klog.ContextualLogger(true))
	}
	atHand = []any{klog.Background(), klog.NewContext(context.Background(), klog.Background())}
}

func main() {
	startLogging()
	options := map[string]bool{"CPUManagerPolicyAlphaOptions": true, "CPUManagerPolicyBetaOptions": true}
	if err := feature.DefaultMutableFeatureGate.SetFromMap(options); err != nil {
		panic(err)
	}
	lines, written := bufio.NewReaderSize(os.Stdin, 1<<20), json.NewEncoder(os.Stdout)
	for {
		line, err := lines.ReadBytes('\n')
		if len(line) > 0 {
			var s scenario
			whole := map[string]any{}
			if err := errors.Join(json.Unmarshal(line, &s), json.Unmarshal(line, &whole)); err != nil {
				panic(err)
			}
			answers, left, err := run(&s)
			if delete(whole, "kept"); left != nil {
				whole["kept"] = left
			}
			if err != nil {
				whole["configError"] = err.Error()
			} else {
				whole["expect"] = answers
			}
			if err := written.Encode(whole); err != nil {
				panic(err)
			}
		}
		if err != nil {
			return
		}
	}
}
