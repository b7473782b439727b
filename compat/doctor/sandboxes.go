// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/plugin/terms"
)

// resultsDir is where libcni keeps, for each interface that it set up, the
// configuration and the arguments (libcni v1.3.0, api.go: CacheDir, cacheAdd).
func resultsDir(node *detect.Node) string {
	return path.Join(cmp.Or(node.Config.CacheDir, "var/lib/cni"), "results")
}

// Sandbox is an interface of a pod as the container runtime set it up.
type Sandbox struct {
	ContainerID, IfName, Network string
	// Pod is namespace/name, "" if the runtime did not say.
	Pod string
	// Limited are the directions that the pod requested a limit of.
	Limited []terms.Direction
	// Asks are the annotations by which the pod asks for a limit, or what the runtime passed
	// on, Misspelt those that look as if they should, with what may be meant. LeftTo is
	// whose limits it has instead, such as Calico, "" for nobody's.
	Asks     []terms.Ask
	Misspelt []terms.Misspelt
	LeftTo   string
	// Ended says that the container runtime does not list the pod as running: it stops a
	// pod before it takes the network down, and libcni keeps the result until that is done.
	Ended bool
	// Made is when its set-up ended.
	Made time.Time
	// NetNS is the path of its network namespace, "" if it is not known, Devices are the
	// host-side devices that the plugins said they made, Addresses what the runtime tells.
	NetNS     string
	Devices   []string
	Addresses []netip.Addr
}

func (s *Sandbox) String() string {
	if s.IfName == "" {
		return s.Pod
	}
	return cmp.Or(s.Pod, "container "+s.ContainerID) + " (" + s.IfName + ", network " + s.Network + ")"
}

// In says that a network namespace is the pod's: by its path or, where the runtime does not tell
// that, by the addresses in it.
func (s *Sandbox) In(netns string, addresses []netip.Addr) bool {
	if s.NetNS != "" {
		return netns == s.NetNS
	}
	return slices.ContainsFunc(s.Addresses, func(a netip.Addr) bool { return slices.Contains(addresses, a) })
}

// cachedResult are the fields of libcni's cachedInfo that are read here.
type cachedResult struct {
	Kind        string      `json:"kind"`
	ContainerID string      `json:"containerId"`
	IfName      string      `json:"ifName"`
	Network     string      `json:"networkName"`
	Args        [][2]string `json:"cniArgs"`
	Caps        struct {
		Bandwidth struct {
			Ingress uint64 `json:"ingressRate"`
			Egress  uint64 `json:"egressRate"`
		} `json:"bandwidth"`
	} `json:"capabilityArgs"`
	// NetNS is there from libcni 1.2 on.
	NetNS  string `json:"netns"`
	Result struct {
		Interfaces []struct {
			Name    string `json:"name"`
			Sandbox string `json:"sandbox"`
		} `json:"interfaces"`
	} `json:"result"`
}

// netns is the path of the pod's network namespace, "" if the result does not say.
func (c *cachedResult) netns() string {
	name := c.NetNS
	for _, i := range c.Result.Interfaces {
		// The VPC CNI keeps a number there, too.
		if name == "" && strings.HasPrefix(i.Sandbox, "/") {
			name = i.Sandbox
		}
	}
	return terms.NetNSPath(name)
}

// ended says that the network namespace of a result is gone: a plugin failed when the pod
// was deleted, or the node was booted since, and libcni kept the result. Where the node's
// files do not show it, nothing has ended.
func (c *cachedResult) ended(root fs.FS) bool {
	name := strings.TrimPrefix(c.netns(), "/")
	top, _, below := strings.Cut(name, "/")
	if !below || !fs.ValidPath(name) {
		return false
	}
	if _, err := fs.Stat(root, top); err != nil {
		return false
	}
	_, err := fs.Lstat(root, name)
	return errors.Is(err, fs.ErrNotExist)
}

// loopback is what containerd sets up beside the pod's network.
const loopback = "lo"

// maxCached bounds one cached result, in bytes: real ones have some 5 kB.
const maxCached = 1 << 20

// readSandboxes reads libcni's cache. Files of other kinds, those that are written at the
// moment and those of pods that are gone are left out.
func readSandboxes(root fs.FS, dir string) ([]Sandbox, error) {
	entries, err := fs.ReadDir(root, dir)
	if err != nil {
		return nil, err
	}
	out := []Sandbox{}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || info.Size() > maxCached {
			continue
		}
		b, err := fs.ReadFile(root, path.Join(dir, e.Name()))
		if errors.Is(err, fs.ErrNotExist) {
			continue // the pod ended
		}
		if err != nil {
			return nil, err
		}
		var c cachedResult
		if json.Unmarshal(b, &c) != nil || c.Kind != "cniCacheV1" {
			continue
		}
		// containerd gives the loopback device the pod's limits; nothing shapes it.
		if c.IfName == loopback || c.ended(root) {
			continue
		}
		s := c.sandbox()
		s.Made = info.ModTime()
		out = append(out, s)
	}
	return out, nil
}

func (c *cachedResult) sandbox() Sandbox {
	args := map[string]string{}
	for _, a := range c.Args {
		args[a[0]] = a[1]
	}
	s := Sandbox{ContainerID: c.ContainerID, IfName: c.IfName, Network: c.Network, NetNS: c.netns()}
	for i, rate := range []uint64{c.Caps.Bandwidth.Egress, c.Caps.Bandwidth.Ingress} {
		if d := terms.Directions[i]; rate > 0 {
			s.Limited, s.Asks = append(s.Limited, d), append(s.Asks, terms.RuntimeAsk(d, rate))
		}
	}
	for _, i := range c.Result.Interfaces {
		if i.Sandbox == "" {
			s.Devices = append(s.Devices, i.Name)
		}
	}
	if name := args["K8S_POD_NAME"]; name != "" {
		s.Pod = args["K8S_POD_NAMESPACE"] + "/" + name
	}
	return s
}

func checkUnattached(f *Facts) Outcome {
	switch {
	case errors.Is(f.SandboxesErr, fs.ErrNotExist):
		return skip("the runtime keeps no results in /" + resultsDir(f.Node))
	case f.SandboxesErr != nil:
		return unknown(f.SandboxesErr.Error())
	case f.AttachedErr != nil:
		return unknown(f.AttachedErr.Error())
	}
	limited, failed, unheard := f.heardOf()
	if len(unheard) > 0 {
		var bad []string
		for i := range unheard {
			s := &unheard[i]
			text := s.String()
			if len(s.Misspelt) > 0 {
				text += ", whose annotation is misspelt: " + strings.Join(terms.Texts(s.Misspelt), "; ")
			}
			bad = append(bad, text)
		}
		return breaks("podweir has no record of "+shorten(bad), "an attachment for each", f.adviceForUnheard(unheard), bad...).of(f.unheardPods())
	}
	if failed > 0 {
		return holds(fmt.Sprintf("podweir knows all %d interfaces with a limit; it could not shape %d of them (PW601)", limited, failed))
	}
	return holds(fmt.Sprintf("%d of %d interfaces have a limit of podweir's, and it knows them", limited, len(f.Sandboxes)))
}

// asks says that a pod asks for a limit of podweir's, or seems to.
func (f *Facts) asks(s *Sandbox) bool {
	return len(s.Misspelt) > 0 || s.LeftTo == "" && (f.expects(s.Limited) || len(s.Limited) == 0 && len(s.Asks) > 0)
}

// heardOf counts the interfaces with a limit, those of them that podweir could not
// shape, and returns those that it has no record of. An agent that knows the pods knows
// better than what the runtime kept of their start: what it does not name as a pod without
// its limit asks for none any more.
func (f *Facts) heardOf() (limited, failed int, unheard []Sandbox) {
	for i := range f.Sandboxes {
		s := &f.Sandboxes[i]
		if !f.asks(s) {
			continue
		}
		known, failure, missing := f.heard(s)
		if !known && (s.Ended || f.Agent.knowsPods() && len(s.Misspelt) == 0) {
			continue
		}
		limited++
		if failure {
			failed++
		}
		if one := *s; !known || len(missing) > 0 {
			if one.Misspelt = missing; known { // it has what it asks for in words that are read
				one.Asks = nil
			}
			unheard = append(unheard, one)
		}
	}
	return limited, failed, unheard
}

// heard says whether podweir knows of a pod, as one that it could not limit or otherwise, and which of its misspelt
// annotations are of a direction that has no limit.
func (f *Facts) heard(s *Sandbox) (known, failure bool, missing []terms.Misspelt) {
	missing = slices.Clone(s.Misspelt)
	for i := range f.Attached {
		a := &f.Attached[i]
		if a.ContainerID == s.ContainerID || a.ByHandIn != "" && s.In(a.ByHandIn, a.Addresses) {
			known = true
			missing = slices.DeleteFunc(missing, func(m terms.Misspelt) bool { return a.Young || a.Direction.Is == m.Direction })
		}
	}
	for i := range f.Troubles {
		t := &f.Troubles[i]
		without := slices.Contains([]terms.Fault{terms.FaultUnshaped, terms.FaultUncovered, terms.FaultOverdue}, t.Fault)
		// What the agent could not limit has the pod's name alone.
		if t.Container != s.ContainerID && (!without || t.Pod != s.Pod) {
			continue
		}
		if known = true; without {
			failure, missing = true, nil
		}
	}
	return known, failure, missing
}

// unheardPods are the names of the pods that podweir has no record of.
func (f *Facts) unheardPods() (pods []string) {
	_, _, unheard := f.heardOf()
	for i := range unheard {
		pods = append(pods, cmp.Or(unheard[i].Pod, "container "+unheard[i].ContainerID))
	}
	return pods
}

// addAsking adds what the runtime knows of the pods that run, by their annotations, to what
// libcni kept. It knows nothing where asking is empty.
func addAsking(cached, asking []Sandbox) []Sandbox {
	for i := range cached {
		c := &cached[i]
		c.Ended = len(asking) > 0 && !slices.ContainsFunc(asking, func(o Sandbox) bool { return o.ContainerID == c.ContainerID })
	}
	for _, s := range asking {
		at := slices.IndexFunc(cached, func(o Sandbox) bool { return o.ContainerID == s.ContainerID })
		switch {
		case at >= 0:
			o := &cached[at]
			o.Misspelt, o.LeftTo = s.Misspelt, s.LeftTo
			if len(s.Asks) > 0 {
				o.Asks = s.Asks
			}
		case len(s.Asks)+len(s.Misspelt) > 0:
			cached = append(cached, s)
		}
	}
	return cached
}

// askedFor is what the pods of the node ask for, as libcni kept it and as the container
// runtime knows it.
func (f *Facts) askedFor(ctx context.Context, k Kernel) ([]Sandbox, error) {
	cached, err := readSandboxes(f.Root, resultsDir(f.Node))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return cached, err
	}
	entry, _ := f.ownEntry()
	asking, asked := k.Asking(ctx, entry)
	if asked != nil || len(asking) == 0 { // what libcni kept is what there is
		return cached, err
	}
	return addAsking(cached, asking), nil
}

// Unheard are the pods that ask for a limit of podweir's, and that it has no record of:
// asking are those of the runtime with what they ask for by annotations, known what podweir
// has or could not limit. The agent may be nil. It is what PW605 finds.
func Unheard(root fs.FS, node *detect.Node, asking []Sandbox, agent *Agent, known Limits) []Sandbox {
	cached, _ := readSandboxes(root, resultsDir(node)) // most nodes without it have the other
	f := &Facts{Root: root, Node: node, Agent: agent, Limits: known, Sandboxes: addAsking(cached, asking)}
	_, _, unheard := f.heardOf()
	return unheard
}

// forgetEnded leaves out the interfaces of pods that ended while the doctor looked:
// podweir's DEL comes first, and the runtime's own record goes last. It waits for
// that only where it would make a difference.
func (f *Facts) forgetEnded(ctx context.Context, k Kernel, settle time.Duration) {
	if _, _, unheard := f.heardOf(); f.SandboxesErr != nil || f.AttachedErr != nil || len(unheard) == 0 {
		return
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(settle):
	}
	now, err := f.askedFor(ctx, k)
	if err != nil {
		return // what was read first is still the best there is
	}
	f.Sandboxes = slices.DeleteFunc(f.Sandboxes, func(s Sandbox) bool {
		return !slices.ContainsFunc(now, func(o Sandbox) bool { return o.ContainerID == s.ContainerID && o.IfName == s.IfName })
	})
}

// adviceForUnheard is about pods that podweir-cni was not called for, and that the
// agent, if it runs, did not find either.
func (f *Facts) adviceForUnheard(unheard []Sandbox) string {
	switch inForce := slices.Contains(f.chain(), conflist.Type); {
	case !slices.ContainsFunc(unheard, func(s Sandbox) bool { return len(s.Misspelt) == 0 }):
		return "correct the annotations; an agent then sets the limits by itself, without one recreate the pods"
	case len(f.Node.Agents()) > 0:
		return "the agent limits running pods by itself, and its log says why it did not: kubectl logs; PW610 has those whose network it cannot find. " +
			"A pod whose annotation was taken away since needs nothing"
	case !inForce && !f.Choice.Delivery.ByAgent():
		return "first put podweir into the chain (PW202), then recreate these pods"
	}
	return "recreate these pods, or run podweir agent, which limits pods that run; if pods that started after podweir was installed are among them, " +
		"restart the container runtime: it has not loaded the chain"
}

func checkOneInterface(f *Facts) Outcome {
	if f.sharesLimit() {
		return holds("a pod's interfaces share its limit")
	}
	names := map[int][]string{}
	for _, d := range f.Devices {
		if d.Pod != 0 {
			names[d.Pod] = append(names[d.Pod], d.Name)
		}
	}
	var bad []string
	for _, d := range f.Devices {
		limited := func(name string) bool { return f.podAt(name) != name }
		if list := names[d.Pod]; len(list) > 1 && list[0] == d.Name && slices.ContainsFunc(list, limited) {
			bad = append(bad, fmt.Sprintf("%d interfaces of one pod: %v", len(list), list))
		}
	}
	if len(bad) > 0 {
		return breaks(shorten(bad), "one interface, or interfaces=shared",
			"mind that each has the limit for itself, or set interfaces=shared (chart: defaults.interfaces)", bad...)
	}
	return holds(fmt.Sprintf("%d pods, one interface each", len(names)))
}
