// Command peer is kube-scheduler with the plugin NodeResourceTopologyMatch of scheduler-plugins.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	_ "sigs.k8s.io/scheduler-plugins/apis/config/scheme" // knows the plugin's arguments
	"sigs.k8s.io/scheduler-plugins/pkg/noderesourcetopology"
)

func main() {
	plugin := app.WithPlugin(noderesourcetopology.Name, noderesourcetopology.New)
	os.Exit(cli.Run(app.NewSchedulerCommand(plugin)))
}
