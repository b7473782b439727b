// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package k8s_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/e2e/k8s/page"
	"github.com/podweir/podweir/e2e/k8s/workload"
)

// envWrite names the directory that takes the page of what was measured.
const envWrite = "PODWEIR_WRITE_KUBERNETES"

// report is what the scenarios measured, for the page.
var report struct {
	sync.Mutex
	page.Page
}

// keepVersions adds what the cluster is made of to the page.
func keepVersions(t *testing.T) {
	t.Helper()
	helm, err := suite.Helm(t.Context(), "version", "--template", "{{.Version}}")
	if err != nil {
		t.Fatal(err)
	}
	containerd, err := suite.Members[0].Exec(t.Context(), "/node/components/containerd", "--version")
	if err != nil {
		t.Fatal(err)
	}
	report.Lock()
	defer report.Unlock()
	report.Versions = []page.Fact{
		{What: "Kubernetes", Value: kubectl(t, "get", "node", suite.Members[0].Name, "-o", "jsonpath={.status.nodeInfo.kubeletVersion}")},
		{What: "containerd", Value: containerd},
		{What: "Helm", Value: helm},
	}
}

// scenario is the name of the test.
func scenario(t *testing.T) string {
	t.Helper()
	return strings.TrimPrefix(t.Name(), "TestPrivileged")
}

// keepCap adds a direction of a measurement to the page.
func keepCap(t *testing.T, what string, d workload.Direction, withSeries bool) {
	t.Helper()
	c := page.Cap{Scenario: scenario(t), What: what, Direction: d.Name, Bits: d.Bits, Mean: d.Series.BitsPerSec()}
	if d.Bits > 0 {
		c.WorstSecond = d.WorstSecond()
		c.Excess = d.Series.Excess(float64(d.Bits))
		c.Used = d.Used()
	}
	if withSeries {
		c.Tenths = workload.Tenths(d.Series)
	}
	report.Lock()
	defer report.Unlock()
	report.Caps = append(report.Caps, c)
}

// keepFact adds a number or an observation to the page.
func keepFact(t *testing.T, what, format string, args ...any) {
	t.Helper()
	value := fmt.Sprintf(format, args...)
	t.Logf("%s: %s", what, value)
	report.Lock()
	defer report.Unlock()
	report.Facts = append(report.Facts, page.Fact{Scenario: scenario(t), What: what, Value: value})
}

// writeReport writes the page, if it is requested, as DATE-kubernetes.{json,md}.
func writeReport() error {
	dir := os.Getenv(envWrite)
	if dir == "" {
		return nil
	}
	report.Lock()
	defer report.Unlock()
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return err
	}
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		return fmt.Errorf("git describe: %w", err)
	}
	report.Date = time.Now().UTC().Format(time.DateOnly)
	report.Kernel = unix.ByteSliceToString(uts.Release[:])
	report.CPUs = runtime.NumCPU()
	report.Commit = strings.TrimSpace(string(commit))
	raw, err := json.MarshalIndent(&report.Page, "", " ")
	if err != nil {
		return err
	}
	base := filepath.Join(dir, report.Date+"-kubernetes")
	return errors.Join(os.WriteFile(base+".json", append(raw, '\n'), 0o644),
		os.WriteFile(base+".md", []byte(report.Markdown()), 0o644))
}
