// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package nri

import (
	"context"
	"fmt"
	"time"

	"github.com/containerd/nri/pkg/api"

	"github.com/podweir/podweir/plugin/netconf"
)

// hooks are what the runtime calls.
type hooks struct{ *Plugin }

// synchronize takes what runs when the connection is made.
func (h *hooks) synchronize(all []*Pod) {
	select {
	case <-h.syncs: // of an earlier connection
	default:
	}
	h.syncs <- all
}

// runPodSandbox is called when the pod's network is set up, before its containers
// start.
func (h *hooks) runPodSandbox(ctx context.Context, s *api.PodSandbox) error {
	return h.hook(ctx, "RunPodSandbox", s, func(ctx context.Context, pod *Pod) (bool, error) {
		return h.config.Shaper.Shape(ctx, pod)
	})
}

// stopPodSandbox is called when the pod's containers are gone.
func (h *hooks) stopPodSandbox(ctx context.Context, s *api.PodSandbox) error {
	return h.hook(ctx, "StopPodSandbox", s, h.forget)
}

// removePodSandbox is called later, also for a sandbox that was never stopped.
func (h *hooks) removePodSandbox(ctx context.Context, s *api.PodSandbox) error {
	return h.hook(ctx, "RemovePodSandbox", s, h.forget)
}

func (h *hooks) forget(ctx context.Context, pod *Pod) (bool, error) {
	return false, h.config.Shaper.Forget(ctx, pod)
}

// hook bounds a call in time and lets only a refusal through: every error that it
// returned would fail the pod.
func (h *hooks) hook(ctx context.Context, name string, s *api.PodSandbox, f func(context.Context, *Pod) (bool, error)) (answer error) {
	ctx, cancel := context.WithTimeout(ctx, h.patience)
	defer cancel()
	pod := podOf(s)
	began := time.Now()
	refuse, err := guarded(ctx, pod, f)
	h.config.Observe(name, time.Since(began), err)
	if err == nil {
		return nil
	}
	log := h.config.Log.With("hook", name, "pod", pod.Namespace+"/"+pod.Name, "containerID", pod.ID)
	if refuse {
		log.Error("pod is refused", "error", err)
		return fmt.Errorf("podweir: %w", err)
	}
	log.Error("pod goes on without podweir", "error", err)
	return nil
}

// guarded turns a panic into an error: it must not take the agent along.
func guarded(ctx context.Context, pod *Pod, f func(context.Context, *Pod) (bool, error)) (refuse bool, err error) {
	defer func() {
		if cause := recover(); cause != nil {
			refuse, err = false, fmt.Errorf("a fault of podweir, please report it: %v", cause)
		}
	}()
	return f(ctx, pod)
}

// networkNamespace is the type of a namespace in the OCI specification.
const networkNamespace = "network"

func podOf(s *api.PodSandbox) *Pod {
	p := &Pod{
		ID: s.GetId(), Namespace: s.GetNamespace(), Name: s.GetName(), UID: s.GetUid(),
		Annotations: netconf.KeepAnnotations(s.GetAnnotations()),
	}
	for _, ns := range s.GetLinux().GetNamespaces() {
		if ns.GetType() == networkNamespace {
			p.NetNS = ns.GetPath()
		}
	}
	return p
}
