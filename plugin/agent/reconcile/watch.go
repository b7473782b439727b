// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/hostif"
	"github.com/podweir/podweir/plugin/rtnl"
	"github.com/podweir/podweir/plugin/terms"
)

// watched is one interface to watch.
type watched struct {
	iface attach.Interface
	// redirect says that a redirect of ours stands on it, which must go as soon
	// as a netfilter ingress chain comes.
	redirect bool
	// awaited says that it is not there, or another attachment's: the namespace is watched for it alone.
	awaited bool
}

func watchedOf(states []*attach.Desired) []watched {
	all := make([]watched, 0, len(states))
	for _, s := range states {
		in := s.Directions[terms.Ingress]
		all = append(all, watched{iface: s.Interface, redirect: in != nil && in.Params.Redirect})
	}
	return all
}

// livePause is the time between two looks whether a watched namespace still is
// at its path: a watch keeps it alive, and must not do so for long.
const livePause = 5 * time.Second

// watcher listens to the kernel for changes on the devices of shaped pods: one
// socket on the host, and one, or two where there is a redirect, for each pod.
type watcher struct {
	r *Reconciler

	mu   sync.Mutex
	pods map[key]*podWatch
	// hosts are the keys by the ifindexes of the devices on the host.
	hosts map[int]key
	wg    sync.WaitGroup
}

type podWatch struct {
	watched []watched
	cancel  context.CancelFunc
	// failed says that a part of it ended with an error: the next look begins it again.
	failed bool
}

func newWatcher(r *Reconciler) *watcher {
	return &watcher{r: r, pods: make(map[key]*podWatch), hosts: make(map[int]key)}
}

// run watches the devices on the host until the context ends.
func (w *watcher) run(ctx context.Context) {
	defer w.wg.Wait()
	w.wg.Go(func() {
		live := time.NewTicker(livePause)
		defer live.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-live.C:
				w.dropGone(ctx)
			}
		}
	})
	for failures := 1; ctx.Err() == nil; failures++ {
		began := time.Now()
		err := devices(ctx, w.r.host, w.onHost)
		w.failed(ctx, "the host's devices", err)
		if time.Since(began) > retryMax {
			failures = 1 // it worked for long
		}
		select {
		case <-ctx.Done():
		case <-time.After(pause(failures)):
		}
	}
}

func (w *watcher) failed(ctx context.Context, what string, err error) {
	if ctx.Err() == nil && err != nil {
		w.r.cfg.Log.Error("watch failed: changes are noticed by full passes only", "of", what, "error", err)
	}
}

// devices calls changed with the ifindexes of devices that changed, nil for
// all, until the context ends. The first call, of none, is when it has begun.
func devices(ctx context.Context, ns *rtnl.NetNS, changed func([]int)) error {
	events, err := rtnl.WatchDevices(ns)
	if err != nil {
		return err
	}
	defer func() { _ = events.Close() }()
	changed([]int{})
	for {
		indexes, err := events.Next(ctx)
		if err != nil {
			return err
		}
		changed(indexes)
	}
}

func (w *watcher) onHost(indexes []int) {
	w.mu.Lock()
	var keys []key
	if indexes == nil {
		for _, k := range w.hosts {
			keys = append(keys, k)
		}
	}
	for _, i := range indexes {
		if k, ok := w.hosts[i]; ok {
			keys = append(keys, k)
		}
	}
	w.mu.Unlock()
	for _, k := range keys {
		w.r.drifted(k)
	}
}

// set says which interfaces of a key to watch from now on; none ends it.
func (w *watcher) set(ctx context.Context, k key, list []watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	old := w.pods[k]
	if old != nil && !old.failed && slices.Equal(old.watched, list) || old == nil && len(list) == 0 {
		return
	}
	if old != nil {
		old.cancel()
		delete(w.pods, k)
		for _, i := range old.watched {
			if w.hosts[i.iface.HostIndex] == k {
				delete(w.hosts, i.iface.HostIndex)
			}
		}
	}
	if len(list) == 0 || ctx.Err() != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	p := &podWatch{watched: list, cancel: cancel}
	w.pods[k] = p
	for _, i := range list {
		if i.iface.HostIndex != 0 {
			w.hosts[i.iface.HostIndex] = k
		}
		w.wg.Go(func() { w.pod(ctx, p, k, i) })
	}
}

func (w *watcher) watched(k key) []watched {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pods[k]; p != nil {
		return p.watched
	}
	return nil
}

// podFailed notes that a part of a pod's watch ended, unless the watch was ended.
func (w *watcher) podFailed(ctx context.Context, p *podWatch, what string, err error) {
	w.failed(ctx, what, err)
	w.mu.Lock()
	defer w.mu.Unlock()
	p.failed = p.failed || ctx.Err() == nil && err != nil
}

// pod watches one interface in its own namespace, as a part of p.
func (w *watcher) pod(ctx context.Context, p *podWatch, k key, i watched) {
	ns, err := rtnl.OpenNetNS(i.iface.NetNSPath)
	if err != nil {
		w.podFailed(ctx, p, i.iface.NetNSPath, err)
		return
	}
	defer func() { _ = ns.Close() }()
	if ns.Inode() != i.iface.NetNSInode {
		return
	}
	var wg sync.WaitGroup
	defer wg.Wait()
	if i.redirect {
		wg.Go(func() {
			switch err := hostif.WaitNetfilterIngress(ctx, ns, i.iface.Name()); {
			case err == nil:
				w.r.queue.add(k, 0)
			case !errors.Is(err, errors.ErrUnsupported):
				w.podFailed(ctx, p, "nftables in "+i.iface.NetNSPath, err)
			}
		})
	}
	err = devices(ctx, ns, func(indexes []int) { w.inPod(k, i, indexes) })
	w.podFailed(ctx, p, i.iface.NetNSPath, err)
}

// inPod is told as [devices] tells of an interface's namespace.
func (w *watcher) inPod(k key, i watched, indexes []int) {
	switch {
	case i.awaited: // a pod may change its devices as often as it likes; it may have done so before this began
		w.r.queue.add(k, driftPauseExposed)
	case indexes != nil && len(indexes) == 0: // it has begun, for a look: another one could begin it again, without end
	case indexes == nil, i.redirect, slices.Contains(indexes, i.iface.PodIndex): // behind a redirect the ifb counts too
		w.r.drifted(k)
	}
}

// dropGone lets go of namespaces that are not at their paths any more.
func (w *watcher) dropGone(ctx context.Context) {
	w.mu.Lock()
	var gone []key
	for k, p := range w.pods {
		if slices.ContainsFunc(p.watched, func(i watched) bool { return !isNetNS(i.iface.NetNSPath, i.iface.NetNSInode) }) {
			gone = append(gone, k)
		}
	}
	w.mu.Unlock()
	for _, k := range gone {
		w.set(ctx, k, nil)
		w.r.drifted(k)
	}
}
