// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"strconv"
	"strings"

	"github.com/podweir/podweir/compat/profiles"
)

// Cilium is what is known of Cilium's live configuration. Empty fields are not
// known: older agents leave out what they cannot say.
type Cilium struct {
	// Version is as the agent gives it, as 1.20.2.
	Version string
	// DatapathMode is veth, netkit or netkit-l2: what is in force, never what is chosen
	// by the agent when it starts ("auto").
	DatapathMode string
	// AttachMode is tcx or tc.
	AttachMode string
	// Routing is BPF or Legacy.
	Routing string
	// ChainingMode is none for the main plugin.
	ChainingMode string
	// EndpointRoutes says whether the egress side of devices has a program.
	EndpointRoutes profiles.Answer
	// BandwidthManager says whether it enforces limits now, and
	// BandwidthConfigured whether it was asked to.
	BandwidthManager, BandwidthConfigured profiles.Answer
	// BandwidthDevices are those on whose queues it relies, as the agent names them.
	BandwidthDevices []string
	// Exclusive is the setting cni-exclusive.
	Exclusive profiles.Answer
	// WritesConf is the setting write-cni-conf-when-ready; without it the agent
	// neither writes nor renames. Known only with Settings.
	WritesConf string
	// Settings says whether the agent's configuration was read, API whether it answered.
	Settings, API bool
}

// The files of the agent's ConfigMap, as the Helm chart of v1.20.2 mounts it.
const ciliumSettings = "tmp/cilium/config-map"

// cilium asks the agent, and for what it does not say its configuration.
func (r *reader) cilium(ctx context.Context) {
	c := &r.node.Cilium
	if r.opts.Live != nil && r.node.Listens(ciliumSocket) != profiles.No {
		r.ciliumAPI(ctx, c)
	}
	if p := r.node.Process("cilium-agent"); p != nil {
		r.ciliumSettings(c, "proc/"+p.PID+"/root/"+ciliumSettings+"/")
	}
	before := r.opts.Before
	if before == nil {
		before = new(Cilium)
		// What cannot be read says nothing.
		_ = json.Unmarshal([]byte(r.text(CiliumSaid)), before)
	}
	c.remember(before)
	if c.Routing == "Legacy" && before.Routing == "BPF" && r.replacing(ctx) {
		c.Routing = before.Routing
	}
	if c.ChainingMode == "" {
		c.ChainingMode = r.chainingMode()
	}
	facts := r.node.Facts
	set := func(fact, value string) {
		if value != "" {
			facts[fact] = value
		}
	}
	datapath := c.DatapathMode
	if strings.HasPrefix(datapath, "netkit") {
		datapath = "netkit"
	}
	set(profiles.FactCiliumDatapath, datapath)
	set(profiles.FactCiliumAttach, c.AttachMode)
	set(profiles.FactCiliumRouting, c.Routing)
	set(profiles.FactCiliumChaining, c.ChainingMode)
	if c.EndpointRoutes != profiles.Unknown {
		facts[profiles.FactCiliumEndpointRoutes] = c.EndpointRoutes.String()
	}
}

// remember fills in what Cilium's agent said before, if it does not answer: while it is
// replaced, its programs go on, and nothing on the node says what they do (1.20.2).
// Another way of limiting pods would have to be changed back when it answers.
func (c *Cilium) remember(before *Cilium) {
	if c.API {
		return
	}
	c.Version = cmp.Or(c.Version, before.Version)
	c.DatapathMode = cmp.Or(c.DatapathMode, before.DatapathMode)
	c.AttachMode = cmp.Or(c.AttachMode, before.AttachMode)
	c.Routing = cmp.Or(c.Routing, before.Routing)
	c.EndpointRoutes = cmp.Or(c.EndpointRoutes, before.EndpointRoutes)
	if c.BandwidthConfigured != profiles.No {
		c.BandwidthManager = cmp.Or(c.BandwidthManager, before.BandwidthManager)
	}
}

// replacing says that pods still have the programs of the former agent. The new agent reports its
// routing before all pods have its programs, and its settings name the routing even earlier.
// Until then packets may bypass the host side.
func (r *reader) replacing(ctx context.Context) bool {
	if !r.node.Cilium.API { // it starts; one that listens and is out of reach never answers
		return r.node.Listens(ciliumSocket) == profiles.No || r.exists(StartTraces[0]) == profiles.Yes
	}
	body, err := r.opts.Live.CiliumAPI(ctx, "/v1/endpoint")
	if err != nil {
		r.problem(fmt.Errorf("ask Cilium's agent for its endpoints: %w", err))
		return false
	}
	// Decoded one by one: with many pods and policies the answer is truncated.
	all, seen := json.NewDecoder(bytes.NewReader(body)), false
	for _, err = all.Token(); err == nil && all.More(); seen = true {
		var endpoint struct {
			Status struct {
				State string `json:"state"`
			} `json:"status"`
		}
		if err = all.Decode(&endpoint); err == nil && endpoint.Status.State != "ready" {
			return true
		}
	}
	if err != nil {
		r.problem(fmt.Errorf("read the endpoints of Cilium's agent: %w", err))
		return false
	}
	return !seen // the host is always an endpoint
}

// CiliumSaid is a [Cilium] below the node's root: what podweir's agent last heard from Cilium's
// since the node booted.
const CiliumSaid = "run/podweir/cilium.json"

const ciliumSocket = "/var/run/cilium/cilium.sock"

// ciliumHealth and ciliumConfig are the parts of the agent's answers that are
// read: the fields of api/v1/models in v1.16.0 to v1.20.2 and, where they were
// called otherwise, in v1.15.19.
type ciliumHealth struct {
	// Agent says the version first: "1.20.2 (v1.20.2-5e6d0a3e)" and, where
	// something is wrong, what (pkg/status/status_collector.go).
	Agent struct {
		Message string `json:"msg"`
	} `json:"cilium"`
	AttachMode   string `json:"attach-mode"`
	DatapathMode string `json:"datapath-mode"`
	Routing      struct {
		IntraHost string `json:"intra-host-routing-mode"`
	} `json:"routing"`
	// HostRouting is what Routing was called before 1.16.
	HostRouting *struct {
		Mode string `json:"mode"`
	} `json:"host-routing"`
	Bandwidth *struct {
		Enabled bool     `json:"enabled"`
		Devices []string `json:"devices"`
	} `json:"bandwidth-manager"`
	Chaining struct {
		Mode string `json:"mode"`
	} `json:"cni-chaining"`
}

type ciliumConfig struct {
	Status struct {
		// DatapathMode is in this answer in every release, and in that for the
		// health from 1.16.
		DatapathMode string `json:"datapathMode"`
		Daemon       struct {
			EndpointRoutes *bool `json:"EnableEndpointRoutes"`
		} `json:"daemonConfigurationMap"`
	} `json:"status"`
}

func (r *reader) ciliumAPI(ctx context.Context, c *Cilium) {
	var health ciliumHealth
	if err := r.ask(ctx, "/v1/healthz", &health); err != nil {
		r.problem(err)
		return
	}
	c.API = true
	c.Version, _, _ = strings.Cut(health.Agent.Message, " ")
	c.AttachMode, c.DatapathMode = health.AttachMode, inForce(health.DatapathMode)
	c.Routing, c.ChainingMode = health.Routing.IntraHost, health.Chaining.Mode
	if old := health.HostRouting; old != nil {
		// Before 1.16 there was no TCX, and no word for it.
		c.Routing, c.AttachMode = old.Mode, "tc"
	}
	if health.Bandwidth != nil {
		c.BandwidthManager, c.BandwidthDevices = profiles.Is(health.Bandwidth.Enabled), health.Bandwidth.Devices
	}
	var config ciliumConfig
	if err := r.ask(ctx, "/v1/config", &config); err != nil {
		r.problem(err)
		return
	}
	if c.DatapathMode == "" {
		c.DatapathMode = inForce(config.Status.DatapathMode)
	}
	if on := config.Status.Daemon.EndpointRoutes; on != nil {
		c.EndpointRoutes = profiles.Is(*on)
	}
}

func (r *reader) ask(ctx context.Context, path string, into any) error {
	body, err := r.opts.Live.CiliumAPI(ctx, path)
	if err != nil {
		return fmt.Errorf("ask Cilium's agent for %s: %w", path, err)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("read the answer of Cilium's agent for %s: %w", path, err)
	}
	return nil
}

// inForce is a datapath mode, "" for one that the agent has yet to choose
// (bpf.datapathMode: auto, v1.20.2).
func inForce(mode string) string {
	if mode == "auto" {
		return ""
	}
	return mode
}

// ciliumSettings reads the ConfigMap in the agent's own mount namespace. It says
// what was requested, so the agent's own answer counts more.
func (r *reader) ciliumSettings(c *Cilium, dir string) {
	if _, err := fs.ReadDir(r.root, dir[:len(dir)-1]); err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			r.problem(err)
		}
		return
	}
	c.Settings = true
	answer := func(name string) profiles.Answer {
		on, err := strconv.ParseBool(r.text(dir + name))
		if err != nil {
			return profiles.Unknown
		}
		return profiles.Is(on)
	}
	c.Exclusive = answer("cni-exclusive")
	c.WritesConf = r.text(dir + "write-cni-conf-when-ready")
	c.BandwidthConfigured = answer("enable-bandwidth-manager")
	if c.EndpointRoutes == profiles.Unknown {
		c.EndpointRoutes = answer("enable-endpoint-routes")
	}
	if c.DatapathMode == "" {
		c.DatapathMode = inForce(r.text(dir + "datapath-mode"))
	}
	if c.AttachMode == "" && answer("enable-tcx") == profiles.No {
		c.AttachMode = "tc"
	}
	if c.Routing == "" && answer("enable-host-legacy-routing") == profiles.Yes {
		c.Routing = "Legacy"
	}
}

// StartTraces are the files, below the node's root, that a primary CNI's agent
// rewrites when it starts. With other settings it may then get packets to pods
// another way, which changes no file that the runtime reads.
var StartTraces = []string{ciliumSocket[len("/var/"):], "run/cilium/state/globals/node_config.h"}

// ciliumConf are the keys of cilium-cni's configuration that are read here.
// A test in e2e/cilium compares their names with the real type.
type ciliumConf struct {
	ChainingMode string `json:"chaining-mode"`
}

// chainingMode reads the mode from the chain in force; "" if cilium-cni is not
// in it.
func (r *reader) chainingMode() string {
	n := r.node.Conf.Network()
	if n == nil {
		return ""
	}
	at := n.Index("cilium-cni")
	if at < 0 {
		return ""
	}
	var conf ciliumConf
	if err := json.Unmarshal(n.Plugins[at].Raw, &conf); err != nil || conf.ChainingMode == "" {
		return "none"
	}
	return conf.ChainingMode
}

// exclusive finds out whether Cilium renames the files of others, from its
// setting or from what became of them.
func (r *reader) exclusive() {
	n := r.node
	set := func(a profiles.Answer, why string) { n.Exclusive, n.ExclusiveWhy = a, why }
	running := n.Process("cilium-agent") != nil || n.Listens(ciliumSocket) == profiles.Yes
	switch {
	case n.Cilium.Settings && n.Cilium.WritesConf == "":
		set(profiles.No, "the agent writes no conflist (write-cni-conf-when-ready is not set)")
	case n.Cilium.Exclusive == profiles.Yes:
		set(profiles.Yes, "the agent's setting cni-exclusive is true")
	case n.Cilium.Exclusive == profiles.No:
		set(profiles.No, "the agent's setting cni-exclusive is false")
	case !running && (r.node.Conf.Network() == nil || r.node.Conf.Network().Index("cilium-cni") < 0):
		set(profiles.No, "Cilium neither runs here nor is it in the chain")
	case n.Conf == nil:
		set(profiles.Unknown, "the directory of conflists cannot be read")
	case len(n.Conf.Renamed()) > 0:
		set(profiles.Yes, n.Conf.Renamed()[0]+" is podweir's file, renamed")
	case running && r.stranger() != "":
		set(profiles.No, r.stranger()+" is beside a running agent")
	case len(n.Conf.Backups) > 0:
		set(profiles.Unknown, n.Conf.Backups[0]+" was renamed at some time")
	default:
		set(profiles.Unknown, "nothing shows it")
	}
}

// stranger returns a file that an exclusive agent would have renamed.
func (r *reader) stranger() string {
	for _, f := range r.node.Conf.Files {
		if f.Name != "05-cilium.conflist" {
			return f.Name
		}
	}
	return ""
}
