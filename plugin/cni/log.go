// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni

import (
	"io"
	"log/slog"
	"os"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/netconf"
)

// maxLogBytes is where a log file is put aside as <name>.1: the plugin runs
// for every pod of a node for years, and nothing else rotates its file.
const maxLogBytes = 4 << 20

// logger writes to stderr, which the runtime keeps, and to the configured
// file; never to stdout, which is the result.
func (p *Plugin) logger(cfg *netconf.Config, verb string, id attach.ID) *slog.Logger {
	var out io.Writer = p.Stderr
	if f := openLog(cfg.LogFile); f != nil {
		out = io.MultiWriter(p.Stderr, f)
	}
	h := slog.NewTextHandler(out, &slog.HandlerOptions{Level: cfg.LogLevel})
	return slog.New(h).With("verb", verb, "network", id.Network, "containerID", id.ContainerID, "ifName", id.IfName)
}

// openLog returns nil if no file can be opened: a full disk must not
// stop pods.
func openLog(path string) *os.File {
	if path == "" {
		return nil
	}
	if st, err := os.Stat(path); err == nil && st.Size() > maxLogBytes {
		_ = os.Rename(path, path+".1")
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return nil
	}
	return f
}
