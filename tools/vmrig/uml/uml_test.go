// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package uml

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/tools/vmrig/guest"
)

func TestWithLoader(t *testing.T) {
	in := []byte("\x7fELF..." + interpreter + "\x00rest")
	out, err := withLoader(in)
	if err != nil {
		t.Fatal(err)
	}
	if len(out) != len(in) || !bytes.HasSuffix(out, []byte("rest")) {
		t.Errorf("withLoader() = %q: what follows the name has moved", out)
	}
	if !bytes.Contains(out, []byte("..."+loader+"\x00")) {
		t.Errorf("withLoader() = %q, want it to name %s", out, loader)
	}
	for _, bad := range []string{"", interpreter + "\x00" + interpreter + "\x00"} {
		if _, err := withLoader([]byte(bad)); err == nil {
			t.Errorf("withLoader(%q) = nil error, want an error", bad)
		}
	}
}

func TestModulesOf(t *testing.T) {
	dir := t.TempDir()
	if _, err := modulesOf(dir); err == nil || !strings.Contains(err.Error(), "vmrig setup") {
		t.Errorf("modulesOf an empty directory = %v, want an error that says what to do", err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "lib/modules/7.2.7"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := modulesOf(dir); err != nil || got != "7.2.7" {
		t.Errorf("modulesOf() = %q, %v, want 7.2.7", got, err)
	}
}

// The guest finds its job by a variable, which the kernel makes of an argument
// that has no dot in its name.
func TestArguments(t *testing.T) {
	line := strings.Join(arguments("/j/1", 512), " ")
	for _, want := range []string{"mem=512M", "initrd=/j/1/initramfs", guest.HostJobEnv + "=/j/1"} {
		if !strings.Contains(line, want) {
			t.Errorf("arguments() = %s, want %s in it", line, want)
		}
	}
	if strings.Contains(guest.HostJobEnv, ".") {
		t.Errorf("%s would be taken for a module's parameter", guest.HostJobEnv)
	}
}
