// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery_test

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/agent/delivery"
	"github.com/podweir/podweir/plugin/testutil/mark"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var _ = mark.EveryTest(mark.NightlyKernels, "hardly anything in the package depends on the kernel")

// reader reads the directory as containerd does, without a pause.
type reader struct {
	mu       sync.Mutex
	readings int
	// torn says that a network that cannot be read is no fault.
	torn   bool
	faults []string
}

func (r *reader) count() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.readings
}

// watchNetwork reads until stop is called, and counts the readings and those that
// found no valid network, or one without podweir, or another network.
func (h *host) watchNetwork(t *testing.T, name string) (r *reader, stop func()) {
	t.Helper()
	r = &reader{}
	end, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-end:
				return
			default:
			}
			if h.bubble {
				pause(5 * time.Millisecond) // by the clock of the bubble, which would stand still
			}
			list, err := load(h.path(confDir))
			r.mu.Lock()
			r.readings++
			switch {
			case err != nil && (r.torn || h.bubble && errors.Is(err, fs.ErrNotExist)):
				// By the clock of a bubble a removal may come between the listing and the reading.
			case err != nil:
				r.faults = append(r.faults, err.Error())
			case list.Name != name:
				r.faults = append(r.faults, "another network: "+list.Name)
			case list.Plugins[len(list.Plugins)-1].Network.Type != conflist.Type:
				r.faults = append(r.faults, "podweir is not in the chain")
			}
			r.mu.Unlock()
		}
	}()
	return r, sync.OnceFunc(func() {
		close(end)
		<-done
		must.Len(t, fmt.Sprintf("faults in %d readings", r.readings), 0, r.faults)
	})
}

// inForce is the number of the network in force, -1 without a valid one with
// podweir.
func (h *host) inForce() int {
	list, err := load(h.path(confDir))
	if err != nil || !h.shaped() {
		return -1
	}
	n := -1
	_, _ = fmt.Sscanf(afterNumber(string(list.Plugins[0].Bytes)), "%d", &n)
	return n
}

func afterNumber(s string) string {
	_, after, _ := strings.Cut(s, `"number":`)
	return after
}

// A style is a way in which a primary CNI writes its file.
type style func(path, content string) error

func renames(path, content string) error {
	if err := os.WriteFile(path+".tmp", []byte(content), 0o644); err != nil {
		return err
	}
	return os.Rename(path+".tmp", path)
}

// writes empties the file, and fills it in two parts with pauses between.
func writes(path, content string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	half := len(content) / 2
	for _, part := range []string{content[:half], content[half:]} {
		pause(2 * time.Millisecond)
		if _, err := f.WriteString(part); err != nil {
			return errors.Join(err, f.Close())
		}
	}
	return f.Close()
}

// removes deletes the file before it writes the new one.
func removes(path, content string) error {
	if err := os.Remove(path); err != nil {
		return err
	}
	pause(3 * time.Millisecond)
	return os.WriteFile(path, []byte(content), 0o644)
}

// excludes renames its own file into place and everybody else's away, as an
// exclusive Cilium does (daemon/cmd/cni/config.go, v1.20.2).
func excludes(path, content string) error {
	if err := renames(path, content); err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return err
	}
	for _, e := range entries {
		other := filepath.Join(filepath.Dir(path), e.Name())
		if e.IsDir() || other == path || !slices.Contains([]string{".conf", ".conflist", ".json"}, filepath.Ext(other)) {
			continue
		}
		if err := os.Rename(other, other+conflist.BackupSuffix); err != nil {
			return err
		}
	}
	return nil
}

func pause(d time.Duration) { <-time.After(d) }

// rewrites is how often the primary CNI writes its file in TestRewrites;
// "make rewrites" has more.
var rewrites = flag.Int("rewrites", 40, "how often TestRewrites has each file written")

// TestRewrites has the primary CNI write its file again and again. At no
// reading is there no valid network, or one without podweir; the last writing is
// followed, and the primary's file stays as it was written.
func TestRewrites(t *testing.T) {
	mark.Slow(t, "it rewrites files 320 times and waits for the agent")
	times := *rewrites
	twoNetworks := simple()
	twoNetworks[confDir+"/87-other.conflist"] = network("other", 1, "ptp")
	for name, tc := range map[string]struct {
		files   map[string]string
		file    string
		network string
		types   []string
		config  func(*delivery.Config)
		write   style
	}{
		"renamed":                    {files: simple(), file: original, network: "n", types: []string{"ptp", "portmap"}, write: renames},
		"written in place":           {files: simple(), file: original, network: "n", types: []string{"ptp", "portmap"}, write: writes},
		"removed and written":        {files: simple(), file: original, network: "n", types: []string{"ptp", "portmap"}, write: removes},
		"another network behind":     {files: twoNetworks, file: original, network: "n", types: []string{"ptp"}, write: removes},
		"bandwidth in the chain":     {files: simple(), file: original, network: "n", types: []string{"ptp", "bandwidth"}, write: renames},
		"drop-in, exclusive Cilium":  {files: exclusive(nil), file: "05-cilium.conflist", network: "cilium", types: []string{"cilium-cni"}, config: recent, write: excludes},
		"drop-in, renamed elsewhere": {files: exclusive(nil), file: "05-cilium.conflist", network: "cilium", types: []string{"cilium-cni"}, config: recent, write: renames},
		"drop-in, written in place":  {files: exclusive(nil), file: "05-cilium.conflist", network: "cilium", types: []string{"cilium-cni"}, config: recent, write: writes},
	} {
		// One after the other: eight readers without a pause keep a writer from its file for as long as podweir waits for it.
		t.Run(name, func(t *testing.T) {
			h := newHost(t, tc.files)
			path, last := h.path(confDir+"/"+tc.file), ""
			_, stopRun := h.run(t, tc.config)
			must.OK(t, tc.write(path, network(tc.network, 0, tc.types...)))
			h.eventually(t, "podweir is in the chain", func() bool { return h.inForce() == 0 })
			r, stop := h.watchNetwork(t, tc.network)
			// The file in force is then the one that is written in place: what a reading
			// finds half written is not podweir's doing.
			r.mu.Lock()
			r.torn = name == "drop-in, written in place"
			r.mu.Unlock()
			for i := 1; i <= times; i++ {
				last = network(tc.network, i, tc.types...)
				must.OK(t, tc.write(path, last))
				// However slow the machine is, it reads as often as it writes.
				h.eventually(t, "the reader reads", func() bool { return r.count() >= i })
			}
			h.eventually(t, "the last writing is followed", func() bool { return h.inForce() == times })
			stop()
			must.Be(t, "the primary CNI's file", last, h.read(confDir+"/"+tc.file))
			must.Have(t, "the chain", strings.Join(h.chain(), " "), "!bandwidth")
			t.Logf("%d readings", r.readings)
			stopRun()
			must.Be(t, "the chain in force after the end", times, h.inForce())
		})
	}
}

// TestDirectoryIsReplaced follows the directory of conflists itself: renamed
// away and made again, and removed with its parent.
func TestDirectoryIsReplaced(t *testing.T) {
	t.Parallel()
	h := newHost(t, simple())
	h.tick = soon
	h.run(t, nil)
	h.eventually(t, "podweir is in the chain", h.shaped)
	must.OK(t, os.Rename(h.path(confDir), h.path(confDir)+".old"))
	h.write(t, confDir+"/"+original, network("n", 5, "ptp"))
	h.eventually(t, "podweir is in the new directory", func() bool { return h.inForce() == 5 })
	// podweir may write while it is removed.
	h.eventually(t, "the directory is removed", func() bool { return os.RemoveAll(h.path("etc/cni")) == nil })
	pause(100 * time.Millisecond)
	h.write(t, confDir+"/"+original, network("n", 6, "ptp"))
	h.eventually(t, "podweir is in the directory that came back", func() bool { return h.inForce() == 6 })
	must.OK(t, renames(h.path(confDir+"/"+original), network("n", 7, "ptp")))
	h.eventually(t, "the directory that came back is watched", func() bool { return h.inForce() == 7 })
}

// TestPrimaryIsGone never leaves podweir's file alone in front: the node would
// look ready.
func TestPrimaryIsGone(t *testing.T) {
	bubble(simple(), func(t *testing.T, h *host) {
		t.Helper()
		m, _ := h.run(t, nil)
		problem := func(want string) func() bool {
			return func() bool { return m.Decision().Problem == "podweir is not in the chain in force: "+want }
		}
		h.eventually(t, "podweir is in the chain", h.shaped)
		h.remove(t, confDir+"/"+original)
		h.eventually(t, "podweir's file is gone with its original", func() bool { return h.read(confDir+"/"+ours) == "" })
		h.eventually(t, "the agent says that there is no network", problem("/"+confDir+" has no network"))
		h.write(t, confDir+"/"+original, network("n", 2, "ptp"))
		h.eventually(t, "podweir is back", func() bool { return h.inForce() == 2 })
		h.write(t, confDir+"/"+original, "{")
		h.eventually(t, "podweir's file is gone from the broken one's front", func() bool { return h.read(confDir+"/"+ours) == "" })
		h.eventually(t, "the agent says that it is broken", problem("the runtime takes "+original+": is not JSON: unexpected end of JSON input at byte 1"))
		h.write(t, confDir+"/"+original, network("n", 3, "ptp"))
		h.eventually(t, "podweir is back again", func() bool { return h.inForce() == 3 })
		must.OK(t, os.Rename(h.path(confDir+"/"+original), h.path(confDir+"/20-y.conflist")))
		h.eventually(t, "podweir's file has the new name", func() bool {
			return h.read(confDir+"/"+ours) == "" && h.read(confDir+"/00-podweir-20-y.conflist") != ""
		})
	})(t)
}

// TestPrimaryStartsAnew restarts aws-node again and again: its socket goes and
// comes back, its file stays until it is written again. At no reading is podweir out
// of the chain.
func TestPrimaryStartsAnew(t *testing.T) {
	const file = confDir + "/10-aws.conflist"
	sockets := func(h *host, listens bool) {
		text := "Num       RefCount Protocol Flags    Type St Inode Path\n"
		if listens {
			text += "0000000000000000: 00000002 00000000 00010000 0001 01 20000 /var/run/aws-node/ipamd.sock\n"
		}
		h.write(t, "proc/1/net/unix", text)
	}
	bubble(map[string]string{file: network("aws-cni", 1, "aws-cni"), binDir + "/aws-cni": "x"}, func(t *testing.T, h *host) {
		t.Helper()
		sockets(h, false)
		h.run(t, nil)
		h.eventually(t, "podweir is in the chain, since pods could start without it", func() bool { return h.inForce() == 1 })
		_, stop := h.watchNetwork(t, "aws-cni")
		for i := 2; i <= 4; i++ {
			sockets(h, false)
			// Longer than podweir waits for a file that is gone.
			pause(1500 * time.Millisecond)
			sockets(h, true)
			must.OK(t, renames(h.path(file), network("aws-cni", i, "aws-cni")))
			h.eventually(t, "the new file is followed", func() bool { return h.inForce() == i })
		}
		stop()
	})(t)
}

// TestHalfWrittenChangesNothing leaves the primary CNI's file empty, torn and away: that says nothing about the node, and
// the delivery stays what it is. An agent that starts meanwhile goes by what its own files say, for as long as it takes.
func TestHalfWrittenChangesNothing(t *testing.T) {
	const file, dropIn = confDir + "/05-cilium.conflist", confDir + "/cilium/50-podweir.conf"
	bubble(exclusive(nil), func(t *testing.T, h *host) {
		t.Helper()
		m, stop := h.run(t, recent)
		h.eventually(t, "podweir is a drop-in", func() bool { return m.Decision().InForce })
		whole, want := h.read(file), h.read(dropIn)
		for name, breaks := range map[string]func(){
			"empty": func() { h.write(t, file, "") },
			"torn":  func() { h.write(t, file, whole[:len(whole)/2]) },
			"away":  func() { h.remove(t, file) },
		} {
			breaks()
			h.eventually(t, "podweir saw the file "+name, func() bool { return !m.Decision().InForce })
			if d := m.Decision(); d.Delivery != profiles.DropIn || d.Profile == "" || h.read(dropIn) != want {
				t.Errorf("while the file is %s: delivery %s, profile %q, drop-in %q; want that of before", name, d.Delivery, d.Profile, h.read(dropIn))
			}
			stop()
			m, stop = h.run(t, recent)
			h.eventually(t, "the next agent has decided", func() bool { return m.Decision().Delivery != "" })
			for range 15 {
				d := m.Decision()
				if d.Delivery != profiles.DropIn || d.Network != "cilium" || d.Entry+"\n" != want || h.read(dropIn) != want {
					t.Fatalf("started while the file is %s: %+v, drop-in %q; want that of before", name, d, h.read(dropIn))
				}
				pause(100 * time.Millisecond)
			}
			h.write(t, file, whole)
			h.eventually(t, "podweir is in the chain again", func() bool { return m.Decision().InForce && m.Decision().Profile != "" })
		}
	})(t)
}

// TestAnotherNetworkForAMoment: a file behind the primary CNI's is the first one while
// that is written. podweir does not join it, or it would keep the other network in
// front when the primary's is back.
func TestAnotherNetworkForAMoment(t *testing.T) {
	for name, tc := range map[string]struct {
		files  map[string]string
		file   string
		config func(*delivery.Config)
	}{
		"chain":   {simple(), original, nil},
		"drop-in": {exclusive(nil), "05-cilium.conflist", recent},
	} {
		t.Run(name, func(t *testing.T) {
			tc.files[confDir+"/87-other.conflist"] = network("other", 1, "ptp")
			bubble(tc.files, func(t *testing.T, h *host) {
				t.Helper()
				m, _ := h.run(t, tc.config)
				h.eventually(t, "podweir is in the chain", func() bool { return m.Decision().InForce })
				whole, before := h.read(confDir+"/"+tc.file), m.Decision()
				for range 5 {
					h.remove(t, confDir+"/"+tc.file)
					pause(300 * time.Millisecond)
					must.Len(t, "files that join the other network", 0, must.Get(filepath.Glob(h.path(confDir+"/00-podweir-87-*")))(t))
					if d := m.Decision(); d.Delivery != before.Delivery || d.Entry != before.Entry || d.Network != before.Network {
						t.Errorf("decision %+v meanwhile, want %+v", d, before)
					}
					h.write(t, confDir+"/"+tc.file, whole)
					h.eventually(t, "podweir is in the chain again", func() bool { return m.Decision().InForce })
					if d := m.Decision(); d.Delivery != before.Delivery || d.Network != before.Network {
						t.Errorf("decision %+v afterwards, want %+v", d, before)
					}
				}
				h.remove(t, confDir+"/"+tc.file)
				h.eventually(t, "podweir joins the other network, which stays", func() bool { return h.shaped() && m.Decision().Network == "other" })
			})(t)
		})
	}
}

// TestCiliumTurnsShared goes from the drop-in to the chain, because there is a bandwidth
// plugin to replace, and at no reading is podweir in neither.
func TestCiliumTurnsShared(t *testing.T) {
	bubble(exclusive(nil), func(t *testing.T, h *host) {
		t.Helper()
		m, _ := h.run(t, recent)
		h.eventually(t, "podweir is a drop-in", func() bool { return m.Decision().Delivery == profiles.DropIn && m.Decision().InForce })
		_, stop := h.watchNetwork(t, "cilium")
		h.write(t, settings+"/cni-exclusive", "false")
		must.OK(t, renames(h.path(confDir+"/05-cilium.conflist"), network("cilium", 2, "cilium-cni", "bandwidth")))
		began := time.Now()
		h.eventually(t, "podweir chains, and the drop-in is gone", func() bool {
			return h.read(confDir+"/00-podweir-05-.conflist") != "" && h.read(confDir+"/cilium/50-podweir.conf") == ""
		})
		must.AtLeast(t, "how long the drop-in stayed, until the change has settled", time.Second, time.Since(began))
		stop()
	})(t)
}

// TestCiliumTurnsExclusive changes the delivery when podweir's file is renamed,
// and does not fight.
func TestCiliumTurnsExclusive(t *testing.T) {
	h := newHost(t, exclusive(nil))
	h.write(t, settings+"/cni-exclusive", "false")
	h.write(t, confDir+"/05-cilium.conflist", network("cilium", 1, "cilium-cni", "bandwidth"))
	before := h.tree(t)
	m, stop := h.run(t, recent)
	file := h.path(confDir + "/00-podweir-05-.conflist")
	h.eventually(t, "podweir chains", func() bool { return m.Decision().Delivery == profiles.Chain && m.Decision().InForce })
	h.write(t, settings+"/cni-exclusive", "true")
	must.OK(t, excludes(h.path(confDir+"/05-cilium.conflist"), network("cilium", 2, "cilium-cni")))
	h.eventually(t, "podweir is a drop-in", func() bool { return m.Decision().Delivery == profiles.DropIn && h.inForce() == 2 })
	must.Is(t, "podweir's file in the directory of an exclusive CNI", os.ErrNotExist, must.Err(os.Stat(file)))
	stop()
	must.OK(t, m.Remove(t.Context()))
	for path := range h.tree(t) {
		if _, was := before[path]; !was {
			t.Errorf("%s is there after the removal", path)
		}
	}
}

// ciliumAgent answers as long as it is not away.
type ciliumAgent struct {
	away atomic.Bool
	// missed counts the questions while it is away.
	missed atomic.Int64
	// legacy says that its host routing is.
	legacy atomic.Bool
}

func (*ciliumAgent) Programs(context.Context) ([]string, error) { return nil, errAway }

func (a *ciliumAgent) Runtime(context.Context) (string, error) { return "", errors.ErrUnsupported }

func (a *ciliumAgent) TCX(context.Context) (bool, error) { return true, nil }

func (a *ciliumAgent) RuntimeNetwork(context.Context) (*detect.RuntimeNetwork, error) {
	return nil, errors.ErrUnsupported
}

func (a *ciliumAgent) CiliumAPI(_ context.Context, resource string) ([]byte, error) {
	if a.away.Load() {
		a.missed.Add(1)
		return nil, errAway
	}
	if resource != "/v1/healthz" {
		return nil, errAway
	}
	routing := "BPF"
	if a.legacy.Load() {
		routing = "Legacy"
	}
	return []byte(`{"cilium":{"msg":"1.20.2 (v1.20.2-abc)"},"datapath-mode":"veth","routing":{"intra-host-routing-mode":"` + routing + `"},` +
		`"bandwidth-manager":{"enabled":true}}`), nil
}

var errAway = errors.New("the agent is away")

// TestAgentThatStartsWhileCiliumsIsAway has the routing from the agent before it: until
// Cilium's answers, it does not move the queues of running pods.
func TestAgentThatStartsWhileCiliumsIsAway(t *testing.T) {
	bubble(exclusive(nil), func(t *testing.T, h *host) {
		t.Helper()
		agent := &ciliumAgent{}
		agent.legacy.Store(true)
		start := func() (*delivery.Manager, func()) {
			return h.run(t, func(c *delivery.Config) { recent(c); c.Live, c.Run = agent, h.path("run/podweir") })
		}
		m, stop := start()
		h.eventually(t, "the routing is known", func() bool { return m.Decision().Profile == "cilium-legacy-routing" && m.Decision().InForce })
		entry := m.Decision().Entry
		stop()
		agent.away.Store(true)
		m, _ = start()
		h.eventually(t, "the next agent has decided", func() bool { return m.Decision().InForce && agent.missed.Load() > 0 })
		if d := m.Decision(); d.Profile != "cilium-legacy-routing" || d.Entry != entry {
			t.Errorf("profile %s and entry %s, want those from before, %s", d.Profile, d.Entry, entry)
		}
		agent.legacy.Store(false)
		missed := agent.missed.Load()
		h.write(t, "run/cilium/cilium.sock", "")
		h.eventually(t, "the agent is asked in vain", func() bool { return agent.missed.Load() > missed })
		agent.away.Store(false)
		h.eventually(t, "another routing is seen", func() bool { return m.Decision().Profile == "cilium" })
	})(t)
}

// TestBandwidthManagerKeepsItsLimits: what Cilium enforces is left to it, also
// while its agent restarts.
func TestBandwidthManagerKeepsItsLimits(t *testing.T) {
	bubble(exclusive(nil), func(t *testing.T, h *host) {
		t.Helper()
		agent := &ciliumAgent{}
		m, _ := h.run(t, func(c *delivery.Config) { recent(c); c.Live = agent })
		left := func() bool {
			entry := m.Decision().Entry
			return strings.Contains(entry, `"egressShaper":"cilium"`) && strings.Contains(entry, `"ingressShaper":"cilium"`)
		}
		h.eventually(t, "both directions are left to Cilium", func() bool { return m.Decision().InForce && left() })
		must.Have(t, "the drop-in", h.read(confDir+"/cilium/50-podweir.conf"), `"egressShaper":"cilium"`)
		notes := strings.Join(m.Decision().Notes, " ")
		must.Have(t, "the notes", notes, "Cilium's bandwidth manager is on (version 1.20.2, host routing BPF)")
		must.Be(t, "warning", "", m.Decision().Warning)
		agent.away.Store(true)
		// Another chain makes the whole node be looked at again, and the second time
		// what came of the first is decided.
		for i, chain := range [][]string{{"cilium-cni", "portmap"}, {"cilium-cni"}} {
			missed := agent.missed.Load()
			h.write(t, confDir+"/05-cilium.conflist", network("cilium", 2+i, chain...))
			h.eventually(t, "the agent is asked in vain", func() bool { return agent.missed.Load() > missed })
		}
		if !left() {
			t.Errorf("entry %s while Cilium's agent is away, want the limits left to it", m.Decision().Entry)
		}
	})(t)
}

// TestBinaryIsRemoved puts the binary back, and leaves no chain that names it
// where it cannot.
func TestBinaryIsRemoved(t *testing.T) {
	bubble(simple(), func(t *testing.T, h *host) {
		t.Helper()
		m, _ := h.run(t, nil)
		h.eventually(t, "podweir is in the chain", h.shaped)
		h.remove(t, plugin)
		h.eventually(t, "the binary is back", func() bool { return h.read(plugin) != "" })
		must.OK(t, os.Rename(h.binary, h.binary+".away"))
		h.remove(t, plugin)
		h.eventually(t, "podweir is out of the chain and says why", func() bool {
			d := m.Decision()
			return !h.shaped() && !d.InForce && strings.Contains(d.Problem, h.binary)
		})
		must.OK(t, os.Rename(h.binary+".away", h.binary))
		h.eventually(t, "podweir is in the chain again", func() bool { return h.shaped() && h.read(plugin) != "" })
	})(t)
}

// TestOneAtATime keeps others off while an agent runs, and lets the next agent
// wait.
func TestOneAtATime(t *testing.T) {
	t.Parallel()
	h := newHost(t, simple())
	_, stop := h.run(t, nil)
	h.eventually(t, "podweir is in the chain", h.shaped)
	other := h.manager(t, nil)
	must.Fail(t, "Install()", must.Err(other.Install(t.Context())), delivery.ErrRunning.Error())
	must.Fail(t, "Remove()", other.Remove(t.Context()), delivery.ErrRunning.Error())
	next, _ := h.run(t, func(c *delivery.Config) { c.Defaults = map[string]any{"policy": "flat"} })
	stop()
	h.eventually(t, "the next agent has taken over", func() bool {
		return next.Decision().InForce && strings.Contains(h.read(confDir+"/"+ours), `"policy":"flat"`)
	})
}

// TestCrash leaves what a killed agent may leave, and wants it swept.
func TestCrash(t *testing.T) {
	t.Parallel()
	h := newHost(t, simple())
	h.install(t, nil)
	left := confDir + "/.podweir-12345.tmp"
	h.write(t, left, "half")
	h.run(t, nil)
	h.eventually(t, "what was left half written is gone", func() bool { return h.read(left) == "" })
}

// TestDecisionsAreTold once each.
func TestDecisionsAreTold(t *testing.T) {
	bubble(simple(), func(t *testing.T, h *host) {
		t.Helper()
		var mu sync.Mutex
		var told []delivery.Decision
		h.run(t, func(c *delivery.Config) {
			c.OnDecision = func(d delivery.Decision) {
				mu.Lock()
				defer mu.Unlock()
				told = append(told, d)
			}
		})
		h.eventually(t, "podweir is in the chain", h.shaped)
		pause(1500 * time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		must.Be(t, "in force", true, must.Len(t, "decisions", 1, told)[0].InForce)
	})(t)
}
