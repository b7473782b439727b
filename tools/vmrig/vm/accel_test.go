// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"errors"
	"os"
	"sync"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

// The reason is what an operator can look for: what qemu says of KVM, if it says
// something, else how the trial ended.
func TestJudge(t *testing.T) {
	const msr = "qemu-system-x86_64: error: failed to set MSR 0x10a to 0xc000069"
	for name, tt := range map[string]struct {
		result Result
		err    error
		want   verdict
	}{
		"boots":                {Result{}, nil, verdict{Works: true}},
		"hangs":                {Result{}, &HangError{Kernel: "6.1", Reason: "killed, not done within 20s", Console: "SeaBIOS"}, verdict{Why: "killed, not done within 20s"}},
		"qemu gives up":        {Result{}, &HangError{Reason: "qemu: signal: aborted\n" + msr + "\nAssertion failed\n"}, verdict{Why: msr}},
		"qemu says nothing":    {Result{}, &HangError{Reason: "qemu: exit status 1\n"}, verdict{Why: "qemu: exit status 1"}},
		"the guest cannot run": {Result{Status: 127}, nil, verdict{Why: "true(1) ended with status 127"}},
		"no file server":       {Result{}, errors.New("virtiofsd: exit status 1"), verdict{Why: "virtiofsd: exit status 1"}},
	} {
		if got := judge(tt.result, tt.err); got != tt.want {
			t.Errorf("%s: judge() = %+v, want %+v", name, got, tt.want)
		}
	}
}

// One trial serves everybody until the host boots again or the kernel is another; one
// that was interrupted, and a file that cannot be read, serve nobody.
func TestRemember(t *testing.T) {
	c := &Cache{t.TempDir()}
	trials := 0
	ask := func(now, found verdict, err error) (verdict, error) {
		return c.remember("6.1", now, func() (verdict, error) { trials++; return found, err })
	}
	first, later, update, unknown := verdict{Boot: "a", Release: "6.1.0-1"}, verdict{Boot: "b", Release: "6.1.0-1"},
		verdict{Boot: "b", Release: "6.1.0-2"}, verdict{Release: "6.1.0-2"}
	boots, hangs := verdict{Works: true}, verdict{Why: "a reason that is longer than none"}
	for i, tt := range []struct {
		now, found verdict
		err        error
		trials     int
		works      bool
	}{
		{first, verdict{}, os.ErrDeadlineExceeded, 1, false},
		{first, boots, nil, 2, true},
		{first, hangs, nil, 2, true},
		{later, hangs, nil, 3, false},
		{later, boots, nil, 3, false},
		{update, boots, nil, 4, true},
		{unknown, hangs, nil, 5, false},
		{unknown, boots, nil, 6, true},
	} {
		v, err := ask(tt.now, tt.found, tt.err)
		if !errors.Is(err, tt.err) || v.Works != tt.works || trials != tt.trials {
			t.Errorf("%d: remember() = %+v, %v after %d trials, want works %v, %v after %d", i, v, err, trials, tt.works, tt.err, tt.trials)
		}
	}
	must.OK(t, os.WriteFile(c.dir+"/kvm-6.1.json", []byte("{"), 0o600))
	trials = 0
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			if v, err := ask(verdict{Boot: "c", Release: "6.1.0-2"}, boots, nil); err != nil || !v.Works {
				t.Errorf("remember() = %+v, %v, want that it works", v, err)
			}
		})
	}
	group.Wait()
	if trials != 1 {
		t.Errorf("%d trials for eight machines at once, want 1", trials)
	}
}
