// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/lab"
	"github.com/podweir/podweir/tools/perfrig/spec"
)

// unavailable says why this machine cannot do a cell, "" if it can: it asks the kernel
// for the qdiscs that a phase cannot do without. What podweir chooses by itself is not
// requested.
func (s *Substrate) unavailable(ctx context.Context, c *spec.Cell) (string, error) {
	var kinds []string
	switch p := &c.Phase; p.Kind {
	case spec.Qdisc:
		if kinds = needs[p.Discipline]; ingressAlone(c) {
			kinds = nil
		}
	case spec.Podweir:
		if name := c.Phase.Keys["type"]; name != "" {
			if _, err := os.Stat(filepath.Join(s.root, ownPlugins, name)); errors.Is(err, fs.ErrNotExist) {
				return "no " + filepath.Join(ownPlugins, name) + `: "make before" builds it`, nil
			}
		}
	default:
	}
	for _, kind := range kinds {
		lacks, err := s.lacksQdisc(ctx, kind)
		if err != nil {
			return "", err
		}
		if lacks {
			return "kernel lacks sch_" + kind, nil
		}
	}
	return "", nil
}

// loopback is the index of every namespace's lo (LOOPBACK_IFINDEX of Linux).
const loopback = 1

// lacksQdisc makes a qdisc on the loopback of a namespace of our own: the
// kernel answers ENOENT for a kind that it neither has nor can load.
func (s *Substrate) lacksQdisc(ctx context.Context, kind string) (lacks bool, err error) {
	if lacks, ok := s.lacks[kind]; ok {
		return lacks, nil
	}
	l, err := lab.New(ctx, lab.Options{PluginDirs: []string{s.root}})
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	err = l.Node().Do(func() error {
		return netlink.QdiscAdd(&netlink.GenericQdisc{
			QdiscType: kind,
			QdiscAttrs: netlink.QdiscAttrs{
				LinkIndex: loopback, Parent: netlink.HANDLE_ROOT, Handle: netlink.MakeHandle(1, 0),
			},
		})
	})
	switch {
	case errors.Is(err, unix.ENOENT):
		s.lacks[kind] = true
	case err == nil, errors.Is(err, unix.EINVAL):
		// EINVAL is the kind's own word: it wants options, so it is there.
		s.lacks[kind] = false
	default:
		return false, fmt.Errorf("probe for sch_%s: %w", kind, err)
	}
	return s.lacks[kind], nil
}
