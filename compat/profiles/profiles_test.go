// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
	"github.com/podweir/podweir/plugin/testutil/must"
)

var update = flag.Bool("update", false, "rewrite the reference page")

// TestNames holds the list to what was requested: a CNI that is taken out is
// missed here.
func TestNames(t *testing.T) {
	var got []string
	for _, p := range profiles.All() {
		got = append(got, p.Name)
	}
	slices.Sort(got)
	want := []string{
		"antrea", "aws-vpc-cni", "aws-vpc-cni-calico", "aws-vpc-cni-npa", "azure-vnet", "bridge", "calico", "calico-ebpf", "canal",
		"cilium", "cilium-endpoint-routes", "cilium-legacy-routing", "cilium-legacy-tc", "cilium-netkit", "cilium-on-aws",
		"cilium-on-veth", "flannel", "gke-dataplane-v2", "k3s-flannel", "kindnet", "kube-ovn", "kube-router",
		"multus", "ovn-kubernetes", "ptp", "rke2-canal", "terway",
	}
	must.Match(t, "profiles", want, got)
}

// maxKernelName is TASK_COMM_LEN and BPF_OBJ_NAME_LEN without the final zero.
const maxKernelName = 15

func TestProfilesAreWhole(t *testing.T) {
	for _, p := range profiles.All() {
		t.Run(p.Name, func(t *testing.T) {
			if p.Title == "" || p.Family == "" || len(p.Plugins) == 0 || p.Device == "" || p.BypassWhy == "" {
				t.Errorf("a field that every profile needs is empty: %+v", p)
			}
			for _, s := range p.Signals {
				if s.Kind == profiles.SignalProcess && len(s.Value) > maxKernelName || s.Value == "" {
					t.Errorf("process %q has more than %d characters", s.Value, maxKernelName)
				}
			}
			for _, h := range p.Hooks {
				for _, name := range h.Programs {
					must.AtMost(t, "characters of the program "+name, maxKernelName, len(strings.TrimSuffix(name, "*")))
				}
			}
			for _, c := range p.Conflicts {
				must.Be(t, fmt.Sprintf("conflict %+v has all parts", c), true, c.With != "" && c.Effect != "" && c.Do != "")
			}
		})
	}
}

var modes = []terms.Mode{
	terms.ModeQdisc, terms.ModeTCXPodSide, terms.ModeTCXHostSide, terms.ModeClsactPodSide, terms.ModeClsactHostSide,
}

// felix says whether Felix owns the root qdisc of the host side.
func felix(p *profiles.Profile) bool {
	return slices.ContainsFunc(p.RootQdiscs, func(q profiles.QdiscUse) bool { return strings.Contains(q.Device, "bwcali") })
}

// TestPlacesAreSafe holds the data to the rules of the design: where packets may
// bypass the host side, or Felix or Open vSwitch owns its root qdisc, the ingress queue is on the
// pod side, and where another program has a legacy filter podweir has no clsact.
func TestPlacesAreSafe(t *testing.T) {
	for _, p := range profiles.All() {
		want := terms.PlaceIFB
		if p.Bypass == profiles.No && !felix(p) && p.Family != "ovn" {
			want = terms.PlaceHost
		}
		must.Be(t, fmt.Sprintf("%s, with bypass %v: place of the ingress queue", p.Name, p.Bypass), want, p.Ingress.Place.Is)
		for name, a := range map[string]profiles.Attach{"egress": p.Egress, "ingress": p.Ingress} {
			if a.Refused[terms.Name(terms.ModeQdisc)] != "" || name == "ingress" && a.Why == "" {
				t.Errorf("%s %s: because %q, refused %v", p.Name, name, a.Why, a.Refused)
			}
			for mode, why := range a.Refused {
				if !slices.Contains(modes, mode.Is) || why == "" {
					t.Errorf("%s %s: refuses %q because %q", p.Name, name, mode, why)
				}
			}
			legacy := holdsClsact(p, terms.HookIngress) || holdsClsact(p, terms.HookEgress)
			if legacy && a.Refused[terms.Name(terms.ModeClsactHostSide)] == "" {
				t.Errorf("%s %s: clsact is held by the CNI and not refused to us", p.Name, name)
			}
		}
		may := p.Conflist.MayBeExclusive
		must.Be(t, p.Name+": may be exclusive, and no command says what to do", false, may && (len(p.Conflist.HandedDo) == 0 || len(p.Conflist.ShareDo) == 0))
		must.Be(t, p.Name+": something is unknown and not listed", false, p.Bypass == profiles.Unknown && len(p.Unknowns) == 0)
	}
}

// TestFamiliesHaveOneFallback: where facts tell members of a family apart, one
// of them is assumed without the facts, and it is the careful one.
func TestFamiliesHaveOneFallback(t *testing.T) {
	fallback := map[string]*profiles.Profile{}
	for _, p := range profiles.All() {
		if !p.Fallback {
			continue
		}
		if other := fallback[p.Family]; other != nil {
			t.Errorf("%s and %s are both the fallback of %s", other.Name, p.Name, p.Family)
		}
		fallback[p.Family] = p
	}
	for _, p := range profiles.All() {
		f := fallback[p.Family]
		if len(p.When) == 0 || f == nil {
			continue
		}
		// Whether Felix runs is not known only where nothing at all can be seen.
		if p.Ingress.Place.Is == terms.PlaceIFB && f.Ingress.Place.Is != terms.PlaceIFB && !felix(p) {
			t.Errorf("%s needs the ifb, and the fallback %s has not got it", p.Name, f.Name)
		}
	}
	for _, family := range []string{"cilium", "calico", "aws", "flannel"} {
		must.Be(t, family+" has a fallback", true, fallback[family] != nil)
	}
}

// holdsClsact says whether the CNI has a filter of clsact on the host-side device in this
// direction.
func holdsClsact(p *profiles.Profile, direction terms.Hook) bool {
	return slices.ContainsFunc(p.Hooks, func(h profiles.HookUse) bool {
		return h.Kind.Is == terms.HookKindClsact && h.Direction.Is == direction
	})
}

// TestCiliumBeforeTCX: where 1.15 has a profile in common with later releases, it
// names the legacy filter, too.
func TestCiliumBeforeTCX(t *testing.T) {
	for _, name := range []string{"cilium-legacy-tc", "cilium-legacy-routing", "cilium-endpoint-routes"} {
		must.Be(t, name+" has a filter of Cilium's", true, holdsClsact(profiles.Find(name), terms.HookIngress))
	}
}

// TestCommandsKeepTheRelease: no command changes the release of the CNI that runs
// as a side effect.
func TestCommandsKeepTheRelease(t *testing.T) {
	upgrades := 0
	for _, p := range profiles.All() {
		for version, want := range map[string]string{
			"1.15.19": "--version 1.15.19 ", "1.20.0-rc.1": "--version 1.20.0-rc.1 ", "": `--version "$(helm list `, "1.2.3; rm": `--version "$(helm list `,
		} {
			c := p.ForRelease(version).Conflist
			for _, command := range slices.Concat(c.HandedDo, c.ShareDo) {
				if !strings.HasPrefix(command, "helm upgrade") {
					continue
				}
				upgrades++
				must.Have(t, p.Name, command, want)
			}
		}
	}
	if upgrades == 0 {
		t.Error("no command upgrades anything")
	}
	for _, p := range profiles.All() {
		if slices.ContainsFunc(p.Conflist.ShareDo, func(c string) bool { return strings.Contains(c, "1.15.19") }) {
			t.Errorf("%s: ForRelease changed the data itself", p.Name)
		}
	}
}

// TestCommandsWithSettings: the commands have the entry that they are given, as a word of
// the shell, and the data itself stays.
func TestCommandsWithSettings(t *testing.T) {
	const entry = `{"type":"podweir-cni","maxRate":"1G","note":"it's"}`
	cilium := profiles.Find("cilium")
	plain := cilium.Conflist.HandedDo[0]
	c := cilium.ForRelease("1.15.19").WithEntry(entry).Conflist
	for _, commands := range [][]string{c.HandedDo, c.HandedAgainDo} {
		must.Have(t, "the command", commands[0], `{"type":"podweir-cni","maxRate":"1G","note":"it'\''s"}`, "!hostHook")
	}
	must.Have(t, "the command", c.HandedDo[2], "--version 1.15.19 ")
	must.Be(t, "the data", plain, cilium.Conflist.HandedDo[0])
}

// TestCiliumPage: the page about Cilium has the commands, with the entry as it is here.
func TestCiliumPage(t *testing.T) {
	page := must.Get(os.ReadFile("../../docs/howto/install-beside-cilium.md"))(t)
	text := strings.ReplaceAll(string(page), " \\\n  ", " ")
	c := profiles.Find("cilium").Conflist
	for _, command := range slices.Concat(c.HandedDo, c.HandedAgainDo, c.ShareDo) {
		must.Have(t, "the page", text, "\n"+command+"\n")
	}
}

func TestOwns(t *testing.T) {
	for _, tc := range []struct {
		profile, program string
		want             bool
	}{
		{"cilium", "cil_to_containe", true},
		{"cilium-legacy-tc", "cil_to_containe", true},
		{"calico", "u32", false}, // a BPF program of that name
		{"cilium", "cil_from_contai", true},
		{"cilium", "cil_from_container", true},
		{"cilium", "cil_from_con", false},
		{"cilium-endpoint-routes", "cil_to_containe", true},
		{"aws-vpc-cni-npa", "handle_ingress", true},
		{"aws-vpc-cni-npa", "handle_ingress2", false},
		{"aws-vpc-cni", "handle_ingress", false},
		{"calico-ebpf", "cali_tc_preambl", true},
		{"ptp", "", false},
	} {
		got := profiles.Find(tc.profile).Owns(terms.HookIngress, &judge.Program{Name: tc.program, FilterKind: "bpf"})
		must.Be(t, tc.profile+" owns "+tc.program, tc.want, got)
	}
	must.Be(t, "Find(nobody)", nil, profiles.Find("nobody"))
}

const referencePage = "../../docs/reference/profiles.md"

// TestReferencePage holds docs/reference/profiles.md to the data.
func TestReferencePage(t *testing.T) {
	want := render()
	if *update {
		must.OK(t, os.WriteFile(referencePage, want, 0o644))
	}
	got := must.Get(os.ReadFile(referencePage))(t)
	must.Match(t, fmt.Sprintf("%s is not what -update writes", referencePage), string(want), string(got))
}

const intro = `# Profiles of primary CNIs

What podweir knows of the CNIs it runs beside. Directions are the pod's. The data, with all signs by which a CNI is recognised and the sources
with the versions that were read, is in [profiles.yaml](../../compat/profiles/profiles.yaml). This page is made from it: ` + "`go test ./compat/profiles -update`" + `. ` + "`podweir doctor`" + ` says which profile fits a node.

*Known by* says how the places of podweir's queues are known: *tried* (a row of [what was run](support.md#cnis-in-a-real-cluster) ran with it), *read* (a source says it) or *guessed* (it follows from how such
software usually works). Where nothing is known podweir takes the place that does no harm. A profile with * is assumed while the facts that tell its family apart are missing. Egress is always a queue on the pod-side device. *Handed or chain* is handed if Cilium is exclusive. *Shares* says whether the CNI enforces ` + "`kubernetes.io/…-bandwidth`" + ` itself.

| profile | primary CNI | device | ingress queue | delivery without drop-ins | shares | conflist | known by |
| --- | --- | --- | --- | --- | --- | --- | --- |
`

// conflistPrefix begins the names of podweir's own files (compat/conflist imports this
// package).
const conflistPrefix = "00-podweir-"

func render() []byte {
	var b bytes.Buffer
	b.WriteString(intro)
	all := profiles.All()
	slices.SortFunc(all, func(a, b *profiles.Profile) int { return strings.Compare(a.Name, b.Name) })
	for _, p := range all {
		older := "chain"
		switch {
		case p.Conflist.MayBeExclusive:
			older = "handed or chain"
		case p.Conflist.File != "" && p.Conflist.File < conflistPrefix:
			older = "nri or watch"
		}
		name := p.Name
		if p.Fallback {
			name += "*"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s | %s | %v | `%s` | %s |\n",
			name, p.Title, p.Device, p.Ingress.Place, older, p.SharesAnnotations, orUnknown(p.Conflist.File), known(p))
	}
	for _, part := range []struct {
		title, header string
		lines         func(p *profiles.Profile) []string
	}{
		{"What is on the host-side device", "hook and program, which ends the chain unless it says otherwise; or root qdisc | profiles", held},
		{"Modes that podweir never takes", "mode and why | profiles", refused},
		{"Conflicts", "with | effect | what to do | profiles", conflicts},
		{"Not known", "what | profiles", func(p *profiles.Profile) []string { return p.Unknowns }},
	} {
		writeTogether(&b, part.title, part.header, all, part.lines)
	}
	return b.Bytes()
}

// writeTogether writes a table of lines, each once with all profiles that have it.
func writeTogether(b *bytes.Buffer, title, header string, all []*profiles.Profile, lines func(*profiles.Profile) []string) {
	var order []string
	of := map[string][]string{}
	for _, p := range all {
		for _, line := range lines(p) {
			if of[line] == nil {
				order = append(order, line)
			}
			if !slices.Contains(of[line], p.Name) {
				of[line] = append(of[line], p.Name)
			}
		}
	}
	fmt.Fprintf(b, "\n## %s\n\n| %s |\n|%s\n", title, header, strings.Repeat(" --- |", strings.Count(header, "|")+1))
	for _, line := range order {
		fmt.Fprintf(b, "| %s | %s |\n", line, strings.Join(of[line], ", "))
	}
}

// known says how the places of podweir's queues are known.
func known(p *profiles.Profile) string {
	switch {
	case len(p.Tried) > 0:
		return "tried"
	case p.PlacesRead:
		return "read"
	default:
		return "guessed"
	}
}

func held(p *profiles.Profile) []string {
	var out []string
	// Hooks with one note stand together.
	for i, h := range p.Hooks {
		line := fmt.Sprintf("%s %s", h.Kind, h.Direction)
		if len(h.Programs) > 0 {
			line += " `" + strings.Join(h.Programs, "`, `") + "`"
		}
		if h.EndsChain != profiles.Yes {
			line += fmt.Sprintf(" (ends the chain: %v)", h.EndsChain)
		}
		if i > 0 && h.Note == p.Hooks[i-1].Note {
			last := len(out) - 1
			out[last] = strings.TrimSuffix(out[last], ": "+h.Note) + ", " + line + ": " + h.Note
			continue
		}
		out = append(out, line+": "+h.Note)
	}
	for _, q := range p.RootQdiscs {
		out = append(out, fmt.Sprintf("root qdisc %s (%s): %s", q.Kind, q.Device, q.When))
	}
	return out
}

func refused(p *profiles.Profile) []string {
	var out []string
	for _, a := range []profiles.Attach{p.Egress, p.Ingress} {
		for _, mode := range modes {
			if why := a.Refused[terms.Name(mode)]; why != "" {
				out = append(out, fmt.Sprintf("`%s`: %s", mode, why))
			}
		}
	}
	return out
}

func conflicts(p *profiles.Profile) []string {
	var out []string
	for _, c := range p.Conflicts {
		out = append(out, strings.Join([]string{c.With, c.Effect, c.Do}, " | "))
	}
	return out
}

func orUnknown(s string) string {
	if s == "" {
		return "any"
	}
	return s
}

func TestPageHasNoEmptyParts(t *testing.T) {
	for _, pattern := range []string{"``", `: \.`, `[^(/]\.\.`, ` ;`, "%!"} {
		must.Be(t, "what the page has of "+pattern, "", string(regexp.MustCompile("(?s).{0,80}"+pattern).Find(render())))
	}
}
