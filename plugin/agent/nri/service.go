// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package nri

import (
	"context"
	"path"
	"sync"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
)

// service is what the runtime calls on one connection.
type service struct {
	// It has no methods but those below, see [answer].
	api.PluginService

	plugin *Plugin
	// configured and synced are closed when that was done for the first time.
	configured, synced         chan struct{}
	onceConfigured, onceSynced sync.Once

	mu sync.Mutex
	// collected are the pods of a list that comes in several messages. Of those
	// nothing else is held: their annotations may be a hundred times as much.
	collected []*Pod
}

// hooks are the events that we ask for: a pod's network is set up and its containers do not run
// yet; they are gone; the sandbox is removed, also if it was never stopped.
var hooks = map[api.Event]string{
	api.Event_RUN_POD_SANDBOX: "RunPodSandbox", api.Event_STOP_POD_SANDBOX: "StopPodSandbox", api.Event_REMOVE_POD_SANDBOX: "RemovePodSandbox",
}

// Configure is called once for each connection.
func (s *service) Configure(_ context.Context, req *api.ConfigureRequest) (*api.ConfigureResponse, error) {
	s.plugin.mu.Lock()
	s.plugin.runtime = req.GetRuntimeName() + " " + req.GetRuntimeVersion()
	s.plugin.mu.Unlock()
	s.onceConfigured.Do(func() { close(s.configured) })
	var events api.EventMask
	for e := range hooks {
		events.Set(e)
	}
	return &api.ConfigureResponse{Events: int32(events)}, nil
}

// Synchronize tells what runs when the connection is made.
func (s *service) Synchronize(_ context.Context, req *api.SynchronizeRequest) (*api.SynchronizeResponse, error) {
	s.mu.Lock()
	for _, pod := range req.GetPods() {
		s.collected = append(s.collected, podOf(pod))
	}
	all := s.collected
	if !req.GetMore() {
		s.collected = nil
	}
	s.mu.Unlock()
	if !req.GetMore() {
		select {
		case <-s.plugin.syncs: // of an earlier connection
		default:
		}
		s.plugin.syncs <- all
		s.onceSynced.Do(func() { close(s.synced) })
	}
	return &api.SynchronizeResponse{More: req.GetMore()}, nil
}

// RunPodSandbox is how newer runtimes call the hook; older ones use StateChange.
func (s *service) RunPodSandbox(ctx context.Context, req *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	return &api.RunPodSandboxResponse{}, s.plugin.hook(ctx, "RunPodSandbox", req.GetPod())
}

// StopPodSandbox implements api.PluginService.
func (s *service) StopPodSandbox(ctx context.Context, req *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	return &api.StopPodSandboxResponse{}, s.plugin.hook(ctx, "StopPodSandbox", req.GetPod())
}

// RemovePodSandbox implements api.PluginService.
func (s *service) RemovePodSandbox(ctx context.Context, req *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	return &api.RemovePodSandboxResponse{}, s.plugin.hook(ctx, "RemovePodSandbox", req.GetPod())
}

// StateChange is how older runtimes call every hook of a pod.
func (s *service) StateChange(ctx context.Context, e *api.StateChangeEvent) (*api.Empty, error) {
	name, ours := hooks[e.GetEvent()]
	if !ours {
		return &api.Empty{}, nil
	}
	return &api.Empty{}, s.plugin.hook(ctx, name, e.GetPod())
}

// answer calls the service for what podweir subscribes to, and answers all else with nothing: a runtime that makes such
// a call must neither end the agent nor fail a container.
func answer(ctx context.Context, unmarshal ttrpc.Unmarshaler, info *ttrpc.UnaryServerInfo, call ttrpc.Method) (any, error) {
	switch path.Base(info.FullMethod) {
	case "Configure", "Synchronize", "RunPodSandbox", "StopPodSandbox", "RemovePodSandbox", "StateChange":
		return call(ctx, unmarshal)
	default:
		return &api.Empty{}, nil
	}
}
