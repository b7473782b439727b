// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cni

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"github.com/podweir/podweir/plugin/datapath"
	"github.com/podweir/podweir/plugin/queue"
)

// features are what the kernel was found to have.
type features struct {
	// Boot tells the probe's boot from a later one, which may be of another
	// kernel.
	Boot string `json:"boot"`
	queue.Features
	TCX bool `json:"tcx"`
	// Redirect is how packets reach an ifb, empty if they do not.
	Redirect string `json:"redirect"`
	// RedirectError says why the self-test could not find out; then there is
	// no redirect.
	RedirectError string `json:"redirectError,omitempty"`
}

// The ways to an ifb, by self-test and never by version: on Linux 6.1
// bpf_redirect to an ifb loses every packet.
const (
	redirectBPF    = "bpf"
	redirectMirred = "mirred"
)

const bootIDPath = "/proc/sys/kernel/random/boot_id"

// features returns what this kernel has: probed once per boot and kept in
// the run directory, where deleting it is always safe.
func (p Paths) features() (*features, error) {
	boot, err := os.ReadFile(bootIDPath)
	if err != nil {
		return nil, fmt.Errorf("read boot id: %w", err)
	}
	id := string(bytes.TrimSpace(boot))
	path := filepath.Join(p.Run, "features.json")
	var f features
	if b, err := os.ReadFile(path); err == nil && json.Unmarshal(b, &f) == nil && f.Boot == id {
		return &f, nil
	}
	probed, err := queue.Probe()
	if err != nil {
		return nil, fmt.Errorf("probe the kernel: %w", err)
	}
	f = features{Boot: id, Features: probed, TCX: datapath.HaveTCX()}
	if f.IFB {
		if f.Redirect, err = ProbeRedirect(); err != nil {
			f.Redirect, f.RedirectError = "", err.Error()
		}
	}
	// A cache that cannot be written costs the next ADD a probe, no more.
	_ = writeAtomic(path, f)
	return &f, nil
}

func writeAtomic(path string, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), ".features-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(b)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		_ = os.Remove(tmp.Name())
	}
	return err
}

// ProbeRedirect tries, in a namespace of its own, how packets reach an ifb: bpf or
// mirred, "" if in neither way. It needs CAP_SYS_ADMIN.
func ProbeRedirect() (string, error) {
	objs, err := datapath.LoadRedirect(queue.ProbeIFBIndex)
	if err != nil {
		return "", err
	}
	defer objs.Close()
	if ok, err := queue.ProbeRedirect(objs.Redirect.FD()); err != nil || ok {
		return redirectBPF, err
	}
	if ok, err := queue.ProbeRedirect(-1); err != nil || ok {
		return redirectMirred, err
	}
	return "", nil
}
