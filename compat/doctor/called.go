// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"fmt"
	"io/fs"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
)

// The values of [Attachment.By] that tell whether the runtime called podweir-cni.
const (
	byPlugin = "plugin"
	byAgent  = "agent"
)

// loads is how long a pod may be under way that the runtime began to set up with
// the chain as it was before: the first ADD on a node may take 20 s with Cilium.
const loads = 30 * time.Second

// follows is how soon the agent attaches a pod that podweir-cni was not called for. One
// that it attaches later got its limit later: its annotation was removed, which takes
// what podweir-cni attached away, and is there again.
const follows = 2 * time.Minute

// uncalled returns the pods that the runtime set up with a limit after podweir was
// written into the chain, and without calling it, if it called it for none since:
// then it has not loaded the chain as it is on disk. The runtime's record of a pod
// keeps a limit that was removed since. So a pod without an attachment proves nothing
// where an agent runs: it would have attached the pod, unless it cannot find its network.
func (f *Facts) uncalled() []string {
	since := f.chained()
	if since.IsZero() || f.SandboxesErr != nil || f.AttachedErr != nil {
		return nil
	}
	var missed []string
	for _, s := range f.Sandboxes {
		if !f.expects(s.Limited) || s.Made.Before(since.Add(loads)) {
			continue
		}
		at := slices.IndexFunc(f.Attached, func(a Attachment) bool { return a.ContainerID == s.ContainerID })
		switch {
		case at < 0 && f.agentRuns() && !f.isOverdue(s.Pod): // its limit was removed
		case at < 0:
			missed = append(missed, s.Pod+" (never attached)")
		case f.Attached[at].By == byPlugin:
			return nil
		case f.Attached[at].By == byAgent && f.Attached[at].Attached.Before(s.Made.Add(follows)):
			missed = append(missed, s.Pod+" (attached by the agent, after its start)")
		}
	}
	return missed
}

// chained is when the file was written that has podweir in it, zero if that is not
// known.
func (f *Facts) chained() time.Time {
	active := f.active()
	if active == nil || active.Network == nil {
		return time.Time{}
	}
	name := path.Join(f.Node.ConfDir, active.Name)
	if active.Network.Index(conflist.Type) < 0 {
		name = path.Join(f.Node.ConfDir, active.Network.Name, conflist.DropInFile)
	}
	info, err := fs.Stat(f.Root, name)
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}

// notCalled is the finding about them.
func (f *Facts) notCalled(missed []string) Finding {
	reload := path.Join("/", f.Node.ConfDir, ".podweir-reload.tmp")
	return breaks(fmt.Sprintf("since podweir was written into the chain %s called podweir-cni for none of %d pods with a limit: %s",
		f.Node.Runtime, len(missed), shorten(missed)), "a call for each of them",
		"make the runtime read the chain again: touch "+reload+" && rm "+reload+"; the agent limits the pods that run", missed...).of(podsOf(missed))
}

// podsOf are the pods of a list that says more of each in parentheses.
func podsOf(list []string) []string {
	out := make([]string, len(list))
	for i, text := range list {
		out[i], _, _ = strings.Cut(text, " (")
	}
	return out
}
