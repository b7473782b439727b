// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"sync"

	"google.golang.org/grpc"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// sandboxUIDLabel names a sandbox's pod.
const sandboxUIDLabel = "io.kubernetes.pod.uid"

// criSandbox is a pod's sandbox with the interface eth0.
type criSandbox struct {
	ID, UID, NetNS string
	// Handler is the runtime that runs it, "" for the default one.
	Handler string
	// Namespace and Name are the pod's, IP is its address; they may be empty.
	Namespace, Name, IP string
	// Annotations come three times with a sandbox, as containerd has them.
	Annotations map[string]string
}

// criRuntime is one container runtime: it tells of sandboxes over a CRI socket what
// containerd tells. The zero value has no sandbox.
type criRuntime struct {
	cri.UnimplementedRuntimeServiceServer

	// Release is containerd's, 2.1.3 if it is empty.
	Release string

	mu   sync.Mutex
	all  []*cri.PodSandbox
	info map[string]string
	ip   map[string]string
}

// Serve listens on a socket until stop is called.
func (r *criRuntime) Serve(socket string) (stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return nil, err
	}
	g := grpc.NewServer()
	cri.RegisterRuntimeServiceServer(g, r)
	go func() { _ = g.Serve(l) }() // it ends with Stop
	return g.Stop, nil
}

// Add adds a sandbox that is ready.
func (r *criRuntime) Add(s criSandbox) error {
	info, err := json.Marshal(map[string]any{
		"config": map[string]any{"annotations": s.Annotations},
		"runtimeSpec": map[string]any{
			"annotations": s.Annotations,
			"linux":       map[string]any{"namespaces": []any{map[string]any{"type": "network", "path": s.NetNS}}},
		},
		"cniResult": map[string]any{"Interfaces": map[string]any{"eth0": map[string]any{"Sandbox": s.NetNS}}},
	})
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, &cri.PodSandbox{
		Id: s.ID, RuntimeHandler: s.Handler, State: cri.PodSandboxState_SANDBOX_READY, Annotations: s.Annotations, Labels: map[string]string{sandboxUIDLabel: s.UID},
		Metadata: &cri.PodSandboxMetadata{Namespace: s.Namespace, Name: s.Name, Uid: s.UID},
	})
	if r.info == nil {
		r.info = make(map[string]string)
	}
	r.info[s.ID] = string(info)
	if r.ip == nil {
		r.ip = make(map[string]string)
	}
	r.ip[s.ID] = s.IP
	return nil
}

// ListPodSandbox implements cri.RuntimeServiceServer.
func (r *criRuntime) ListPodSandbox(_ context.Context, req *cri.ListPodSandboxRequest) (*cri.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &cri.ListPodSandboxResponse{}
	f := req.GetFilter()
	for _, s := range r.all {
		uid, byUID := f.GetLabelSelector()[sandboxUIDLabel]
		if (f.GetId() == "" || f.GetId() == s.GetId()) && (!byUID || uid == s.GetLabels()[sandboxUIDLabel]) {
			res.Items = append(res.Items, s)
		}
	}
	return res, nil
}

// PodSandboxStatus implements cri.RuntimeServiceServer.
func (r *criRuntime) PodSandboxStatus(_ context.Context, req *cri.PodSandboxStatusRequest) (*cri.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	id := req.GetPodSandboxId()
	return &cri.PodSandboxStatusResponse{
		Info:   map[string]string{"info": r.info[id]},
		Status: &cri.PodSandboxStatus{Id: id, Network: &cri.PodSandboxNetworkStatus{Ip: r.ip[id]}},
	}, nil
}

// Status implements cri.RuntimeServiceServer. It has what containerd says of the CNI
// configuration that it uses.
func (*criRuntime) Status(context.Context, *cri.StatusRequest) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Info: map[string]string{
		"cniconfig": `{"PluginDirs":["/opt/cni/bin"],"PluginConfDir":"/etc/cni/net.d","PluginMaxConfNum":1}`,
	}}, nil
}

// Version implements cri.RuntimeServiceServer.
func (r *criRuntime) Version(context.Context, *cri.VersionRequest) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{RuntimeName: "containerd", RuntimeVersion: cmp.Or(r.Release, "2.1.3")}, nil
}
