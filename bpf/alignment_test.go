// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package bpf_test

import (
	"errors"
	"testing"

	"github.com/cilium/ebpf"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf"
	"github.com/podweir/podweir/bpf/bpftest"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// The loader says that addresses in packets may have any alignment. A kernel that was
// built without CONFIG_HAVE_EFFICIENT_UNALIGNED_ACCESS refuses the programs otherwise;
// every kernel does so where strict alignment is requested. Programs that are not
// refused do not need what the loader says.
func TestPrivilegedProgramsNeedAnyAlignment(t *testing.T) {
	mark.NightlyKernels(t, "it loads every program twice, which takes an emulated processor minutes")
	bpftest.RequireRoot(t)
	spec, err := bpf.LoadPodweir()
	must.OK(t, err)
	load := func(name string, flags uint32) error {
		one := oneProgram(t, name)
		one.Programs[name].Flags = flags
		c, err := ebpf.NewCollection(one)
		if err == nil {
			c.Close()
		}
		return err
	}
	refused := 0
	for name := range spec.Programs {
		err := load(name, unix.BPF_F_STRICT_ALIGNMENT)
		if errors.Is(err, unix.EACCES) {
			refused++
		} else if err != nil {
			t.Errorf("%s with strict alignment: %v", name, err)
		}
		if err := load(name, unix.BPF_F_STRICT_ALIGNMENT|unix.BPF_F_ANY_ALIGNMENT); err != nil {
			t.Errorf("%s with any alignment: %v", name, err)
		}
	}
	if refused == 0 {
		t.Errorf("none of %d programs is refused with strict alignment: the loader need not say that any will do", len(spec.Programs))
	}
	t.Logf("%d of %d programs are refused with strict alignment", refused, len(spec.Programs))
}
