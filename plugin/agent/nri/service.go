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

	hooks *hooks
	// configured and synced are closed when that was done for the first time.
	configured, synced         chan struct{}
	onceConfigured, onceSynced sync.Once

	mu sync.Mutex
	// collected are the pods of a list that comes in several messages. Of those
	// nothing else is held: their annotations may be a hundred times as much.
	collected []*Pod
}

// events are those that we ask for, as the bits of a mask.
var events = func() (mask api.EventMask) {
	for _, e := range []api.Event{api.Event_RUN_POD_SANDBOX, api.Event_STOP_POD_SANDBOX, api.Event_REMOVE_POD_SANDBOX} {
		mask.Set(e)
	}
	return mask
}()

// Configure is called once for each connection.
func (s *service) Configure(_ context.Context, req *api.ConfigureRequest) (*api.ConfigureResponse, error) {
	s.hooks.mu.Lock()
	s.hooks.runtime = req.GetRuntimeName() + " " + req.GetRuntimeVersion()
	s.hooks.mu.Unlock()
	s.onceConfigured.Do(func() { close(s.configured) })
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
		s.hooks.synchronize(all)
		s.onceSynced.Do(func() { close(s.synced) })
	}
	return &api.SynchronizeResponse{More: req.GetMore()}, nil
}

// RunPodSandbox is how newer runtimes call the hook; older ones use StateChange.
func (s *service) RunPodSandbox(ctx context.Context, req *api.RunPodSandboxRequest) (*api.RunPodSandboxResponse, error) {
	return &api.RunPodSandboxResponse{}, s.hooks.runPodSandbox(ctx, req.GetPod())
}

// StopPodSandbox implements api.PluginService.
func (s *service) StopPodSandbox(ctx context.Context, req *api.StopPodSandboxRequest) (*api.StopPodSandboxResponse, error) {
	return &api.StopPodSandboxResponse{}, s.hooks.stopPodSandbox(ctx, req.GetPod())
}

// RemovePodSandbox implements api.PluginService.
func (s *service) RemovePodSandbox(ctx context.Context, req *api.RemovePodSandboxRequest) (*api.RemovePodSandboxResponse, error) {
	return &api.RemovePodSandboxResponse{}, s.hooks.removePodSandbox(ctx, req.GetPod())
}

// StateChange is how older runtimes call every hook of a pod.
func (s *service) StateChange(ctx context.Context, e *api.StateChangeEvent) (*api.Empty, error) {
	var err error
	switch e.GetEvent() {
	case api.Event_RUN_POD_SANDBOX:
		err = s.hooks.runPodSandbox(ctx, e.GetPod())
	case api.Event_STOP_POD_SANDBOX:
		err = s.hooks.stopPodSandbox(ctx, e.GetPod())
	case api.Event_REMOVE_POD_SANDBOX:
		err = s.hooks.removePodSandbox(ctx, e.GetPod())
	default:
	}
	return &api.Empty{}, err
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
