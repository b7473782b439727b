// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"
)

// Overdue tells that the agent has waited too long for the network of a running
// pod that has a limit. It names the pod and not an attachment: the runtime may
// not even have a sandbox of it.
type Overdue struct {
	Pod   string    `json:"pod"`
	UID   string    `json:"uid"`
	Since time.Time `json:"since"`
	Error string    `json:"error"`
}

func (p Paths) overdueDir() string { return filepath.Join(p.Run, "overdue") }

func (p Paths) overduePath(uid string) string {
	return filepath.Join(p.overdueDir(), url.QueryEscape(uid)+".json")
}

// RecordOverdue leaves a record for the doctor. That it cannot be written is
// logged: the pod's Event says the same.
func (p Paths) RecordOverdue(log *slog.Logger, o *Overdue) {
	path := p.overduePath(o.UID)
	if err := writeJSON(path, o); err != nil {
		log.Error("record of an overdue pod not written", "path", path, "error", err)
	}
}

// ClearOverdue removes the record of a pod, if there is one.
func (p Paths) ClearOverdue(uid string) { _ = os.Remove(p.overduePath(uid)) }

// ForgetOverdue removes all such records: an agent that starts knows nothing of
// what the one before it waited for.
func (p Paths) ForgetOverdue() { _ = os.RemoveAll(p.overdueDir()) }

// Overdue returns the pods that the agent waits for, in the order of their UIDs.
func (p Paths) Overdue() ([]Overdue, error) {
	return readRecords[Overdue](p.overdueDir())
}
