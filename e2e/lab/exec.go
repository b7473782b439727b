// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"io"

	"github.com/containernetworking/cni/pkg/invoke"
)

// nodeExec runs CNI plugins for libcni inside the node's namespace, as a
// container runtime would on a real node.
type nodeExec struct {
	invoke.DefaultExec
	node *Netns
}

func newNodeExec(node *Netns, stderr io.Writer) *nodeExec {
	return &nodeExec{invoke.DefaultExec{RawExec: &invoke.RawExec{Stderr: stderr}}, node}
}

// ExecPlugin implements [invoke.Exec].
func (e *nodeExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) (stdout []byte, err error) {
	err = e.node.Do(func() (err error) {
		stdout, err = e.DefaultExec.ExecPlugin(ctx, path, stdin, env)
		return err
	})
	return stdout, err
}
