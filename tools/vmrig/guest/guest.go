// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package guest is what runs as process 1 of a virtual machine: it makes the
// host's root file system its own, runs one command there and powers off.
package guest

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Names that both sides agree on.
const (
	// InitPath is where the initial file system holds this program.
	InitPath = "/init"
	// ModulesFile lists paths in the initial file system, in loading order.
	ModulesFile = "/modules"
	// RootTag and JobTag are the tags of the shared file systems: the host's
	// root, and the directory of this job.
	RootTag = "vmrig-root"
	JobTag  = "vmrig-job"

	// SpecFile, StdoutFile, StderrFile and StatusFile are in the job's
	// directory; the last appears when the command has ended and holds its exit
	// status.
	SpecFile   = "spec.json"
	StdoutFile = "stdout"
	StderrFile = "stderr"
	StatusFile = "status"
)

// jobDir is where the guest sees the job's directory. /run is the guest's own.
const jobDir = "/run/vmrig"

// Job is what the guest is to do.
type Job struct {
	// Hostname tells the kernels apart in logs.
	Hostname string
	// ModulesDir is the host's directory that holds lib/modules/<release>.
	ModulesDir string
	// Args is the command, found by PATH of Env, and run in Dir.
	Args []string
	Dir  string
	Env  []string
}

// IsInit reports whether this process is process 1 of a virtual machine.
func IsInit() bool {
	return os.Getpid() == 1 && os.Args[0] == InitPath
}

// Init does the whole of the guest's work and powers off. It does not return.
func Init() {
	if err := run(); err != nil {
		// The console is all there is until the job's directory is mounted.
		fmt.Fprintln(os.Stderr, "vmrig guest:", err)
	}
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

func run() error {
	if err := enterHostRoot(); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(jobDir, SpecFile))
	if err != nil {
		return err
	}
	var job Job
	if err := json.Unmarshal(data, &job); err != nil {
		return fmt.Errorf("read the job: %w", err)
	}
	if err := prepare(job); err != nil {
		return err
	}
	status, err := execute(job)
	if err != nil {
		return err
	}
	tmp := filepath.Join(jobDir, StatusFile+".tmp")
	if err := os.WriteFile(tmp, fmt.Append(nil, status), 0o644); err != nil {
		return err
	}
	return os.Rename(tmp, filepath.Join(jobDir, StatusFile))
}

// statusNotFound is what shells answer where a command cannot be started.
const statusNotFound = 127

// execute runs the job's command and returns its exit status.
func execute(job Job) (int, error) {
	for _, kv := range job.Env {
		if path, ok := strings.CutPrefix(kv, "PATH="); ok {
			if err := os.Setenv("PATH", path); err != nil {
				return 0, err
			}
		}
	}
	stdout, err := os.OpenFile(filepath.Join(jobDir, StdoutFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stdout.Close() }()
	stderr, err := os.OpenFile(filepath.Join(jobDir, StderrFile), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		return 0, err
	}
	defer func() { _ = stderr.Close() }()
	cmd := exec.Command(job.Args[0], job.Args[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = job.Dir, job.Env, stdout, stderr
	if err := cmd.Run(); cmd.ProcessState == nil {
		fmt.Fprintln(stderr, "vmrig guest:", err)
		return statusNotFound, nil
	}
	// A command that a signal ended counts as in a shell.
	if ws, ok := cmd.ProcessState.Sys().(unix.WaitStatus); ok && ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	if code := cmd.ProcessState.ExitCode(); code >= 0 {
		return code, nil
	}
	return 128, nil
}
