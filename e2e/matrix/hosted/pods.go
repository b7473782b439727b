// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// limit is the server's, in each direction, in bits per second. offered is what
// the load tries, the most that a pod without a limit gets.
const (
	limit   = 20_000_000
	offered = 200_000_000
)

// The window in which bytes are counted, and the time that a load has before it
// to reach its rate and keeps after it.
const (
	window = 8 * time.Second
	margin = 3 * time.Second
)

// Bounds of a rate as a share of its limit. Receivers count bytes of packets
// that the kernel has merged, without the headers that merging drops: they read
// up to 5 % low. The rows that run without a registry measure within 1 %.
const (
	least = 0.90
	most  = 1.02
)

// checkPods makes a server with limits, a client and a stranger on another node,
// and checks what the pods get and whom the server answers.
func (o *options) checkPods(ctx context.Context, _ *row) error {
	out, err := o.output(ctx, "", "kubectl", "get", "nodes", "-l", "!node-role.kubernetes.io/control-plane", "-o", "jsonpath={.items[*].metadata.name}")
	if err != nil {
		return err
	}
	nodes := strings.Fields(out)
	if o.dryRun {
		nodes = []string{"NODE-1", "NODE-2"}
	}
	if len(nodes) < 2 {
		return fmt.Errorf("the cluster has the worker nodes %q, want two", nodes)
	}
	manifests, err := o.manifests(nodes)
	if err != nil {
		return err
	}
	if err := o.apply(ctx, manifests); err != nil {
		return err
	}
	if err := o.all(ctx, "kubectl wait --for=condition=Ready pod/server pod/client pod/stranger --timeout=3m"); err != nil {
		return err
	}
	return errors.Join(o.rates(ctx), o.policy(ctx))
}

// manifests are the three pods.
func (o *options) manifests(nodes []string) ([]byte, error) {
	capped := map[string]string{
		"kubernetes.io/ingress-bandwidth": strconv.Itoa(limit),
		"kubernetes.io/egress-bandwidth":  strconv.Itoa(limit),
	}
	return json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": []any{
		o.pod("server", nodes[0], capped), o.pod("client", nodes[1], nil), o.pod("stranger", nodes[1], nil),
	}})
}

func (o *options) pod(name, node string, annotations map[string]string) map[string]any {
	image, pull := workImage, "Never"
	if o.registry != "" {
		image, pull = o.registry+"/podweir/work:1", "IfNotPresent"
	}
	return map[string]any{
		"apiVersion": "v1", "kind": "Pod",
		"metadata": map[string]any{"name": name, "namespace": "default", "labels": map[string]string{"app": name}, "annotations": annotations},
		"spec": map[string]any{
			"nodeName": node, "terminationGracePeriodSeconds": 1,
			"containers": []any{map[string]any{"name": "work", "image": image, "imagePullPolicy": pull, "args": []string{"serve"}}},
		},
	}
}

func (o *options) apply(ctx context.Context, manifest []byte) error {
	fmt.Println(string(manifest))
	_, err := o.output(ctx, string(manifest), "kubectl", "apply", "-f", "-")
	return err
}

// rates measures the server's two directions and a pod without a limit.
func (o *options) rates(ctx context.Context) error {
	var errs []error
	for _, m := range []struct {
		what, server, way, counter string
		least, most                float64
	}{
		{"client to stranger, no limit", "stranger", "up", "stranger", 2 * limit, 2 * offered},
		{"into the server", "server", "up", "server", least * limit, most * limit},
		{"out of the server", "server", "down", "client", least * limit, most * limit},
	} {
		got, err := o.rate(ctx, m.server, m.way, m.counter)
		if err != nil || o.dryRun {
			errs = append(errs, err)
			continue
		}
		note := fmt.Sprintf("%s: %.2f Mbit/s", m.what, got/1e6)
		fmt.Println(note)
		o.notes = append(o.notes, note)
		if got < m.least || got > m.most {
			errs = append(errs, fmt.Errorf("%s: %.2f Mbit/s, want %.2f to %.2f", m.what, got/1e6, m.least/1e6, m.most/1e6))
		}
	}
	return errors.Join(errs...)
}

// rate loads one way between the client and a server, and returns what the pod
// counter receives meanwhile, in bits per second.
func (o *options) rate(ctx context.Context, server, way, counter string) (float64, error) {
	address, err := o.address(ctx, server)
	if err != nil {
		return 0, err
	}
	loaded := make(chan error, 1)
	go func() {
		_, err := o.work(ctx, "client", "load", address, way, strconv.Itoa(offered), (window + 2*margin).String())
		loaded <- err
	}()
	if !o.dryRun {
		<-time.After(margin)
	}
	out, err := o.work(ctx, counter, "count", window.String())
	if err = errors.Join(err, <-loaded); err != nil || o.dryRun {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(out), 64)
}

// policy lets only the client in, and checks that this holds.
func (o *options) policy(ctx context.Context) error {
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy",
		"metadata": map[string]any{"name": "server", "namespace": "default"},
		"spec": map[string]any{
			"podSelector": selector("server"), "policyTypes": []string{"Ingress"},
			"ingress": []any{map[string]any{"from": []any{map[string]any{"podSelector": selector("client")}}}},
		},
	})
	if err != nil {
		return err
	}
	if err := o.apply(ctx, manifest); err != nil {
		return err
	}
	return errors.Join(o.reachable(ctx, "stranger", "server", false), o.reachable(ctx, "client", "server", true))
}

func selector(app string) map[string]any {
	return map[string]any{"matchLabels": map[string]string{"app": app}}
}

// reachable waits until a pod reaches another, or until it does not.
func (o *options) reachable(ctx context.Context, from, to string, want bool) error {
	address, err := o.address(ctx, to)
	if err != nil {
		return err
	}
	for deadline := time.Now().Add(time.Minute); ; <-time.After(time.Second) {
		_, err := o.work(ctx, from, "reach", address)
		if o.dryRun || (err == nil) == want {
			return nil
		}
		if ctx.Err() != nil || time.Now().After(deadline) {
			return fmt.Errorf("%s reaches %s: %v, want %v, for a minute: %w", from, to, err == nil, want, errors.Join(err, ctx.Err()))
		}
	}
}

func (o *options) address(ctx context.Context, pod string) (string, error) {
	ip, err := o.output(ctx, "", "kubectl", "get", "pod", pod, "-o", "jsonpath={.status.podIP}")
	if o.dryRun {
		ip = "ADDRESS-OF-" + pod
	}
	return ip + ":7000", err
}

// work runs the program of the pods in one of them.
func (o *options) work(ctx context.Context, pod string, args ...string) (string, error) {
	return o.output(ctx, "", append([]string{"kubectl", "exec", pod, "--", "/work"}, args...)...)
}

func (o *options) removePods(ctx context.Context, _ *row) error {
	return o.all(ctx, "kubectl delete --ignore-not-found networkpolicy/server pod/server pod/client pod/stranger --timeout=2m")
}
