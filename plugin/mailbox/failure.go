// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mailbox

import (
	"errors"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/podweir/podweir/plugin/attach"
)

// Failure tells that a pod runs unshaped, and why.
type Failure struct {
	ID attach.ID `json:"id"`
	// Pod is namespace/name, "" if the runtime did not tell it.
	Pod  string    `json:"pod,omitempty"`
	Time time.Time `json:"time"`
	moment
	Error string `json:"error"`
	// Reason is [ReasonInvalid] if nothing but what is requested is wrong, else "".
	Reason string `json:"reason,omitempty"`
	// NetNSPath is where the pod's network namespace was, "" if that is not known.
	NetNSPath string `json:"netns,omitempty"`
}

// Ended says that the pod of a failure has ended: its network namespace was in a directory that is there, and is not in
// it any more.
func (f *Failure) Ended() bool {
	if f.NetNSPath == "" || strings.HasPrefix(f.NetNSPath, "/proc/") { // numbers of processes are used again
		return false
	}
	_, err := os.Lstat(f.NetNSPath)
	dir, dirErr := os.ReadDir(filepath.Dir(f.NetNSPath))
	return errors.Is(err, os.ErrNotExist) && dirErr == nil && len(dir) > 0
}

// failurePath leaves out the network: its name may change.
func (d Dir) failurePath(id attach.ID) string {
	return d.path("failures", url.QueryEscape(id.ContainerID)+","+url.QueryEscape(id.IfName)+".json")
}

// RecordFailure leaves a record for status and the agent. That it cannot be
// written is logged: it must not break the pod as well.
func (d Dir) RecordFailure(log *slog.Logger, f *Failure) {
	d.ClearFailure(f.ID)
	path := d.failurePath(f.ID)
	f.note(f.Time)
	if err := Write(path, f); err != nil {
		log.Error("failure record not written", "path", path, "error", err)
		// Where there is no room for what went wrong the name alone says that something did.
		_ = os.WriteFile(path, nil, 0o644) //nolint:gosec // everybody may read it
	}
}

// ClearFailure removes the record of an attachment, if there is one.
func (d Dir) ClearFailure(id attach.ID) { _ = os.Remove(d.failurePath(id)) }

// Failures returns the attachments that could not be shaped. One whose record cannot be
// decoded has no network, and the reason as its error.
func (d Dir) Failures() ([]Failure, error) {
	all, err := readRecords(d.path("failures"), func(name, why string) Failure {
		container, ifName, _ := strings.Cut(name, ",")
		f := Failure{Error: why}
		f.ID.ContainerID, _ = url.QueryUnescape(container) // an error leaves what is not known
		f.ID.IfName, _ = url.QueryUnescape(ifName)
		return f
	})
	for i := range all {
		all[i].Time = all[i].shown(all[i].Time)
		all[i].moment = moment{}
	}
	return all, err
}

// Reasons of an [Unshaped] that readers tell apart from the others.
const (
	// ReasonInvalid: a rate cannot be read.
	ReasonInvalid = "invalid"
	// ReasonOverdue: the pod's network was not found in time.
	ReasonOverdue = "overdue"
	// ReasonHostNetwork: the pod has no interface of its own, so that no limit can be wanting.
	ReasonHostNetwork = "hostNetwork"
)

// Unshaped tells that a pod runs without its limit, or without that of one direction,
// as the agent knows it. It names the pod and not an attachment: the runtime may not
// even have a sandbox of it.
type Unshaped struct {
	Pod string `json:"pod"`
	UID string `json:"uid"`
	// Reason is a value of the metric podweir_unshaped_pods.
	Reason string    `json:"reason"`
	Since  time.Time `json:"since"`
	moment
	Error string `json:"error"`
}

func (d Dir) unshapedPath(uid string) string {
	return d.path(unshapedDir, url.QueryEscape(uid)+".json")
}

// RecordUnshaped leaves a record for status and the doctor. That it cannot be written
// is logged: the pod's Event says the same.
func (d Dir) RecordUnshaped(log *slog.Logger, u *Unshaped) {
	path := d.unshapedPath(u.UID)
	u.note(u.Since)
	if err := Write(path, u); err != nil {
		log.Error("record of a pod without its limit not written", "path", path, "error", err)
	}
}

// ClearUnshaped removes the record of a pod, if there is one.
func (d Dir) ClearUnshaped(uid string) { _ = os.Remove(d.unshapedPath(uid)) }

// ForgetUnshaped removes all such records: an agent that starts looks at every pod
// itself.
func (d Dir) ForgetUnshaped() { _ = os.RemoveAll(d.path(unshapedDir)) }

// Unshaped returns the pods that run without a limit as the agent knows it, in the
// order of their UIDs.
func (d Dir) Unshaped() ([]Unshaped, error) {
	all, err := readRecords(d.path(unshapedDir), func(uid, why string) Unshaped { return Unshaped{Pod: "pod " + uid, UID: uid, Error: why} })
	for i := range all {
		all[i].Since = all[i].shown(all[i].Since)
		all[i].moment = moment{}
	}
	return all, err
}
