// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package orders is what a program may ask of the cluster that e2e/k8s/drive
// runs. That is a process, so that whoever asks needs none of the libraries that
// a cluster takes.
//
// The driver starts the cluster, writes a line of JSON, a [Reply] with its
// [Cluster], to stdout, and then takes one [Order] after the other from stdin, a
// line each, and answers each with a [Reply]. It ends, and everything that it
// made with it, at the end of stdin, at SIGTERM and at SIGINT.
package orders

import "encoding/json"

// Order is one request; exactly one field is set.
type Order struct {
	Chain *Chain `json:"chain,omitempty"`
	Chart *Chart `json:"chart,omitempty"`
	Pod   *Pod   `json:"pod,omitempty"`
	// Delete names a pod; the answer comes when it is gone.
	Delete string `json:"delete,omitempty"`
	// Status names a node with podweir's agent; the answer has Status.
	Status string `json:"status,omitempty"`
}

// Chain writes the conflist of a node's primary CNI again: ptp, and behind it
// these types of plugin, each with the capability "bandwidth".
type Chain struct {
	Node    string   `json:"node"`
	Plugins []string `json:"plugins"`
}

// Chart brings podweir's release to these values, for one node, and waits until
// the agent there is ready.
type Chart struct {
	Node string `json:"node"`
	// Set are arguments of Helm's --set.
	Set []string `json:"set"`
}

// Pod makes a pod in the namespace "default" and waits until it runs; the answer
// has Pod.
type Pod struct {
	Name        string            `json:"name"`
	Node        string            `json:"node"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Reply answers an order.
type Reply struct {
	Error   string   `json:"error,omitempty"`
	Cluster *Cluster `json:"cluster,omitempty"`
	Pod     *Running `json:"pod,omitempty"`
	// Status is the output of "podweir status -o json".
	Status json.RawMessage `json:"status,omitempty"`
}

// Cluster is one that runs.
type Cluster struct {
	Nodes []Node `json:"nodes"`
	// Software names what runs it, with versions.
	Software string `json:"software"`
}

// Node is one of its nodes.
type Node struct {
	Name string `json:"name"`
	// PID is that of its first process, and Netns the file of its network
	// namespace, on this machine.
	PID   int    `json:"pid"`
	Netns string `json:"netns"`
}

// Running is a pod that runs.
type Running struct {
	Address string `json:"address"`
	// Netns is the file of its network namespace, on this machine; its
	// interface is eth0.
	Netns string `json:"netns"`
}
