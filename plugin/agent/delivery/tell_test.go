// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"os"
	"slices"
	"sync"
	"testing"

	"github.com/fsnotify/fsnotify"

	"github.com/podweir/podweir/compat/conflist"
)

// containerd loads the networks of a node when the real one does: at its start, and when
// something in the directory of conflists, but not below it, is written, renamed or
// removed (internal/cri/server/cni_conf_syncer.go, v2.4.2).
type containerd struct {
	mu    sync.Mutex
	chain []string
	loads int
}

func (h *host) startRuntime(t *testing.T) *containerd {
	t.Helper()
	w, err := fsnotify.NewWatcher()
	if err == nil {
		err = w.Add(h.path(confDir))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = w.Close() })
	r := &containerd{}
	r.load(h)
	go func() {
		for e := range w.Events {
			if !e.Has(fsnotify.Chmod) && !e.Has(fsnotify.Create) {
				r.load(h)
			}
		}
	}()
	return r
}

func (r *containerd) load(h *host) {
	chain := h.chain()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.chain, r.loads = chain, r.loads+1
}

func (r *containerd) calls() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Contains(r.chain, conflist.Type)
}

func (r *containerd) loaded() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.loads
}

// The runtime learns of the drop-in, of its change and of its end.
func TestTheRuntimeIsToldOfTheDropIn(t *testing.T) {
	t.Parallel()
	h := newHost(t, exclusive(nil))
	r := h.startRuntime(t)
	m := h.install(t, recent)
	h.eventually(t, "the runtime calls podweir", r.calls)

	h.remove(t, confDir+"/cilium/"+conflist.DropInFile)
	r.load(h)
	_, stop := h.run(t, recent)
	h.eventually(t, "the runtime calls podweir again", r.calls)
	h.remove(t, confDir+"/cilium/"+conflist.DropInFile)
	r.load(h)
	h.eventually(t, "the runtime calls podweir after a removal that the agent saw", r.calls)
	stop()

	if err := m.Remove(t.Context()); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, "the runtime no longer calls podweir", func() bool { return !r.calls() })
}

// A drop-in that a release before this one wrote may never have been read: an agent
// tells the runtime when it starts, and only then.
func TestTheRuntimeIsToldAtTheStart(t *testing.T) {
	t.Parallel()
	h := newHost(t, exclusive(nil))
	h.tick = soon
	h.install(t, recent)
	r := h.startRuntime(t)
	r.mu.Lock()
	r.chain = nil // as if it had not seen the drop-in
	r.mu.Unlock()
	before := h.tree(t)
	m, stop := h.run(t, recent)
	h.eventually(t, "the runtime calls podweir", r.calls)
	h.eventually(t, "decision", func() bool { return m.Decision().InForce })
	told := r.loaded()
	// A change that is nobody's business makes the agent look again.
	if err := os.WriteFile(h.path("etc/cni/net.d/README"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	h.eventually(t, "the runtime heard of it", func() bool { return r.loaded() > told })
	settled := r.loaded()
	pause(4 * soon) // passes that nothing requested
	if now := r.loaded(); now > settled+1 {
		t.Errorf("the runtime was made to load %d times more with nothing changed", now-settled)
	}
	stop()
	h.remove(t, "etc/cni/net.d/README")
	for name, text := range h.tree(t) {
		if before[name] != text {
			t.Errorf("%s is %s, was %s", name, text, before[name])
		}
	}
}
