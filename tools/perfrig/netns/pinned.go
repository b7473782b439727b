// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"fmt"
	"path/filepath"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/e2e/traffic"
	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/terms"
)

// state is what podweir's programs know of one direction of a pod.
type state struct {
	node *datapath.Node
	slot *image.Slot
}

func openState(pod *traffic.Target, d traffic.Direction) (*state, error) {
	store, err := pins.Open(pins.DefaultRoot)
	if err != nil {
		return nil, err
	}
	dirs, err := filepath.Glob(filepath.Join(store.Root(), "*", pod.ContainerID+","+pod.IfName, pod.IfName))
	if err == nil && len(dirs) != 1 {
		err = fmt.Errorf("pod %s has %d attachments, want 1", pod.Name, len(dirs))
	}
	if err != nil {
		return nil, err
	}
	s := &state{node: datapath.OpenNode(store.Root(), store.NodeDir(datapath.ABIVersion))}
	direction := terms.Egress
	if d == traffic.Ingress {
		direction = terms.Ingress
	}
	if s.slot, err = s.node.View(dirs[0], direction); err != nil {
		s.node.Close()
		return nil, err
	}
	return s, nil
}

func (s *state) close() { s.node.Close() }
