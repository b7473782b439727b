// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package critest is a container runtime for tests: it tells of sandboxes over a CRI
// socket what containerd tells.
package critest

import (
	"cmp"
	"context"
	"encoding/json"
	"net"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	runtime "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// uidLabel names a sandbox's pod.
const uidLabel = "io.kubernetes.pod.uid"

// Sandbox is a pod's sandbox with the interface eth0.
type Sandbox struct {
	ID, UID, NetNS string
	// Handler is the runtime that runs it, "" for the default one.
	Handler string
	// Namespace and Name are the pod's, IP is its address; they may be empty.
	Namespace, Name, IP string
	// Untold says that the runtime does not tell its network namespace, as cri-dockerd.
	Untold bool
	// Annotations come three times with a sandbox, as containerd has them.
	Annotations map[string]string
	// Created is when it was made, and NotReady says that it has ended.
	Created  int64
	NotReady bool
	// Answer is the error when it is asked about alone; with NotFound it ended since all were listed.
	Answer error
	// Info is what the runtime tells beyond the CRI in place of the namespace and annotations.
	Info string

	// host says that it has the node's network.
	host bool
}

// Runtime is one container runtime. The zero value has no sandbox.
type Runtime struct {
	runtime.UnimplementedRuntimeServiceServer

	// Release is containerd's, 2.1.3 if it is empty.
	Release string
	// Says is what it tells of itself beyond the CRI; nil is what containerd says of the CNI
	// configuration that it uses by default.
	Says map[string]string
	// Fail is its answer when it lists sandboxes or tells of itself.
	Fail error

	mu  sync.Mutex
	all []*Sandbox
}

// Serve listens on a socket until stop is called.
func (r *Runtime) Serve(socket string) (stop func(), err error) {
	l, err := (&net.ListenConfig{}).Listen(context.Background(), "unix", socket)
	if err != nil {
		return nil, err
	}
	g := grpc.NewServer()
	runtime.RegisterRuntimeServiceServer(g, r)
	go func() { _ = g.Serve(l) }() // it ends with Stop
	return g.Stop, nil
}

// Add adds a sandbox that is ready.
func (r *Runtime) Add(s Sandbox) error {
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
	s.host = s.NetNS == "" && s.Info == ""
	s.Info = cmp.Or(s.Info, string(info))
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, &s)
	return nil
}

// End stops a sandbox, which the runtime lists still.
func (r *Runtime) End(id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range r.all {
		s.NotReady = s.NotReady || s.ID == id
	}
}

// listed is the sandbox in a list.
func (s *Sandbox) listed() *runtime.PodSandbox {
	state := runtime.PodSandboxState_SANDBOX_READY
	if s.NotReady {
		state = runtime.PodSandboxState_SANDBOX_NOTREADY
	}
	return &runtime.PodSandbox{
		Id: s.ID, RuntimeHandler: s.Handler, CreatedAt: s.Created, State: state, Annotations: s.Annotations, Labels: map[string]string{uidLabel: s.UID},
		Metadata: &runtime.PodSandboxMetadata{Namespace: s.Namespace, Name: s.Name, Uid: s.UID},
	}
}

// ListPodSandbox implements runtime.RuntimeServiceServer.
func (r *Runtime) ListPodSandbox(_ context.Context, req *runtime.ListPodSandboxRequest) (*runtime.ListPodSandboxResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	res := &runtime.ListPodSandboxResponse{}
	f := req.GetFilter()
	for _, s := range r.all {
		uid, byUID := f.GetLabelSelector()[uidLabel]
		one := s.listed()
		if (f.GetId() == "" || f.GetId() == s.ID && status.Code(s.Answer) != codes.NotFound) && (!byUID || uid == s.UID) &&
			(f.GetState() == nil || f.GetState().GetState() == one.GetState()) {
			res.Items = append(res.Items, one)
		}
	}
	return res, r.Fail
}

// PodSandboxStatus implements runtime.RuntimeServiceServer.
func (r *Runtime) PodSandboxStatus(_ context.Context, req *runtime.PodSandboxStatusRequest) (*runtime.PodSandboxStatusResponse, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	at := slices.IndexFunc(r.all, func(s *Sandbox) bool { return s.ID == req.GetPodSandboxId() })
	if at < 0 {
		return nil, status.Error(codes.NotFound, "no such sandbox")
	}
	s := r.all[at]
	if s.Answer != nil {
		return nil, s.Answer
	}
	options := &runtime.NamespaceOption{}
	if s.host {
		options.Network = runtime.NamespaceMode_NODE
	}
	answer := &runtime.PodSandboxStatusResponse{Status: &runtime.PodSandboxStatus{
		Id: s.ID, Network: &runtime.PodSandboxNetworkStatus{Ip: s.IP}, Linux: &runtime.LinuxPodSandboxStatus{Namespaces: &runtime.Namespace{Options: options}},
	}}
	if !s.Untold && req.GetVerbose() {
		answer.Info = map[string]string{"info": s.Info}
	}
	return answer, nil
}

// Status implements runtime.RuntimeServiceServer.
func (r *Runtime) Status(_ context.Context, req *runtime.StatusRequest) (*runtime.StatusResponse, error) {
	says := r.Says
	if says == nil {
		says = map[string]string{"cniconfig": `{"PluginDirs":["/opt/cni/bin"],"PluginConfDir":"/etc/cni/net.d","PluginMaxConfNum":1}`}
	}
	if !req.GetVerbose() {
		says = nil
	}
	return &runtime.StatusResponse{Info: says}, r.Fail
}

// Version implements runtime.RuntimeServiceServer.
func (r *Runtime) Version(context.Context, *runtime.VersionRequest) (*runtime.VersionResponse, error) {
	return &runtime.VersionResponse{RuntimeName: "containerd", RuntimeVersion: cmp.Or(r.Release, "2.1.3")}, nil
}
