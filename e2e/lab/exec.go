// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/containernetworking/cni/pkg/invoke"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"
)

// nodeExec runs CNI plugins for libcni inside the node's namespace, as a
// container runtime would on a real node.
type nodeExec struct {
	version.PluginDecoder
	node   *Netns
	stderr io.Writer
}

var _ invoke.Exec = (*nodeExec)(nil)

// FindInPath implements [invoke.Exec].
func (*nodeExec) FindInPath(plugin string, paths []string) (string, error) {
	return invoke.FindInPath(plugin, paths)
}

// ExecPlugin implements [invoke.Exec]. The plugin is in a process group of its
// own: a Ctrl-C at the terminal must not kill it half-way.
func (e *nodeExec) ExecPlugin(ctx context.Context, path string, stdin []byte, env []string) ([]byte, error) {
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, path)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(stdin), &stdout, &stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.WaitDelay = time.Second
	err := e.node.Do(cmd.Start)
	if err == nil {
		err = cmd.Wait()
	}
	if e.stderr != nil {
		_, _ = e.stderr.Write(stderr.Bytes())
	}
	if err != nil {
		return nil, pluginError(path, err, stdout.Bytes(), stderr.String())
	}
	return stdout.Bytes(), nil
}

// pluginError prefers the error that the plugin printed, as the CNI
// specification wants it, over its exit status. It stays a [*types.Error].
func pluginError(path string, err error, stdout []byte, stderr string) error {
	var cniErr types.Error
	if json.Unmarshal(stdout, &cniErr) == nil && cniErr.Msg != "" {
		return &cniErr
	}
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return fmt.Errorf("plugin %s: %w: %s", path, err, strings.TrimSpace(stderr))
}
