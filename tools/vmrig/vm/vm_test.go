// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// A machine that was killed, or that went down without the command's status,
// shows its console; after the status nothing that befell it matters.
func TestFinish(t *testing.T) {
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for name, tt := range map[string]struct {
		ctx    context.Context
		status string
		boot   error
		reason string
	}{
		"killed":             {ctx: late, boot: errors.New("signal: killed"), reason: "killed, not done within 1m0s"},
		"panicked":           {ctx: t.Context(), reason: "it ended without the command's status"},
		"no emulator":        {ctx: t.Context(), boot: errors.New("qemu: exit status 1"), reason: "qemu: exit status 1"},
		"killed after it":    {ctx: late, status: "7", boot: errors.New("signal: killed")},
		"ended as it should": {ctx: t.Context(), status: "7"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			files := map[string]string{consoleFile: "line one\r\nBUG: soft lockup\r\n"}
			if tt.status != "" {
				files[statusFile] = tt.status
			}
			for file, text := range files {
				must.OK(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
			}
			result, err := finish(tt.ctx, dir, Options{Kernel: "6.1", Timeout: time.Minute}, tt.boot)
			if tt.status != "" {
				if err != nil || result.Status != 7 || len(result.Complaints) != 1 {
					t.Errorf("finish() = %+v, %v, want status 7 and one complaint", result, err)
				}
				return
			}
			var hang *HangError
			if !errors.As(err, &hang) || hang.Reason != tt.reason || hang.Console != "line one\nBUG: soft lockup\n" {
				t.Errorf("finish() = %v, want a hang for %q with the console", err, tt.reason)
			}
		})
	}
}

func TestComplaints(t *testing.T) {
	console := "[    1.0] quiet\n[    2.0] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1\n" +
		"[    2.5] " + BeginMark + "example.org/p\n[    3.0] Kernel panic - not syncing: x\n"
	want := []string{"[    2.0] WARNING: CPU: 0 PID: 1 at net/core/dev.c:1", "example.org/p: [    3.0] Kernel panic - not syncing: x"}
	if diff := cmp.Diff(want, complaints(console)); diff != "" {
		t.Errorf("complaints() mismatch (-want +got):\n%s", diff)
	}
}
