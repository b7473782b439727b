// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package engine

import (
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"time"

	"github.com/podweir/podweir/plugin/attach"
)

// Paths are where podweir keeps state: pins, and what may be deleted at any
// time (ruling 11).
type Paths struct {
	// Pins is a directory on bpffs.
	Pins string
	// Run is a directory on tmpfs: probe results and failure records.
	Run string
}

// DefaultPaths are those of a node.
var DefaultPaths = Paths{Pins: "/sys/fs/bpf/podweir", Run: "/run/podweir"}

// Failure tells that a pod runs unshaped, and why.
type Failure struct {
	ID attach.ID `json:"id"`
	// Pod is namespace/name, "" if the runtime did not tell it.
	Pod   string    `json:"pod,omitempty"`
	Time  time.Time `json:"time"`
	Error string    `json:"error"`
}

func (p Paths) failurePath(id attach.ID) string {
	return filepath.Join(p.Run, "failures", failureName(id))
}

// failureName leaves out the network: its name may change.
func failureName(id attach.ID) string {
	return url.QueryEscape(id.ContainerID) + "," + url.QueryEscape(id.IfName) + ".json"
}

// RecordFailure leaves a record for status and the agent. That it cannot be
// written is logged: it must not break the pod as well.
func (p Paths) RecordFailure(log *slog.Logger, id attach.ID, pod string, cause error) {
	p.ClearFailure(id)
	path := p.failurePath(id)
	if err := writeJSON(path, Failure{ID: id, Pod: pod, Time: time.Now().UTC(), Error: cause.Error()}); err != nil {
		log.Error("failure record not written", "path", path, "error", err)
	}
}

// ClearFailure removes the record of an attachment, if there is one, and those of
// releases that had the network's name in that of the file.
func (p Paths) ClearFailure(id attach.ID) {
	_ = os.Remove(p.failurePath(id))
	former, _ := filepath.Glob(filepath.Join(p.Run, "failures", "*,"+failureName(id)))
	for _, path := range former {
		_ = os.Remove(path)
	}
}

// Failures returns the attachments that could not be shaped.
func (p Paths) Failures() ([]Failure, error) {
	return readRecords[Failure](filepath.Join(p.Run, "failures"))
}
