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

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/judge"
	"github.com/podweir/podweir/plugin/terms"
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
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("profiles (-want +got):\n%s", diff)
	}
}

// maxKernelName is TASK_COMM_LEN and BPF_OBJ_NAME_LEN without the final zero.
const maxKernelName = 15

func TestProfilesAreWhole(t *testing.T) {
	for _, p := range profiles.All() {
		t.Run(p.Name, func(t *testing.T) {
			if p.Title == "" || p.Family == "" || len(p.Plugins) == 0 || p.Device == "" || p.BypassWhy == "" {
				t.Errorf("a field that every profile needs is empty: %+v", p)
			}
			if len(p.Signals) == 0 || len(p.Sources) == 0 {
				t.Errorf("%d signals, %d sources, want some", len(p.Signals), len(p.Sources))
			}
			for _, s := range p.Sources {
				if !strings.HasPrefix(s.URL, "https://") || s.Version == "" || s.Says == "" {
					t.Errorf("source %+v lacks a part", s)
				}
			}
			for _, s := range p.Signals {
				if s.Kind == profiles.SignalFile && strings.HasPrefix(s.Value, "/") {
					t.Errorf("file %s: want a path below the node's root", s.Value)
				}
				if s.Kind == profiles.SignalProcess && len(s.Value) > maxKernelName || s.Value == "" {
					t.Errorf("process %q has more than %d characters", s.Value, maxKernelName)
				}
			}
			for _, h := range p.Hooks {
				for _, name := range h.Programs {
					if len(strings.TrimSuffix(name, "*")) > maxKernelName {
						t.Errorf("program %q has more than %d characters", name, maxKernelName)
					}
				}
			}
			for _, c := range p.Conflicts {
				if c.With == "" || c.Effect == "" || c.Do == "" {
					t.Errorf("conflict %+v lacks a part", c)
				}
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
		if p.Ingress.Place != want {
			t.Errorf("%s: bypass %v, ingress queue on %s, want %s", p.Name, p.Bypass, p.Ingress.Place, want)
		}
		for name, a := range map[string]profiles.Attach{"egress": p.Egress, "ingress": p.Ingress} {
			if !slices.Contains(modes, a.Mode) || a.Refused[a.Mode] != "" || a.Why == "" {
				t.Errorf("%s %s: mode %q because %q, refused %v", p.Name, name, a.Mode, a.Why, a.Refused)
			}
			for mode, why := range a.Refused {
				if !slices.Contains(modes, mode) || why == "" {
					t.Errorf("%s %s: refuses %q because %q", p.Name, name, mode, why)
				}
			}
			legacy := p.Holds(terms.HookKindClsact, terms.HookIngress) || p.Holds(terms.HookKindClsact, terms.HookEgress)
			if legacy && a.Refused[terms.ModeClsactHostSide] == "" {
				t.Errorf("%s %s: clsact is held by the CNI and not refused to us", p.Name, name)
			}
		}
		if p.Conflist.MayBeExclusive && (len(p.Conflist.HandedDo) == 0 || len(p.Conflist.ShareDo) == 0) {
			t.Errorf("%s: may be exclusive, and no command says what to do", p.Name)
		}
		if p.Bypass == profiles.Unknown && len(p.Unknowns) == 0 {
			t.Errorf("%s: something is unknown and not listed", p.Name)
		}
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
		if p.Ingress.Place == terms.PlaceIFB && f.Ingress.Place != terms.PlaceIFB && !felix(p) {
			t.Errorf("%s needs the ifb, and the fallback %s has not got it", p.Name, f.Name)
		}
	}
	for _, family := range []string{"cilium", "calico", "aws", "flannel"} {
		if fallback[family] == nil {
			t.Errorf("family %s has no fallback", family)
		}
	}
}

// TestCiliumBeforeTCX: where 1.15 has a profile in common with later releases, it
// names the legacy filter, too.
func TestCiliumBeforeTCX(t *testing.T) {
	for _, name := range []string{"cilium-legacy-tc", "cilium-legacy-routing", "cilium-endpoint-routes"} {
		if !profiles.Find(name).Holds(terms.HookKindClsact, terms.HookIngress) {
			t.Errorf("%s has no filter of Cilium's", name)
		}
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
				if !strings.Contains(command, want) {
					t.Errorf("%s: %s, want %s in it", p.Name, command, want)
				}
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
		if want := `{"type":"podweir-cni","maxRate":"1G","note":"it'\''s"}`; !strings.Contains(commands[0], want) || strings.Contains(commands[0], "hostHook") {
			t.Errorf("%s, want the entry %s in place of the plain one", commands[0], want)
		}
	}
	if !strings.Contains(c.HandedDo[2], "--version 1.15.19 ") || cilium.Conflist.HandedDo[0] != plain {
		t.Errorf("%q, want the release kept; the data %s, want it as it was", c.HandedDo, cilium.Conflist.HandedDo[0])
	}
}

// TestCiliumPage: the page about Cilium has the commands, with the entry as it is here.
func TestCiliumPage(t *testing.T) {
	page, err := os.ReadFile("../../docs/howto/install-beside-cilium.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(page), " \\\n  ", " ")
	c := profiles.Find("cilium").Conflist
	for _, command := range slices.Concat(c.HandedDo, c.HandedAgainDo, c.ShareDo) {
		if !strings.Contains(text, "\n"+command+"\n") {
			t.Errorf("the page lacks %s", command)
		}
	}
}

// TestEvidence: what is not stated is guessed, and what no source says is not read.
func TestEvidence(t *testing.T) {
	for _, tc := range []struct {
		profile *profiles.Profile
		ruling  profiles.Ruling
		want    profiles.Evidence
	}{
		{profiles.Other(), profiles.RulingSigns, profiles.Guessed},
		{profiles.Other(), profiles.RulingHooks, profiles.Guessed},
		{profiles.Find("azure-vnet"), profiles.RulingConflist, profiles.Guessed},
		{profiles.Find("antrea"), profiles.RulingConflist, profiles.Read},
		{profiles.Find("ptp"), profiles.RulingConflist, profiles.Tried},
		{profiles.Find("ptp"), profiles.RulingShares, profiles.Read},
	} {
		if got := tc.profile.Evidence(tc.ruling); got != tc.want {
			t.Errorf("%s, %s: %s, want %s", tc.profile.Name, tc.ruling, got, tc.want)
		}
	}
	for _, p := range profiles.All() {
		if strings.HasPrefix(p.BypassWhy, "no source says") && p.Evidence(profiles.RulingBypass) != profiles.Guessed {
			t.Errorf("%s: bypass is %s, and no source says", p.Name, p.Evidence(profiles.RulingBypass))
		}
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
		if got := profiles.Find(tc.profile).Owns(terms.HookIngress, &judge.Program{Name: tc.program, FilterKind: "bpf"}); got != tc.want {
			t.Errorf("%s owns %q = %v, want %v", tc.profile, tc.program, got, tc.want)
		}
	}
	if p := profiles.Find("nobody"); p != nil {
		t.Errorf("Find(nobody) = %v", p)
	}
}

const page = "../../docs/reference/profiles.md"

// TestReferencePage holds docs/reference/profiles.md to the data.
func TestReferencePage(t *testing.T) {
	want := render()
	if *update {
		if err := os.WriteFile(page, want, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("%s is not what -update writes (-want +got):\n%s", page, diff)
	}
}

const intro = `# Profiles of primary CNIs

What podweir knows of the CNIs it runs beside, with the sources and the versions that were read. Directions are the pod's.
Each ruling is *tried* (a row of the [CNI matrix](compat-matrix.md) ran with it), *read* (a source below says it) or else *guessed* (it follows from how such
software usually works). *Unknown* means that no source was found; podweir then takes the place that does no harm. ` + "`podweir doctor`" + ` says which profile fits a
node. In commands VERSION is the release that runs; ` + "`podweir doctor`" + ` writes it. This page is made from the data:
` + "`go test ./compat/profiles -update`" + `.

| profile | primary CNI | device | egress | ingress | delivery without drop-ins |
| --- | --- | --- | --- | --- | --- |
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
			older = "handed, or chain where it is not exclusive"
		case p.Conflist.File != "" && p.Conflist.File < conflistPrefix:
			older = "nri or watch"
		}
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s, %s | %s |\n",
			p.Name, p.Name, p.Title, p.Device, p.Egress.Mode, p.Ingress.Mode, p.Ingress.Place, older)
	}
	for _, p := range all {
		renderProfile(&b, p)
	}
	return b.Bytes()
}

func renderProfile(b *bytes.Buffer, p *profiles.Profile) {
	fmt.Fprintf(b, "\n## %s\n\n%s.", p.Name, p.Title)
	if p.Fallback {
		fmt.Fprintf(b, " Assumed for the family `%s` while the facts are not known.", p.Family)
	}
	fmt.Fprintf(b, "\n\n- **Recognised by** a chain with `%s`", strings.Join(append(p.Plugins, p.Chained...), "` and `"))
	for _, c := range p.When {
		fmt.Fprintf(b, ", %s: %s", c.Fact, c.Value)
	}
	var signs []string
	for _, s := range p.Signals {
		signs = append(signs, fmt.Sprintf("%s `%s` (%s)", s.Kind, s.Value, s.Means))
	}
	mark := func(r profiles.Ruling) string { return "*" + string(p.Evidence(r)) + "*" }
	fmt.Fprintf(b, ". Signs, %s: %s.\n- **Device**, %s: %s", mark(profiles.RulingSigns), strings.Join(signs, ", "), mark(profiles.RulingDevice), p.Device)
	if len(p.DevicePrefixes) > 0 {
		fmt.Fprintf(b, ", named `%s…`", strings.Join(p.DevicePrefixes, "…`, `"))
	}
	fmt.Fprintf(b, ".\n- **Host side bypassed** on the way to the pod, %s: %v; %s.\n", mark(profiles.RulingBypass), p.Bypass, p.BypassWhy)
	for _, h := range p.Hooks {
		fmt.Fprintf(b, "- **Holds**, "+mark(profiles.RulingHooks)+": %s %s of the host-side device", h.Kind, h.Direction)
		if len(h.Programs) > 0 {
			fmt.Fprintf(b, " with `%s`", strings.Join(h.Programs, "`, `"))
		}
		fmt.Fprintf(b, "; ends the chain: %v. %s.\n", h.EndsChain, h.Note)
	}
	for _, q := range p.RootQdiscs {
		fmt.Fprintf(b, "- **Root qdisc**, "+mark(profiles.RulingQdiscs)+": %s on: %s. When: %s.\n", q.Kind, q.Device, q.When)
	}
	fmt.Fprintf(b, "- **Enforces the same annotations**, %s: %v", mark(profiles.RulingShares), p.SharesAnnotations)
	if p.SharesAnnotationsNote != "" {
		fmt.Fprintf(b, "; %s", p.SharesAnnotationsNote)
	}
	b.WriteString(".\n")
	renderAttach(b, "Egress**, "+mark(profiles.RulingEgress), p.Egress)
	renderAttach(b, "Ingress**, "+mark(profiles.RulingIngress), p.Ingress)
	renderConflist(b, p, mark(profiles.RulingConflist))
	for _, c := range p.Conflicts {
		fmt.Fprintf(b, "- **Conflict** with %s: %s. Do: %s.\n", c.With, c.Effect, c.Do)
	}
	b.WriteString(triedIn(p.Tried))
	for _, u := range p.Unknowns {
		fmt.Fprintf(b, "- **Unknown**: %s.\n", u)
	}
	for _, s := range p.Sources {
		fmt.Fprintf(b, "- **Source** [%s](%s), %s: %s.\n", strings.TrimPrefix(s.URL, "https://"), s.URL, s.Version, s.Says)
	}
}

func renderAttach(b *bytes.Buffer, name string, a profiles.Attach) {
	fmt.Fprintf(b, "- **%s: mode `%s`", name, a.Mode)
	if a.Place != 0 {
		fmt.Fprintf(b, ", queue on `%s`", a.Place)
	}
	fmt.Fprintf(b, ": %s.", a.Why)
	for _, mode := range modes {
		if why := a.Refused[mode]; why != "" {
			fmt.Fprintf(b, " Never `%s`: %s.", mode, why)
		}
	}
	b.WriteString("\n")
}

func renderConflist(b *bytes.Buffer, p *profiles.Profile, mark string) {
	c := p.Conflist
	fmt.Fprintf(b, "- **Conflist**, "+mark+": `%s`, network `%s`; rewritten %s.", orUnknown(c.File), orUnknown(c.Network), c.Rewrites)
	if c.ReadySocket != "" {
		fmt.Fprintf(b, " Ready while `%s` is listened on.", c.ReadySocket)
	}
	for _, d := range c.Dirs {
		fmt.Fprintf(b, " In `/%s`.", d)
	}
	for _, d := range c.BinDirs {
		fmt.Fprintf(b, " Binaries in `/%s`.", d)
	}
	if c.Note != "" {
		fmt.Fprintf(b, " %s.", strings.ToUpper(c.Note[:1])+c.Note[1:])
	}
	b.WriteString("\n")
}

func orUnknown(s string) string {
	if s == "" {
		return "any"
	}
	return s
}

func TestPageHasNoEmptyParts(t *testing.T) {
	for _, pattern := range []string{"``", `: \.`, `\.\.`, ` ;`, "%!"} {
		if at := regexp.MustCompile(pattern).FindIndex(render()); at != nil {
			t.Errorf("the page has %q: ...%s", pattern, render()[max(0, at[0]-80):at[1]])
		}
	}
}

// triedIn says whether podweir was run beside the CNI.
func triedIn(rows []string) string {
	if len(rows) == 0 {
		return "- **Not tried**: no row of the [CNI matrix](compat-matrix.md) has run with it.\n"
	}
	var links []string
	for _, r := range rows {
		links = append(links, fmt.Sprintf("[%s](compat-matrix.md#%s)", r, strings.ReplaceAll(r, ".", "")))
	}
	return "- **Tried** in the CNI matrix: " + strings.Join(links, ", ") + ".\n"
}
