// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// deliver runs podweir's own manager on the node until the test ends.
func (h *host) deliver(t *testing.T, runtime string) *delivery.Manager {
	t.Helper()
	binary := filepath.Join(t.TempDir(), conflist.Type)
	for _, file := range []string{binary, filepath.Join(h.root, "opt/cni/bin/cilium-cni"), filepath.Join(h.root, "opt/cni/bin/aws-cni")} {
		must.OK(t, os.MkdirAll(filepath.Dir(file), 0o755))
		must.OK(t, os.WriteFile(file, []byte("x"), 0o755))
	}
	m := must.Get(delivery.New(delivery.Config{Root: h.root, Binary: binary, Runtime: runtime}))(t)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- m.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return m
}

// inForce is the chain of the first file by name, with its drop-ins.
func (h *host) inForce() (string, error) {
	files, err := libcni.ConfFiles(h.path(""), []string{".conf", ".conflist", ".json"})
	if err != nil {
		return "", err
	}
	if len(files) == 0 {
		return "", errors.New("no network")
	}
	first := files[0]
	for _, f := range files {
		first = min(first, f)
	}
	list, err := libcni.NetworkConfFromFile(first)
	if err != nil {
		return "", err
	}
	var types []string
	for _, p := range list.Plugins {
		types = append(types, p.Network.Type)
	}
	return strings.Join(types, " "), nil
}

// staysAt waits until the chain is this one, and then that it stays so.
func (h *host) staysAt(t *testing.T, want string) {
	t.Helper()
	eventually(t, "the chain "+want, func() bool {
		got, err := h.inForce()
		return err == nil && got == want
	})
	end := time.After(3 * time.Second)
	for {
		select {
		case <-end:
			return
		case <-time.After(time.Millisecond):
			if got, err := h.inForce(); err != nil || got != want {
				t.Fatalf("the chain became %q, %v, want it to stay %q", got, err, want)
			}
		}
	}
}

// rests waits until the chain in force has not changed for 3 s.
func (h *host) rests(t *testing.T) {
	t.Helper()
	last, since := "", time.Now()
	eventually(t, "the chain rests", func() bool {
		if now, _ := h.inForce(); now != last {
			t.Logf("chain %q", now)
			last, since = now, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
}

// TestManagerBesideRewrites has Cilium's manager write its file 200 times, exclusive,
// and each time rename what lies beside it. At no reading is podweir out of the chain.
func TestManagerBesideRewrites(t *testing.T) {
	const rewrites = 200
	h := newHost(t, nil)
	source := filepath.Join(t.TempDir(), "source.conflist")
	put := func(number int) (content string) {
		content = fmt.Sprintf(`{"cniVersion":"1.0.0","name":"cilium","plugins":[{"type":"cilium-cni","number":%d}]}`, number)
		// The manager may read at any time.
		err := os.WriteFile(source+".tmp", []byte(content), 0o644)
		if err = errors.Join(err, os.Rename(source+".tmp", source)); err != nil {
			t.Fatal(err)
		}
		return content
	}
	put(0)
	h.runManager(t, map[string]any{"cni-exclusive": true, "read-cni-conf": source})
	m := h.deliver(t, "containerd://2.1.3")
	const want = "cilium-cni podweir-cni"
	h.staysAt(t, want)
	if d := m.Decision(); d.Delivery != profiles.DropIn || !d.InForce || d.Problem != "" {
		t.Errorf("decision %+v", d)
	}

	var faults []string
	readings, stop, stopped := 0, make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			if got, err := h.inForce(); err != nil || got != want {
				faults = append(faults, fmt.Sprintf("chain %q, %v", got, err))
			}
			readings++
		}
	}()
	for i := 1; i <= rewrites; i++ {
		content := put(i)
		// The manager looks at its source when something happens in the directory.
		h.settle(t)
		eventually(t, "Cilium writes its file", func() bool { return h.read(t, own) == content })
	}
	close(stop)
	<-stopped
	t.Logf("%d readings", readings)
	if len(faults) > 0 || readings < rewrites {
		t.Errorf("%d of %d readings: %q", len(faults), readings, faults[:min(5, len(faults))])
	}
	h.staysAt(t, want)
}

// TestManagerBesideChained: Cilium makes its file from the first one with the
// target's network name, podweir's if there is one. Whatever podweir does, the
// two come to rest, with each plugin once in the chain.
func TestManagerBesideChained(t *testing.T) {
	for name, tc := range map[string]struct {
		runtime string
		// shared says that podweir sees the agent's setting cni-exclusive=false.
		shared bool
		want   string
	}{
		"drop-ins, not known": {"containerd://2.1.3", false, "aws-cni portmap cilium-cni podweir-cni"},
		"drop-ins, shared":    {"containerd://2.1.3", true, "aws-cni portmap cilium-cni podweir-cni"},
		"chain, shared":       {"containerd://1.7.20", true, "aws-cni portmap cilium-cni podweir-cni"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHost(t, map[string]string{"10-aws.conflist": `{"cniVersion":"0.4.0","name":"aws-cni","plugins":[{"type":"aws-cni"},{"type":"portmap"}]}`})
			if tc.shared {
				h.write(t, "../../../proc/77/comm", "cilium-agent")
				h.write(t, "../../../proc/77/root/tmp/cilium/config-map/cni-exclusive", "false")
				h.write(t, "../../../proc/77/root/tmp/cilium/config-map/write-cni-conf-when-ready", h.path(own))
			}
			h.runManager(t, map[string]any{"cni-exclusive": false, "cni-chaining-mode": "aws-cni"})
			h.deliver(t, tc.runtime)
			h.staysAt(t, tc.want)
			// Cilium's agent restarts, and makes its file again.
			h.runManager(t, map[string]any{"cni-exclusive": false, "cni-chaining-mode": "aws-cni"})
			h.rests(t)
			chain, err := h.inForce()
			for _, plugin := range []string{"aws-cni", "portmap", "cilium-cni", "podweir-cni"} {
				if strings.Count(" "+chain+" ", " "+plugin+" ") != 1 {
					t.Errorf("after a restart of Cilium's agent the chain is %q, %v, want each plugin once", chain, err)
				}
			}
		})
	}
}
