// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/doctor"
	"github.com/podweir/podweir/plugin/agent/cri"
	"github.com/podweir/podweir/plugin/examine"
	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/status"
)

// readsRuntime adds the flags of a command that asks the container runtime for pods.
func (o *options) readsRuntime(cmd *cobra.Command) {
	cmd.Flags().String("root", "/", "root directory of the node")
	cmd.Flags().String("cri-socket", "", "socket of the container runtime; the kubelet's, or looked for below the root, if empty")
}

// runtimeTimeout bounds the questions to the runtime: what podweir knows by itself is shown
// without it.
const runtimeTimeout = 2 * time.Second

// runtimePods are the pods that the container runtime tells of, none if it does not answer.
func runtimePods(ctx context.Context, o *options) []cri.Pod {
	ctx, cancel := context.WithTimeout(ctx, runtimeTimeout)
	defer cancel()
	runtime := &cri.Runtime{Root: o.v.GetString("root"), Socket: o.v.GetString("cri-socket")}
	defer func() { _ = runtime.Close() }()
	client, err := runtime.Open()
	if err != nil {
		return nil
	}
	pods, err := client.Pods(ctx)
	if err != nil {
		return nil
	}
	return pods
}

// podsByAddress are the names of the node's pods by their addresses, as the runtime tells
// them. Pods that start later are not among them. Pods with the node's network have its address.
func podsByAddress(ctx context.Context, o *options) map[netip.Addr]string {
	all := make(map[netip.Addr]string)
	pods := runtimePods(ctx, o)
	for i := range pods {
		for _, a := range pods[i].Addresses {
			if pods[i].NetNSPath != "" {
				all[a] = pods[i].Name
			}
		}
	}
	return all
}

// leftToOthers returns a function that says of a pod's annotations whether the node leaves
// their limits to others. It reads the node's files once.
func leftToOthers(ctx context.Context, root string) func(annotations map[string]string) bool {
	entry := sync.OnceValue(func() []byte {
		files := detect.HostRoot(root)
		whole, err := examine.WholeEntry(doctor.OwnEntry(files, detect.Read(ctx, files, detect.Options{})))
		if err != nil { // podweir is not in the chain
			return nil
		}
		return whole
	})
	return func(annotations map[string]string) bool {
		conf, err := netconf.ParseEntry(entry(), netconf.KeepAnnotations(annotations), nil)
		return err == nil && !conf.Shaping.Limited() && len(conf.Shaping.Deferred) > 0
	}
}

// addOthers adds the devices that podweir has no limit on, with what the runtime knows of
// their pods, and where the node loses packets.
func addOthers(o *options, rep *status.Report, pods []cri.Pod, left func(map[string]string) bool) error {
	var paths []string
	var known []status.RuntimePod
	for i := range pods {
		p := &pods[i]
		paths = append(paths, p.NetNSPath)
		known = append(known, status.RuntimePod{Pod: p.Name, NetNSPath: p.NetNSPath, Annotations: p.Annotations, Created: p.Created})
	}
	others, err := o.paths().Others(paths)
	if err != nil {
		return err
	}
	rep.AddOthers(others, known, left, time.Now())
	rep.Losses, err = o.paths().Losses()
	return err
}
