// Kubelet: times admissions by the real kubelet's Topology Manager and its hint providers on the cases of our benchmarks.
// Merges alone are timed by tests/rig/cmd/merges, of any release.
//
// Reads one case a line from standard input and writes one answer a line to standard output, both JSON. What the
// cases are is decided in benches/; this program only runs them, as they come, on one goroutine.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
)

// silent: the managers log each step, which would be timed with them.
var silent = logr.Discard()

// timing says how often something ran and how long it took, in microseconds.
type timing struct {
	Calls  int     `json:"calls"`
	Median float64 `json:"median"`
	P99    float64 `json:"p99"`
}

// timingOf summarises what single calls took.
func timingOf(calls []time.Duration) timing {
	sort.Slice(calls, func(i, j int) bool { return calls[i] < calls[j] })
	micros := func(index int) float64 { return float64(calls[index].Nanoseconds()) / 1e3 }
	return timing{len(calls), micros(len(calls) / 2), micros(len(calls) * 99 / 100)}
}

// answer runs one case.
func answer(line []byte) (any, error) {
	var header struct {
		Kind string `json:"kind"`
	}
	if err := json.Unmarshal(line, &header); err != nil {
		return nil, err
	}
	if header.Kind == "admission" {
		return timeAdmission(line)
	}
	return nil, fmt.Errorf("expected kind admission, got %q", header.Kind)
}

func main() {
	klog.SetOutput(io.Discard)
	klog.LogToStderr(false)
	klog.SetLogger(silent)
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<26)
	output := json.NewEncoder(os.Stdout)
	for lines.Scan() {
		got, err := answer(lines.Bytes())
		if err != nil {
			fmt.Fprintln(os.Stderr, "kubelet:", err)
			os.Exit(1)
		}
		if err := output.Encode(got); err != nil {
			os.Exit(1)
		}
	}
}
