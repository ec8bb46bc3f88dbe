// Command pod-resources asks a kubelet over its PodResources socket, and prints the answer as the JSON of its message.
//
//	pod-resources SOCKET list
//	pod-resources SOCKET allocatable
//	pod-resources SOCKET get NAMESPACE NAME
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	podresources "k8s.io/kubelet/pkg/apis/podresources/v1"
)

const patience = 10 * time.Second

func main() {
	answer, err := ask(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "pod-resources:", err)
		os.Exit(1)
	}
	fmt.Println(protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Format(answer))
}

func ask(words []string) (proto.Message, error) {
	if len(words) < 2 {
		return nil, fmt.Errorf("usage: pod-resources SOCKET list | allocatable | get NAMESPACE NAME")
	}
	connection, err := grpc.NewClient("unix:"+words[0], grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return nil, err
	}
	defer connection.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	kubelet := podresources.NewPodResourcesListerClient(connection)
	switch question := words[1]; {
	case question == "list":
		return kubelet.List(ctx, &podresources.ListPodResourcesRequest{})
	case question == "allocatable":
		return kubelet.GetAllocatableResources(ctx, &podresources.AllocatableResourcesRequest{})
	case question == "get" && len(words) == 4:
		return kubelet.Get(ctx, &podresources.GetPodResourcesRequest{PodNamespace: words[2], PodName: words[3]})
	default:
		return nil, fmt.Errorf("no such question: %s", question)
	}
}
