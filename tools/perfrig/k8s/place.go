// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/e2e/orders"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/tools/perfrig/netns"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

var _ netns.Place = (*Substrate)(nil)

// Chains of the reference node.
const (
	none      = ""
	bandwidth = "bandwidth"
)

// ifName is the interface of every pod.
const ifName = "eth0"

// Pods that stay. The bystander of each node is named after it.
const (
	client   = "client"
	onlooker = "onlooker"
)

// InRig implements [netns.Place]: clients are on one node, the pod and its
// bystander on another.
func (s *Substrate) InRig(ctx context.Context, c *spec.Cell, f func(*traffic.Rig, *traffic.Target) error) (err error) {
	node, err := s.phase(ctx, &c.Phase)
	if err != nil {
		return err
	}
	l, err := lab.New(ctx, lab.Options{})
	if err != nil {
		return err
	}
	rig, err := s.rig(ctx, l, node)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer func() { err = errors.Join(err, rig.Close()) }()
	return s.inPod(ctx, rig, node, c, f)
}

// Onlooker implements [netns.Place].
func (s *Substrate) Onlooker(rig *traffic.Rig) (*lab.Host, error) {
	pod, err := s.adopt(rig.Lab, onlooker, s.hosts[onlooker])
	if err != nil {
		return nil, err
	}
	return &pod.Host, nil
}

// phase makes a node such that its next pod is shaped as the phase says, and
// returns its name.
func (s *Substrate) phase(ctx context.Context, p *spec.Phase) (node string, err error) {
	if p.Kind == spec.Podweir {
		policy := p.Keys["policy"]
		if s.chart == policy {
			return shaped, nil
		}
		s.chart = "" // unknown if that fails
		_, err := s.driver.do(ctx, &orders.Order{Chart: &orders.Chart{Node: shaped, Set: []string{"defaults.policy=" + policy}}})
		if err == nil {
			s.chart = policy
		}
		return shaped, err
	}
	want, plugins := none, []string(nil)
	if p.Kind == spec.Bandwidth {
		want, plugins = bandwidth, []string{bandwidth}
	}
	if s.chain != want {
		if _, err := s.driver.do(ctx, &orders.Order{Chain: &orders.Chain{Node: reference, Plugins: plugins}}); err != nil {
			return "", err
		}
		s.chain = want
	}
	return reference, nil
}

// rig is one of the pods that stay, which are made when first needed.
func (s *Substrate) rig(ctx context.Context, l *lab.Lab, node string) (*traffic.Rig, error) {
	bystander := "bystander-" + node
	for name, on := range map[string]string{client: clients, onlooker: clients, bystander: node} {
		if s.hosts[name] != nil {
			continue
		}
		reply, err := s.driver.do(ctx, &orders.Order{Pod: &orders.Pod{Name: name, Node: on}})
		if err != nil {
			return nil, err
		}
		s.hosts[name] = reply.Pod
	}
	from, err := s.adopt(l, client, s.hosts[client])
	if err != nil {
		return nil, err
	}
	free, err := s.adopt(l, bystander, s.hosts[bystander])
	if err != nil {
		return nil, err
	}
	return traffic.NewRigOf(l, &from.Host, free)
}

func (*Substrate) adopt(l *lab.Lab, name string, p *orders.Running) (*lab.Pod, error) {
	addr, err := netip.ParseAddr(p.Address)
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", name, err)
	}
	return l.Adopt(name, p.Netns, ifName, addr)
}

// inPod makes a fresh pod with the annotations of the cell, and deletes it after
// f.
func (s *Substrate) inPod(ctx context.Context, rig *traffic.Rig, node string, c *spec.Cell, f func(*traffic.Rig, *traffic.Target) error) (err error) {
	const tries = 4
	for try := 1; ; try++ {
		err := s.inOnePod(ctx, rig, node, c, f)
		// containerd takes a moment to read a chain that was changed.
		if !errors.Is(err, errOtherwise) || try == tries {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (s *Substrate) inOnePod(ctx context.Context, rig *traffic.Rig, node string, c *spec.Cell, f func(*traffic.Rig, *traffic.Target) error) (err error) {
	s.pods++
	name := fmt.Sprintf("measured-%d", s.pods)
	defer func() {
		if ctx.Err() != nil {
			return // the cluster ends, and the pod with it
		}
		_, deleteErr := s.driver.do(ctx, &orders.Order{Delete: name})
		err = errors.Join(err, deleteErr)
	}()
	reply, err := s.driver.do(ctx, &orders.Order{Pod: &orders.Pod{Name: name, Node: node, Annotations: limits(c.Rate)}})
	if err != nil {
		return err
	}
	pod, err := s.adopt(rig.Lab, name, reply.Pod)
	if err != nil {
		return err
	}
	target, err := rig.TargetOf(pod)
	if err != nil {
		return err
	}
	// Before the pod is deleted: its namespace is the lab's, too, until then.
	defer func() { err = errors.Join(err, target.Close(ctx)) }()
	if err := s.verify(ctx, pod, c); err != nil {
		return err
	}
	return f(rig, target)
}
