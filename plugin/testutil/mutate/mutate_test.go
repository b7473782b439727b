// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package mutate_test

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/mutate"
)

const planted = "PODWEIR_PLANTED"

// FuzzPlanted fails on inputs that are three changes away from its own, in the way that
// the environment names.
func FuzzPlanted(f *testing.F) {
	m := mutate.New(f)
	m.Add(uint8(1), true, "a", []byte(`{"items":[{}]}`))
	m.Fuzz(func(t *testing.T, n uint8, list bool, text string, raw []byte) {
		if n < 200 || list || !strings.Contains(text, "null") || !bytes.Contains(raw, []byte("[[")) {
			return
		}
		switch os.Getenv(planted) {
		case "error":
			t.Error("planted")
		case "fatal":
			t.Fatal("planted")
		case "panic":
			panic("planted")
		}
	})
}

func runPlanted(t *testing.T, dir, kind string, flags ...string) (string, error) {
	t.Helper()
	binary, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(binary, append([]string{"-test.v", "-test.run=^FuzzPlanted$"}, flags...)...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), planted+"="+kind)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// TestPlantedFaultIsFound: each way to fail is found, the same one with the same seed,
// and what is kept fails under go test.
func TestPlantedFaultIsFound(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"error", "fatal", "panic"} {
		var found [2]string
		for i := range found {
			dir := t.TempDir()
			out, err := runPlanted(t, dir, kind, "-mutate=1000000", "-mutate.seed=7")
			files, _ := filepath.Glob(filepath.Join(dir, "testdata/fuzz/FuzzPlanted/*"))
			if err == nil || len(files) != 1 || !strings.Contains(out, "planted") || !strings.Contains(out, filepath.Base(files[0])) {
				t.Fatalf("%s: error %v, files %v, want one that is named:\n%s", kind, err, files, out)
			}
			found[i] = filepath.Base(files[0])
			if out, err := runPlanted(t, dir, kind); err == nil || !strings.Contains(out, "FuzzPlanted/"+found[i]) {
				t.Errorf("%s: go test does not fail on the input:\n%s", kind, out)
			}
			if out, err := runPlanted(t, dir, ""); err != nil {
				t.Errorf("%s: without the fault the input fails:\n%s", kind, out)
			}
		}
		if found[0] != found[1] {
			t.Errorf("%s: the same seed found %v", kind, found)
		}
	}
}

// TestCorpusIsRead: what go test's fuzzer left is changed, too.
func TestCorpusIsRead(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	corpus := filepath.Join(dir, "cache")
	if err := os.MkdirAll(filepath.Join(corpus, "FuzzPlanted"), 0o755); err != nil {
		t.Fatal(err)
	}
	for content, good := range map[string]bool{
		"go test fuzz v1\nbyte('\\xff')\nbool(false)\nstring(\"null\")\n[]byte(\"[[[[\\x00\\\"\")\n": true,
		"go test fuzz v1\nbool(false)\n": false,
	} {
		if err := os.WriteFile(filepath.Join(corpus, "FuzzPlanted", "a"), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		// From its own input a thousand executions find nothing.
		out, err := runPlanted(t, dir, "panic", "-mutate=1000", "-mutate.seed=7", "-mutate.corpus="+corpus)
		if err == nil || strings.Contains(out, "panic: planted") != good {
			t.Errorf("error %v on %q:\n%s", err, content, out)
		}
	}
	if out, err := runPlanted(t, t.TempDir(), "panic", "-mutate=1000", "-mutate.seed=7"); err != nil {
		t.Errorf("without the corpus: %v\n%s", err, out)
	}
}
