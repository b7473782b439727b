// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package pins_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/quick"
	"time"

	"github.com/podweir/podweir/plugin/attach"
	"github.com/podweir/podweir/plugin/pins"
	"github.com/podweir/podweir/plugin/testutil"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func checkName(t *testing.T, name string) {
	t.Helper()
	file, err := pins.Encode(name)
	if err != nil {
		if name != "" && len(name)*3 <= 255 {
			t.Errorf("Encode(%q) = %v, want a name", name, err)
		}
		return
	}
	if strings.ContainsAny(file, "./*?[]\\\x00,") || len(file) > 255 || file == "" {
		t.Errorf("Encode(%q) = %q, which bpffs or a glob would not take", name, file)
	}
	must.Be(t, "what Decode makes of "+file, name, must.Get(pins.Decode(file))(t))
}

func TestEncodeIsReversible(t *testing.T) {
	property := func(b []byte) bool {
		checkName(t, string(b))
		return !t.Failed()
	}
	must.OK(t, quick.Check(property, &quick.Config{MaxCount: 5000}))
	for _, name := range []string{
		"", "a", "cbr0", "eth0", ".", "..", "eth0.100", "k8s-pod-network", "a/b", "a%2eb", "%", ",",
		"Netz ü", strings.Repeat("f", 64), strings.Repeat("f", 255), strings.Repeat("f", 256), strings.Repeat(".", 86),
	} {
		checkName(t, name)
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{"a", "%2e", "%2E", "%61", "%", "%2", "a.b", ""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, file string) {
		// Every file name that is taken is the only one of its name.
		name, err := pins.Decode(file)
		if err != nil {
			return
		}
		must.Be(t, "Encode of what Decode made of it", file, must.Get(pins.Encode(name))(t))
	})
}

func TestOpenElsewhere(t *testing.T) {
	dir := t.TempDir()
	_, err := pins.Open(filepath.Join(dir, "a", "b"))
	must.Is(t, "Open", pins.ErrNotBPFFS, err, dir)
}

func newStore(tb testing.TB) *pins.Store {
	tb.Helper()
	return must.Get(pins.Open(filepath.Join(testutil.BPFFS(tb), "podweir")))(tb)
}

func TestPrivilegedListAndRemove(t *testing.T) {
	s := newStore(t)
	must.Be(t, "attachments of an empty store", 0, len(must.Get(s.List())(t)))
	id := strings.Repeat("0123456789abcdef", 4)
	keys := []attach.ID{
		{Network: "cbr0", ContainerID: id, IfName: "eth0"},
		{Network: "cbr0", ContainerID: id, IfName: "eth0.1"},
		{Network: "cbr0", ContainerID: id[1:], IfName: "eth0"},
		{Network: "net/two.x", ContainerID: id, IfName: "eth0"},
	}
	for _, k := range keys {
		for _, device := range []string{k.IfName, "net1"} {
			dir := must.Get(s.MakeDevice(k, device))(t)
			// bpffs takes directories, links and pinned objects only.
			must.OK(t, os.Symlink("x", filepath.Join(dir, "egress-program")))
		}
	}
	// Not ours: what Encode does not give.
	must.OK(t, os.Mkdir(filepath.Join(s.Root(), "cbr0", "some thing"), 0o700))
	got := must.Get(s.List())(t)
	must.Len(t, "List", len(keys), got)
	// Of a container's interface, whatever the network.
	renamed := keys[1]
	renamed.Network = "renamed"
	if found, ok, err := s.Find(renamed); err != nil || !ok || found != keys[1] {
		t.Errorf("Find(%v) = %v, %v, %v, want %v", renamed, found, ok, err, keys[1])
	}
	must.Match(t, "Devices", []string{"eth0.1", "net1"}, must.Get(s.Devices(keys[1]))(t))
	for range 2 {
		must.OK(t, s.RemoveDevice(keys[1], "net1"))
	}
	must.Match(t, "Devices after RemoveDevice", []string{"eth0.1"}, must.Get(s.Devices(keys[1]))(t))
	must.OK(t, s.RemoveDevice(keys[1], "eth0.1"))
	for _, k := range append(keys, keys...) {
		unlock := must.Get(s.Lock(t.Context(), k))(t)
		must.OK(t, s.Remove(k)) // also if it is gone
		unlock()
	}
	must.Be(t, "attachments after Remove", 0, len(must.Get(s.List())(t)))
	must.Len(t, "networks left, only that with the foreign directory", 1, must.Get(os.ReadDir(s.Root()))(t))
	must.Is(t, "Path(too long)", pins.ErrName, must.Err(s.Path(attach.ID{Network: "n", ContainerID: strings.Repeat("f", 252), IfName: "eth0"})))
	must.Is(t, "Path(no container ID)", pins.ErrName, must.Err(s.Path(attach.ID{Network: "n", IfName: "eth0"})))
}

// An index finds at once what comes and goes, also what does within one tick of the kernel's clock, and does
// not read what did not change.
func TestPrivilegedIndex(t *testing.T) {
	s := newStore(t)
	x := s.Index()
	same := func(what string) map[attach.ID][]string {
		t.Helper()
		want := make(map[attach.ID][]string)
		keys := must.Get(s.List())(t)
		for _, k := range keys {
			devices := must.Get(s.Devices(k))(t)
			for _, device := range devices {
				dir := must.Get(s.DevicePath(k, device))(t)
				want[k] = append(want[k], dir)
			}
		}
		got := must.Get(x.Devices())(t)
		must.Match(t, fmt.Sprintf("%s: attachments", what), want, got)
		return want
	}
	same("nothing is there")
	random := rand.New(rand.NewPCG(1, 2))
	key := func(i int) attach.ID {
		return attach.ID{Network: fmt.Sprint("net.", i%3), ContainerID: fmt.Sprint("c", i%7), IfName: "eth0"}
	}
	for i := range 300 {
		k := key(random.IntN(21))
		switch random.IntN(4) {
		case 0:
			must.OK(t, s.Remove(k))
		case 1:
			must.OK(t, s.RemoveDevice(k, "net1"))
		default:
			must.OK(t, must.Err(s.MakeDevice(k, []string{"eth0", "net1"}[random.IntN(2)])))
		}
		same(fmt.Sprint("change ", i))
	}
	dir := must.Get(s.MakeDevice(key(0), "eth0"))(t)
	parent := filepath.Dir(dir)
	old := time.Now().Add(-time.Hour)
	must.OK(t, os.Chtimes(parent, old, old))
	before := same("an hour ago")
	must.OK(t, must.Err(s.MakeDevice(key(0), "net2")))
	must.OK(t, os.Chtimes(parent, old, old))
	must.Match(t, "Devices, whose directory says that nothing changed", before, must.Get(x.Devices())(t))
	must.OK(t, os.Chtimes(parent, old, old.Add(time.Minute)))
	same("it changed")
}

// The lock excludes everybody else from one attachment, and leaves nothing behind. A turn is the same lock, and does not
// wait for it.
func TestPrivilegedLockExcludes(t *testing.T) {
	s := newStore(t)
	a, b := attach.ID{Network: "n", ContainerID: "a", IfName: "eth0"}, attach.ID{Network: "n", ContainerID: "b", IfName: "eth0"}
	must.Fail(t, "Turn of what has no directory", must.Err(s.Turn(a)))
	must.OK(t, must.Err(s.MakeDevice(a, "eth0")))
	turn := must.Get(s.Turn(a))(t)
	defer turn.Close()
	locked := func(while string) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		must.Is(t, "Lock while "+while, context.DeadlineExceeded, must.Err(s.Lock(ctx, a)))
	}
	for range 2 {
		unlock := must.Get(s.Lock(t.Context(), a))(t)
		locked("another one has the lock")
		if turn.Take() {
			t.Error("the turn was taken while another one had the lock")
		}
		other := must.Get(s.Lock(t.Context(), b))(t)
		other()
		unlock()
		if !turn.Take() {
			t.Fatal("the turn was not taken while nobody had the lock")
		}
		locked("another one has its turn")
		turn.Give()
	}
	must.Match(t, "List after Lock and unlock", []attach.ID{a}, must.Get(s.List())(t))
}

// Holders make and remove the directory under each other's feet; never do two
// hold the lock at once.
func TestPrivilegedLockOfWhatComesAndGoes(t *testing.T) {
	s := newStore(t)
	k := attach.ID{Network: "n", ContainerID: "a", IfName: "eth0"}
	var holders, entries atomic.Int32
	var wg sync.WaitGroup
	for w := range 8 {
		wg.Go(func() {
			for i := range 40 {
				unlock, err := s.Lock(t.Context(), k)
				if err != nil {
					t.Errorf("Lock = %v", err)
					return
				}
				must.Be(t, "who holds the lock", 1, holders.Add(1))
				if _, err := s.MakeDevice(k, fmt.Sprintf("d%d", w)); err != nil {
					t.Error(err)
				}
				if (i+w)%2 == 0 {
					if err := s.Remove(k); err != nil {
						t.Error(err)
					}
				}
				if (i+w)%3 == 0 {
					runtime.Gosched()
				}
				entries.Add(1)
				holders.Add(-1)
				unlock()
			}
		})
	}
	wg.Wait()
	must.Be(t, "entries", 8*40, entries.Load())
}

const lockHelper = "PODWEIR_TEST_LOCK_ROOT"

// A process that dies lets go of the lock.
func TestPrivilegedLockEndsWithItsProcess(t *testing.T) {
	testutil.RequireRoot(t)
	k := attach.ID{Network: "n", ContainerID: "a", IfName: "eth0"}
	if root := os.Getenv(lockHelper); root != "" {
		holdForever(t, root, k)
		return
	}
	s := newStore(t)
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestPrivilegedLockEndsWithItsProcess$")
	cmd.Env = append(os.Environ(), lockHelper+"="+s.Root())
	out := must.Get(cmd.StdoutPipe())(t)
	must.OK(t, cmd.Start())
	must.OK(t, must.Err(out.Read(make([]byte, 1))))
	short, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	must.Is(t, "Lock while another process holds it", context.DeadlineExceeded, must.Err(s.Lock(short, k)))
	must.OK(t, cmd.Process.Kill())
	_ = cmd.Wait()
	unlock, err := s.Lock(t.Context(), k)
	if err != nil {
		t.Fatalf("Lock after the other process was killed = %v", err)
	}
	unlock()
}

func holdForever(t *testing.T, root string, k attach.ID) {
	t.Helper()
	s := must.Get(pins.Open(root))(t)
	must.OK(t, must.Err(s.Lock(t.Context(), k)))
	_, _ = os.Stdout.WriteString("x")
	// A timer, because a program whose goroutines all wait for one another is
	// ended by Go's runtime, if no cgo thread is there to save it.
	<-time.After(time.Hour)
}

// A device that one attachment takes over from another is noted at every moment, and a half made note is no obstacle.
func TestPrivilegedHoldWithoutAGap(t *testing.T) {
	s := newStore(t)
	keys := []attach.ID{{Network: "n", ContainerID: "a", IfName: "eth0"}, {Network: "n", ContainerID: "b", IfName: "eth0"}}
	must.OK(t, s.Hold("1-2", keys[0]))
	must.OK(t, os.Symlink("left", filepath.Join(s.Root(), "holders,", "1-2-next")))
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		defer close(ended)
		for i := range 2000 {
			if err := s.Hold("1-2", keys[i%2]); err != nil {
				t.Errorf("Hold = %v", err)
			}
			if k, _, err := s.Holder("1-2"); err != nil || k != keys[i%2] {
				t.Errorf("Holder = %v, %v, want %v", k, err, keys[i%2])
			}
		}
	})
	for looks := true; looks && !t.Failed(); {
		if _, found, err := s.Holder("1-2"); err != nil || !found {
			t.Errorf("Holder = %v, %v while others take the device over", found, err)
		}
		select {
		case <-ended:
			looks = false
		default:
		}
	}
	wg.Wait()
	must.OK(t, os.Symlink("left", filepath.Join(s.Root(), "holders,", "1-2-next")))
	must.OK(t, s.LetGo("1-2", keys[1]))
	must.Be(t, "notes of a device that nobody has", 0, len(must.Get(os.ReadDir(filepath.Join(s.Root(), "holders,")))(t)))
	// An older release knows of no notes: what it removed leaves them.
	_, err := s.MakeDevice(keys[1], "eth0")
	must.OK(t, errors.Join(err, s.Hold("1-2", keys[0]), s.Hold("1-3", keys[1]), s.RemoveLeftHolders()))
	if left, err := os.ReadDir(filepath.Join(s.Root(), "holders,")); err != nil || len(left) != 1 || left[0].Name() != "1-3" {
		t.Errorf("left are %v, %v, want the device of the attachment that is there", left, err)
	}
}
