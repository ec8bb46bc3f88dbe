// Command device-plugin is a device plugin whose devices are those of a file.
//
//	device-plugin -folder FOLDER -inventory FILE -log FILE
//
// FOLDER is where the kubelet serves and plugins listen. The inventory is an object such as
//
//	{"resource": "example.com/gpu", "devices": [{"id": "a", "numa": [0]}, {"id": "b", "healthy": false}],
//	 "preferred": true, "prestart": false}
//
// It is read again when it changes. With "preferred", devices are preferred in its order. The log gets an object
// {"call", "request", "answer"} a line.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	deviceplugin "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	patience = 10 * time.Second
	// how often the inventory and the kubelet's socket are looked at
	interval = 500 * time.Millisecond
)

type inventory struct {
	Resource string
	Devices  []struct {
		ID      string
		NUMA    []int64
		Healthy *bool // nil: it is
	}
	Preferred, PreStart bool
}

func (i *inventory) options() *deviceplugin.DevicePluginOptions {
	return &deviceplugin.DevicePluginOptions{PreStartRequired: i.PreStart, GetPreferredAllocationAvailable: i.Preferred}
}

func (i *inventory) listed() *deviceplugin.ListAndWatchResponse {
	listed := &deviceplugin.ListAndWatchResponse{}
	for _, one := range i.Devices {
		device := &deviceplugin.Device{ID: one.ID, Health: deviceplugin.Healthy}
		if one.Healthy != nil && !*one.Healthy {
			device.Health = deviceplugin.Unhealthy
		}
		for _, node := range one.NUMA {
			if device.Topology == nil { // a device without NUMA nodes has none
				device.Topology = &deviceplugin.TopologyInfo{}
			}
			device.Topology.Nodes = append(device.Topology.Nodes, &deviceplugin.NUMANode{ID: node})
		}
		listed.Devices = append(listed.Devices, device)
	}
	return listed
}

// chosen returns so many ids: those that must be among them, then those that come first in the inventory.
func (i *inventory) chosen(of *deviceplugin.ContainerPreferredAllocationRequest) []string {
	ids := slices.Clone(of.MustIncludeDeviceIDs)
	for _, one := range i.Devices {
		if len(ids) < int(of.AllocationSize) && slices.Contains(of.AvailableDeviceIDs, one.ID) && !slices.Contains(ids, one.ID) {
			ids = append(ids, one.ID)
		}
	}
	return ids
}

type plugin struct {
	deviceplugin.UnimplementedDevicePluginServer
	folder, path string
	calls        *log.Logger
	inventory    atomic.Pointer[inventory]
}

// read returns whether the inventory is another one than that of the text before, and its text.
func (p *plugin) read(before []byte) (bool, []byte) {
	text, err := os.ReadFile(p.path)
	if err != nil || bytes.Equal(text, before) {
		return false, before
	}
	found := &inventory{}
	if json.Unmarshal(text, found) != nil {
		return false, before // half of it is written
	}
	p.inventory.Store(found)
	return true, text
}

func (p *plugin) note(call string, request, answer proto.Message) {
	format := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}
	line, err := json.Marshal(map[string]any{
		"call":    call,
		"request": json.RawMessage(format.Format(request)),
		"answer":  json.RawMessage(format.Format(answer)),
	})
	if err != nil {
		log.Fatal(err)
	}
	p.calls.Print(string(line))
}

func (p *plugin) GetDevicePluginOptions(_ context.Context, asked *deviceplugin.Empty) (*deviceplugin.DevicePluginOptions, error) {
	answer := p.inventory.Load().options()
	p.note("GetDevicePluginOptions", asked, answer)
	return answer, nil
}

func (p *plugin) ListAndWatch(asked *deviceplugin.Empty, stream deviceplugin.DevicePlugin_ListAndWatchServer) error {
	var text []byte
	for changed := false; ; {
		if changed, text = p.read(text); changed {
			listed := p.inventory.Load().listed()
			p.note("ListAndWatch", asked, listed)
			if err := stream.Send(listed); err != nil {
				return err
			}
		}
		select {
		case <-stream.Context().Done():
			return nil
		case <-time.After(interval):
		}
	}
}

func (p *plugin) GetPreferredAllocation(
	_ context.Context, asked *deviceplugin.PreferredAllocationRequest,
) (*deviceplugin.PreferredAllocationResponse, error) {
	answer := &deviceplugin.PreferredAllocationResponse{}
	for _, one := range asked.ContainerRequests {
		preferred := &deviceplugin.ContainerPreferredAllocationResponse{DeviceIDs: p.inventory.Load().chosen(one)}
		answer.ContainerResponses = append(answer.ContainerResponses, preferred)
	}
	p.note("GetPreferredAllocation", asked, answer)
	return answer, nil
}

// Allocate gives the ids in an environment variable such as DEVICES_EXAMPLE_COM_GPU.
func (p *plugin) Allocate(_ context.Context, asked *deviceplugin.AllocateRequest) (*deviceplugin.AllocateResponse, error) {
	resource := p.inventory.Load().Resource
	variable := "DEVICES_" + strings.ToUpper(strings.NewReplacer("/", "_", ".", "_", "-", "_").Replace(resource))
	answer := &deviceplugin.AllocateResponse{}
	for _, one := range asked.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &deviceplugin.ContainerAllocateResponse{
			Envs: map[string]string{variable: strings.Join(one.DevicesIds, ",")},
		})
	}
	p.note("Allocate", asked, answer)
	return answer, nil
}

func (p *plugin) PreStartContainer(
	_ context.Context, asked *deviceplugin.PreStartContainerRequest,
) (*deviceplugin.PreStartContainerResponse, error) {
	answer := &deviceplugin.PreStartContainerResponse{}
	p.note("PreStartContainer", asked, answer)
	return answer, nil
}

// serve listens on a socket in the folder, and registers it at the kubelet.
func (p *plugin) serve() (*grpc.Server, error) {
	found := p.inventory.Load()
	request := &deviceplugin.RegisterRequest{
		Version:      deviceplugin.Version,
		Endpoint:     strings.ReplaceAll(found.Resource, "/", "_") + ".sock",
		ResourceName: found.Resource,
		Options:      found.options(),
	}
	socket := filepath.Join(p.folder, request.Endpoint)
	os.Remove(socket)
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return nil, err
	}
	server := grpc.NewServer()
	deviceplugin.RegisterDevicePluginServer(server, p)
	go server.Serve(listener)

	connection, err := grpc.NewClient("unix:"+filepath.Join(p.folder, "kubelet.sock"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return server, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := deviceplugin.NewRegistrationClient(connection).Register(ctx, request)
	if err == nil {
		p.note("Register", request, answer)
	}
	return server, err
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("device-plugin: ")
	p := &plugin{}
	flag.StringVar(&p.folder, "folder", "", "where the kubelet serves and plugins listen")
	flag.StringVar(&p.path, "inventory", "", "the file of the devices")
	calls := flag.String("log", "", "the file that gets the calls")
	flag.Parse()
	file, err := os.OpenFile(*calls, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o644)
	if err != nil {
		log.Fatal(err)
	}
	p.calls = log.New(file, "", 0)
	if found, _ := p.read(nil); !found {
		log.Fatalf("no inventory in %q", p.path)
	}

	// A kubelet that starts removes all sockets of the folder and makes its own anew.
	var server *grpc.Server
	var registered os.FileInfo
	for ; ; time.Sleep(interval) {
		found, err := os.Stat(filepath.Join(p.folder, "kubelet.sock"))
		if err != nil || registered != nil && os.SameFile(found, registered) && found.ModTime().Equal(registered.ModTime()) {
			continue
		}
		if server != nil {
			server.Stop()
		}
		if server, err = p.serve(); err != nil {
			log.Print(err)
			continue
		}
		registered = found
	}
}
