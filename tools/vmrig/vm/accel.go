// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// Accel is what runs a machine's processors.
type Accel string

const (
	// AccelAuto is KVM where a trial boot under it succeeds, else TCG.
	AccelAuto Accel = "auto"
	// AccelKVM is the host's processors. A machine that does not boot there fails.
	AccelKVM Accel = "kvm"
	// AccelTCG is qemu's own translator: some 20 times slower, and the same on every host.
	AccelTCG Accel = "tcg"
)

// AccelEnv is the environment variable that has the default of -accel.
const AccelEnv = "VMRIG_ACCEL"

// ParseAccel reads the name of an Accel; "" is AccelAuto.
func ParseAccel(name string) (Accel, error) {
	switch a := Accel(name); a {
	case "":
		return AccelAuto, nil
	case AccelAuto, AccelKVM, AccelTCG:
		return a, nil
	}
	return "", fmt.Errorf("accelerator %q is none of auto, kvm, tcg", name)
}

// args are qemu's arguments for the accelerator.
func (a Accel) args() []string {
	if a == AccelKVM {
		return []string{"-accel", "kvm", "-cpu", "host"}
	}
	// Wide vectors and five levels of page tables, which newer processors have, take the
	// translator more time than they save. rdrand seeds the kernel.
	return []string{"-accel", fmt.Sprintf("tcg,thread=multi,tb-size=%d", tbMiB), "-cpu", "Nehalem,+rdrand"}
}

// probeTime is how long a trial boot may take. A machine that boots under KVM needs some
// 2 s. On some hosts that are virtual machines themselves it hangs after its firmware.
const probeTime = 20 * time.Second

// verdict is what a trial boot found. It holds for one release of a kernel, until the
// host boots again.
type verdict struct {
	// Boot is the host's boot_id, Release the kernel's.
	Boot, Release string
	// Works says that the kernel boots under KVM, Why why it does not.
	Works bool
	Why   string `json:",omitempty"`
}

// judge is the verdict of a trial boot that ended so.
func judge(result Result, err error) verdict {
	v := verdict{Works: err == nil && result.Status == 0}
	switch hang := (*HangError)(nil); {
	case errors.As(err, &hang):
		how, said, _ := strings.Cut(hang.Reason, "\n")
		// What qemu said is more than how it ended.
		if v.Why, _, _ = strings.Cut(strings.TrimSpace(said), "\n"); v.Why == "" {
			v.Why = how
		}
	case err != nil:
		v.Why = err.Error()
	case !v.Works:
		v.Why = fmt.Sprintf("true(1) ended with status %d", result.Status)
	}
	return v
}

// Accel returns what runs the machines of a kernel where want is requested. For
// AccelAuto it boots the kernel under KVM, for at most 20 s, unless that was tried since
// the host booted; it says on w why it takes TCG then. It fails for a kernel that is not
// in the cache.
func (c *Cache) Accel(ctx context.Context, kernel string, want Accel, w io.Writer) (Accel, error) {
	release, err := c.Release(kernel)
	if err != nil || want == AccelKVM || want == AccelTCG {
		return want, err
	}
	if !haveKVM() {
		return AccelTCG, nil
	}
	v, err := c.remember(kernel, verdict{Boot: bootID(), Release: release}, func() (verdict, error) {
		result, err := c.run(ctx, Options{
			Kernel: kernel, Accel: AccelKVM, CPUs: 1, MemMiB: 512, Timeout: probeTime,
			Args: []string{"true"}, Dir: "/", Env: os.Environ(), Stdout: io.Discard, Stderr: io.Discard,
		})
		if ctx.Err() != nil {
			return verdict{}, ctx.Err()
		}
		v := judge(result, err)
		if !v.Works {
			fmt.Fprintf(w, "vmrig: kernel %s does not boot under KVM on this host, so it is emulated: %s\n", kernel, v.Why)
		}
		return v, nil
	})
	if err != nil {
		return "", err
	}
	if v.Works {
		return AccelKVM, nil
	}
	return AccelTCG, nil
}

// haveKVM says that qemu can open the device, which most containers do not have.
func haveKVM() bool {
	f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0)
	return err == nil && f.Close() == nil
}

// remember returns the verdict on a kernel that the cache has for this boot and this
// release, or tries and keeps what is found. Whoever asks meanwhile, in this process or
// another, waits for that.
func (c *Cache) remember(kernel string, now verdict, try func() (verdict, error)) (verdict, error) {
	f, err := os.OpenFile(filepath.Join(c.dir, "kvm-"+kernel+".json"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return verdict{}, err
	}
	defer func() { _ = f.Close() }()
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return verdict{}, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	var v verdict
	if json.NewDecoder(f).Decode(&v) == nil && v.Boot == now.Boot && v.Release == now.Release && v.Boot != "" {
		return v, nil
	}
	if v, err = try(); err != nil {
		return verdict{}, err
	}
	v.Boot, v.Release = now.Boot, now.Release
	b, err := json.Marshal(v)
	if err != nil {
		return verdict{}, err
	}
	if err := f.Truncate(0); err != nil {
		return verdict{}, err
	}
	_, err = f.WriteAt(append(b, '\n'), 0)
	return v, err
}

// bootID is another one after each boot of the host, "" if it cannot be read.
func bootID() string {
	b, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}
