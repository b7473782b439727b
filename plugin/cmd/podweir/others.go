// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"net/netip"

	"github.com/spf13/cobra"
)

// readsRuntime adds the flags of a command that asks the container runtime for pods.
func (o *options) readsRuntime(cmd *cobra.Command) {
	cmd.Flags().String("root", "/", "root directory of the node")
	cmd.Flags().String("cri-socket", "", "socket of the container runtime; the kubelet's, or looked for below the root, if empty")
}

// podsByAddress are the names of the node's pods by their addresses, as the runtime tells
// them. Pods that start later are not among them. Pods with the node's network have its address.
func podsByAddress(ctx context.Context, o *options) map[netip.Addr]string {
	all := make(map[netip.Addr]string)
	pods, _ := o.examined().Pods(ctx) // a runtime that does not answer leaves the addresses
	for i := range pods {
		for _, a := range pods[i].Addresses {
			if pods[i].NetNSPath != "" {
				all[a] = pods[i].Name
			}
		}
	}
	return all
}
