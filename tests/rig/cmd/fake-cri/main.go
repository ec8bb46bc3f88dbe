// Command fake-cri is a container runtime that runs nothing: it says of each container that it runs.
//
//	fake-cri SOCKET
//
// It serves the Container Runtime Interface on a unix socket, and keeps what it is told in memory. A container whose
// command is "true" has ended as soon as it was started, as an init container should; every other one runs until it is
// stopped. Every image is there.
package main

import (
	"context"
	"fmt"
	"log"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

type container struct {
	*cri.ContainerStatus
	pod  string
	ends bool // as soon as it is started
}

func (c *container) stop() {
	if c.State != cri.ContainerState_CONTAINER_EXITED {
		c.State, c.FinishedAt = cri.ContainerState_CONTAINER_EXITED, time.Now().UnixNano()
	}
}

type runtime struct {
	cri.UnimplementedRuntimeServiceServer
	cri.UnimplementedImageServiceServer

	mutex      sync.Mutex
	made       int
	pods       map[string]*cri.PodSandboxStatus
	containers map[string]*container
}

// next returns an id that no pod and no container has.
func (r *runtime) next() string {
	r.made++
	return fmt.Sprintf("%08d", r.made)
}

// change calls a function with a container, if it is there, while nobody else looks.
func (r *runtime) change(id string, what func(*container)) error {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	found, ok := r.containers[id]
	if !ok {
		return status.Errorf(codes.NotFound, "no container %q", id)
	}
	what(found)
	return nil
}

// of returns the containers of a pod.
func (r *runtime) of(pod string) []*container {
	var found []*container
	for _, one := range r.containers {
		if one.pod == pod {
			found = append(found, one)
		}
	}
	return found
}

func (r *runtime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: "fake-cri", RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

func (r *runtime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	ready := []*cri.RuntimeCondition{{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true}}
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: ready}}, nil
}

func (r *runtime) RuntimeConfig(context.Context, *cri.RuntimeConfigRequest) (*cri.RuntimeConfigResponse, error) {
	return &cri.RuntimeConfigResponse{Linux: &cri.LinuxRuntimeConfiguration{CgroupDriver: cri.CgroupDriver_CGROUPFS}}, nil
}

// Pods.

func (r *runtime) RunPodSandbox(_ context.Context, asked *cri.RunPodSandboxRequest) (*cri.RunPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	id := r.next()
	r.pods[id] = &cri.PodSandboxStatus{
		Id:          id,
		Metadata:    asked.Config.Metadata,
		State:       cri.PodSandboxState_SANDBOX_READY,
		CreatedAt:   time.Now().UnixNano(),
		Network:     &cri.PodSandboxNetworkStatus{Ip: "127.0.0.1"},
		Linux:       &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: &cri.NamespaceOption{}}},
		Labels:      asked.Config.Labels,
		Annotations: asked.Config.Annotations,
	}
	return &cri.RunPodSandboxResponse{PodSandboxId: id}, nil
}

func (r *runtime) StopPodSandbox(_ context.Context, asked *cri.StopPodSandboxRequest) (*cri.StopPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if pod, ok := r.pods[asked.PodSandboxId]; ok {
		pod.State = cri.PodSandboxState_SANDBOX_NOTREADY
	}
	for _, one := range r.of(asked.PodSandboxId) {
		one.stop()
	}
	return &cri.StopPodSandboxResponse{}, nil
}

func (r *runtime) RemovePodSandbox(_ context.Context, asked *cri.RemovePodSandboxRequest) (*cri.RemovePodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.pods, asked.PodSandboxId)
	for _, one := range r.of(asked.PodSandboxId) {
		delete(r.containers, one.Id)
	}
	return &cri.RemovePodSandboxResponse{}, nil
}

func (r *runtime) PodSandboxStatus(_ context.Context, asked *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	pod, ok := r.pods[asked.PodSandboxId]
	if !ok {
		return nil, status.Errorf(codes.NotFound, "no pod sandbox %q", asked.PodSandboxId)
	}
	return &cri.PodSandboxStatusResponse{Status: proto.CloneOf(pod)}, nil
}

func (r *runtime) ListPodSandbox(_ context.Context, asked *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	answer, filter := &cri.ListPodSandboxResponse{}, asked.GetFilter()
	for id, pod := range r.pods {
		if is(filter.GetId(), id) && (filter.GetState() == nil || filter.State.State == pod.State) && has(pod.Labels, filter.GetLabelSelector()) {
			answer.Items = append(answer.Items, &cri.PodSandbox{
				Id: id, Metadata: pod.Metadata, State: pod.State, CreatedAt: pod.CreatedAt, Labels: pod.Labels, Annotations: pod.Annotations,
			})
		}
	}
	return answer, nil
}

// UpdatePodSandboxResources is called when the resources of a pod as a whole change.
func (r *runtime) UpdatePodSandboxResources(
	context.Context, *cri.UpdatePodSandboxResourcesRequest,
) (*cri.UpdatePodSandboxResourcesResponse, error) {
	return &cri.UpdatePodSandboxResourcesResponse{}, nil
}

// Containers.

func (r *runtime) CreateContainer(_ context.Context, asked *cri.CreateContainerRequest) (*cri.CreateContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	id, config := r.next(), asked.Config
	resources := proto.CloneOf(config.GetLinux().GetResources())
	if resources == nil {
		resources = &cri.LinuxContainerResources{}
	}
	r.containers[id] = &container{
		pod:  asked.PodSandboxId,
		ends: slices.Equal(config.Command, []string{"true"}),
		ContainerStatus: &cri.ContainerStatus{
			Id:          id,
			Metadata:    config.Metadata,
			State:       cri.ContainerState_CONTAINER_CREATED,
			CreatedAt:   time.Now().UnixNano(),
			Image:       config.Image,
			ImageRef:    config.Image.Image,
			ImageId:     config.Image.Image,
			Labels:      config.Labels,
			Annotations: config.Annotations,
			Mounts:      config.Mounts,
			// a kubelet removes all files whose names begin so when the container goes: with none, those of its folder
			LogPath:   "/nonexistent/" + id,
			Resources: &cri.ContainerResources{Linux: resources},
		},
	}
	return &cri.CreateContainerResponse{ContainerId: id}, nil
}

func (r *runtime) StartContainer(_ context.Context, asked *cri.StartContainerRequest) (*cri.StartContainerResponse, error) {
	return &cri.StartContainerResponse{}, r.change(asked.ContainerId, func(one *container) {
		one.State, one.StartedAt = cri.ContainerState_CONTAINER_RUNNING, time.Now().UnixNano()
		if one.ends {
			one.stop()
		}
	})
}

func (r *runtime) StopContainer(_ context.Context, asked *cri.StopContainerRequest) (*cri.StopContainerResponse, error) {
	return &cri.StopContainerResponse{}, r.change(asked.ContainerId, (*container).stop)
}

func (r *runtime) RemoveContainer(_ context.Context, asked *cri.RemoveContainerRequest) (*cri.RemoveContainerResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	delete(r.containers, asked.ContainerId)
	return &cri.RemoveContainerResponse{}, nil
}

func (r *runtime) ListContainers(_ context.Context, asked *cri.ListContainersRequest) (*cri.ListContainersResponse, error) {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	answer, filter := &cri.ListContainersResponse{}, asked.GetFilter()
	for id, one := range r.containers {
		if is(filter.GetId(), id) && is(filter.GetPodSandboxId(), one.pod) &&
			(filter.GetState() == nil || filter.State.State == one.State) && has(one.Labels, filter.GetLabelSelector()) {
			answer.Containers = append(answer.Containers, &cri.Container{
				Id: id, PodSandboxId: one.pod, Metadata: one.Metadata, Image: one.Image, ImageRef: one.ImageRef, ImageId: one.ImageId,
				State: one.State, CreatedAt: one.CreatedAt, Labels: one.Labels, Annotations: one.Annotations,
			})
		}
	}
	return answer, nil
}

func (r *runtime) ContainerStatus(_ context.Context, asked *cri.ContainerStatusRequest) (*cri.ContainerStatusResponse, error) {
	answer := &cri.ContainerStatusResponse{}
	err := r.change(asked.ContainerId, func(one *container) { answer.Status = proto.CloneOf(one.ContainerStatus) })
	return answer, err
}

// UpdateContainerResources is called with what is to change only.
func (r *runtime) UpdateContainerResources(
	_ context.Context, asked *cri.UpdateContainerResourcesRequest,
) (*cri.UpdateContainerResourcesResponse, error) {
	return &cri.UpdateContainerResourcesResponse{}, r.change(asked.ContainerId, func(one *container) {
		if asked.Linux != nil {
			proto.Merge(one.Resources.Linux, asked.Linux)
		}
	})
}

func (r *runtime) ListContainerStats(context.Context, *cri.ListContainerStatsRequest) (*cri.ListContainerStatsResponse, error) {
	return &cri.ListContainerStatsResponse{}, nil
}

func (r *runtime) ListPodSandboxStats(context.Context, *cri.ListPodSandboxStatsRequest) (*cri.ListPodSandboxStatsResponse, error) {
	return &cri.ListPodSandboxStatsResponse{}, nil
}

func is(wanted, found string) bool { return wanted == "" || wanted == found }

func has(labels, wanted map[string]string) bool {
	for key, value := range wanted {
		if labels[key] != value {
			return false
		}
	}
	return true
}

// Images.

func (r *runtime) ImageStatus(_ context.Context, asked *cri.ImageStatusRequest) (*cri.ImageStatusResponse, error) {
	name := asked.Image.Image
	return &cri.ImageStatusResponse{Image: &cri.Image{Id: name, RepoTags: []string{name}, Size: 1, Spec: asked.Image}}, nil
}

func (r *runtime) PullImage(_ context.Context, asked *cri.PullImageRequest) (*cri.PullImageResponse, error) {
	return &cri.PullImageResponse{ImageRef: asked.Image.Image}, nil
}

func (r *runtime) ListImages(context.Context, *cri.ListImagesRequest) (*cri.ListImagesResponse, error) {
	return &cri.ListImagesResponse{}, nil
}

func (r *runtime) ImageFsInfo(context.Context, *cri.ImageFsInfoRequest) (*cri.ImageFsInfoResponse, error) {
	usage := []*cri.FilesystemUsage{{
		Timestamp:  time.Now().UnixNano(),
		FsId:       &cri.FilesystemIdentifier{Mountpoint: "/"},
		UsedBytes:  &cri.UInt64Value{Value: 1},
		InodesUsed: &cri.UInt64Value{Value: 1},
	}}
	return &cri.ImageFsInfoResponse{ImageFilesystems: usage, ContainerFilesystems: usage}, nil
}

func main() {
	log.SetFlags(0)
	log.SetPrefix("fake-cri: ")
	if len(os.Args) != 2 {
		log.Fatal("usage: fake-cri SOCKET")
	}
	listener, err := net.Listen("unix", os.Args[1])
	if err != nil {
		log.Fatal(err)
	}
	r := &runtime{pods: map[string]*cri.PodSandboxStatus{}, containers: map[string]*container{}}
	server := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(server, r)
	cri.RegisterImageServiceServer(server, r)
	log.Fatal(server.Serve(listener))
}
