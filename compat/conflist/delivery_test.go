// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package conflist_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/podweir/podweir/compat/conflist"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/testutil/must"
)

func fileOf(t *testing.T, name, raw string) *conflist.File {
	t.Helper()
	f := &conflist.File{Name: name, Raw: []byte(raw)}
	f.Network, f.Err = conflist.Parse(name, f.Raw)
	return f
}

// separator is between two plugins of podweir's file.
const separator = ",\n    "

func TestDecide(t *testing.T) {
	original := fileOf(t, "10-x.conflist", plain)
	own := fileOf(t, "00-podweir-10-x.conflist", splice(t, "10-x.conflist", plain))
	ownOfOther := fileOf(t, "00-podweir-10-x.conflist", splice(t, "11-y.conflist", plain))
	edited := fileOf(t, own.Name, strings.Replace(string(own.Raw), `"ptp"`, `"p2p"`, 1))
	chained := fileOf(t, "10-x.conflist", `{"name":"n","plugins":[{"type":"ptp"},{"type":"podweir-cni"}]}`)
	future := fileOf(t, "10-x.conflist", `{"cniVersion":"7.0.0","name":"n","plugins":[{"type":"ptp"}]}`)
	for name, tc := range map[string]struct {
		s    conflist.Standing
		want conflist.Action
		why  string
	}{
		"fits":                     {conflist.Standing{Original: original, Own: own}, conflist.Leave, "matches"},
		"not there":                {conflist.Standing{Original: original}, conflist.Write, "not in the chain"},
		"original changed":         {conflist.Standing{Original: fileOf(t, "10-x.conflist", strings.Replace(plain, `"ptp"`, `"ptp","mtu":9000`, 1)), Own: own}, conflist.Write, "10-x.conflist changed since"},
		"original written anew":    {conflist.Standing{Original: fileOf(t, "10-x.conflist", plain+" "), Own: own}, conflist.Leave, "matches"},
		"made by an earlier build": {conflist.Standing{Original: original, Own: fileOf(t, own.Name, strings.Replace(string(own.Raw), `"keys":["cniVersion","name"]`, `"single":false,"keys":["name","cniVersion"]`, 1))}, conflist.Leave, "matches"},
		"another entry":            {conflist.Standing{Original: original, Own: own, Entry: []byte(`{"type":"podweir-cni","policy":"flat"}`)}, conflist.Write, "entry changed"},
		"podweir taken out":        {conflist.Standing{Original: original, Own: fileOf(t, own.Name, strings.Replace(string(own.Raw), separator+entry, "", 1))}, conflist.Write, "took podweir out"},
		"podweir moved to first":   {conflist.Standing{Original: original, Own: fileOf(t, own.Name, strings.Replace(strings.Replace(string(own.Raw), separator+entry, "", 1), "[\n    ", "["+entry+separator, 1))}, conflist.Write, "its chain"},
		"a mesh beside us":         {conflist.Standing{Original: original, Own: fileOf(t, own.Name, strings.Replace(string(own.Raw), entry, entry+`,{"type":"istio-cni"}`, 1))}, conflist.Leave, "matches"},
		"made from another":        {conflist.Standing{Original: original, Own: ownOfOther}, conflist.Write, "it was made from 11-y.conflist, and the primary CNI's file is 10-x.conflist now"},
		"edited":                   {conflist.Standing{Original: original, Own: edited}, conflist.Write, "was changed, by hand"},
		"ours is broken":           {conflist.Standing{Original: original, Own: fileOf(t, own.Name, "{")}, conflist.Write, "broken"},
		"made by hand":             {conflist.Standing{Original: original, Own: fileOf(t, own.Name, string(chained.Raw))}, conflist.Write, "made by hand, so that changes of 10-x.conflist do not reach it"},
		"primary gone":             {conflist.Standing{Own: own}, conflist.Delete, "no configuration"},
		"primary broken":           {conflist.Standing{Original: fileOf(t, "10-x.conflist", "{"), Own: own}, conflist.Delete, "is broken"},
		"nothing at all":           {conflist.Standing{}, conflist.Leave, "no configuration"},
		"original has us":          {conflist.Standing{Original: chained, Own: own}, conflist.Delete, "has podweir in it already"},
		"original has us, no file": {conflist.Standing{Original: chained}, conflist.Leave, "has podweir in it already"},
		"drop-in, old file": {
			conflist.Standing{Delivery: profiles.DropIn, Original: original, Own: own}, conflist.Delete, "the delivery is drop-in",
		},
		"nri":                        {conflist.Standing{Delivery: profiles.NRI, Original: original}, conflist.Leave, "the delivery is nri"},
		"version not known":          {conflist.Standing{Original: future, Own: own}, conflist.Delete, `"7.0.0"`},
		"version not known, no file": {conflist.Standing{Original: future}, conflist.Leave, `"7.0.0"`},
	} {
		t.Run(name, func(t *testing.T) {
			if tc.s.Delivery == "" {
				tc.s.Delivery = profiles.Chain
			}
			if got, why := conflist.Decide(tc.s); got != tc.want || !strings.Contains(why, tc.why) {
				t.Errorf("Decide() = %v, %q, want %v because %q", got, why, tc.want, tc.why)
			}
		})
	}
}

func TestChoose(t *testing.T) {
	cilium, aws := profiles.Find("cilium"), profiles.Find("aws-vpc-cni-npa")
	recent := conflist.Runtime{Name: "containerd", Version: "2.1.3"}
	old := conflist.Runtime{Name: "containerd", Version: "1.7.35"}
	inlined := fileOf(t, "05-cilium.conflist", `{"name":"cilium","loadOnlyInlinedPlugins":true,"plugins":[{"type":"cilium-cni"}]}`).Network
	bandwidth := fileOf(t, "05-cilium.conflist", `{"name":"portmap","plugins":[{"type":"cilium-cni"},{"type":"bandwidth"}]}`).Network
	single := fileOf(t, "10-x.conf", `{"name":"n","type":"ptp"}`).Network
	first := fileOf(t, "00-hybridnet.conflist", `{"name":"n","plugins":[{"type":"hybridnet"}]}`).Network
	multus := fileOf(t, "00-multus.conf", `{"name":"n","type":"multus"}`).Network
	noNRI := conflist.Runtime{Name: "containerd", Version: "1.6.36"}
	const yes, no = profiles.Yes, profiles.No
	const configMap, exclusive = "--set cni.configMap=", "--set cni.exclusive=false"
	for name, tc := range map[string]struct {
		s                     conflist.Situation
		want                  profiles.Delivery
		why, do, instead, bad string
	}{
		"recent":                       {s: conflist.Situation{Profile: aws, Exclusive: no, Runtime: recent}, want: profiles.DropIn, why: "containerd 2.1.3 reads drop-ins"},
		"old":                          {s: conflist.Situation{Profile: aws, Exclusive: no, Runtime: old}, want: profiles.Chain, why: "containerd 1.7.35 ignores drop-in directories"},
		"runtime not known":            {s: conflist.Situation{Profile: aws, Exclusive: no}, want: profiles.Chain, why: "is not known"},
		"bandwidth to be replaced":     {s: conflist.Situation{Profile: aws, Exclusive: no, Runtime: recent, Original: bandwidth}, want: profiles.Chain, why: "two shapers"},
		"single plugin":                {s: conflist.Situation{Profile: aws, Exclusive: no, Runtime: recent, Original: single}, want: profiles.Chain, why: "holds a single plugin"},
		"exclusive, recent":            {s: conflist.Situation{Profile: cilium, Exclusive: yes, Runtime: recent}, want: profiles.DropIn, why: "cni.exclusive=true", instead: exclusive},
		"exclusive, old":               {s: conflist.Situation{Profile: cilium, Exclusive: yes, Runtime: old}, want: profiles.Handed, why: "containerd 1.7.35 ignores", do: configMap, instead: exclusive},
		"exclusive, runtime not known": {s: conflist.Situation{Profile: cilium, Exclusive: yes}, want: profiles.Handed, why: "unknown runtime", do: configMap},
		"not known whether exclusive":  {s: conflist.Situation{Profile: cilium, Runtime: recent}, want: profiles.DropIn, why: "is not known", instead: exclusive},
		"may be exclusive, old":        {s: conflist.Situation{Profile: cilium, Runtime: old}, want: profiles.Handed, why: "is not known", do: configMap},
		"drop-ins ruled out":           {s: conflist.Situation{Profile: cilium, Exclusive: yes, Runtime: recent, Original: inlined}, want: profiles.Handed, why: "loadOnlyInlinedPlugins", do: configMap},
		"bandwidth stays":              {s: conflist.Situation{Profile: cilium, Exclusive: yes, Runtime: recent, Original: bandwidth}, want: profiles.DropIn, bad: "two shapers"},
		"nothing to be written":        {s: conflist.Situation{Profile: cilium, Writable: no, Runtime: recent}, want: profiles.NRI, why: "cannot be written"},
		// Cilium starts beside another CNI, or its profile is not known yet.
		"exclusive before its profile":      {s: conflist.Situation{Profile: profiles.Other(), Exclusive: yes, Runtime: recent}, want: profiles.DropIn, why: "cni.exclusive=true"},
		"exclusive before its profile, old": {s: conflist.Situation{Profile: aws, Exclusive: yes, Runtime: noNRI}, want: profiles.Watch, why: "cni.exclusive=true", bad: "without its limit"},
		"several networks":                  {s: conflist.Situation{Profile: aws, Exclusive: no, Several: true, Runtime: recent}, want: profiles.DropIn, why: "max_conf_num"},
		"several networks, bandwidth":       {s: conflist.Situation{Profile: aws, Exclusive: no, Several: true, Runtime: recent, Original: bandwidth}, want: profiles.DropIn, why: "max_conf_num", bad: "two shapers"},
		"several networks, old":             {s: conflist.Situation{Profile: aws, Exclusive: no, Several: true, NRI: yes, Runtime: old}, want: profiles.NRI, why: "max_conf_num"},
		"several networks, old, NRI off":    {s: conflist.Situation{Profile: aws, Exclusive: no, Several: true, NRI: no, Runtime: old}, want: profiles.Watch, why: "max_conf_num", bad: "without its limit"},
		"several networks, single plugin":   {s: conflist.Situation{Profile: aws, Exclusive: no, Several: true, Runtime: recent, Original: single}, want: profiles.NRI, why: "max_conf_num"},
		"another file is first":             {s: conflist.Situation{Profile: aws, Exclusive: no, Runtime: recent, Original: first}, want: profiles.DropIn, why: "00-hybridnet.conflist sorts before"},
		"another file is first, old":        {s: conflist.Situation{Profile: aws, Exclusive: no, Runtime: noNRI, Original: first}, want: profiles.Watch, why: "00-hybridnet.conflist sorts before", bad: "without its limit"},
		"Multus":                            {s: conflist.Situation{Profile: profiles.Find("multus"), Exclusive: no, Runtime: recent, Original: multus}, want: profiles.NRI, why: "00-multus.conf sorts before"},
	} {
		t.Run(name, func(t *testing.T) {
			got := conflist.Choose(tc.s)
			has := func(list []string, part string) bool {
				return (part == "") == (len(list) == 0) && strings.Contains(strings.Join(list, "\n"), part)
			}
			if got.Delivery != tc.want || !strings.Contains(got.Why, tc.why) || got.Why == "" {
				t.Errorf("Choose() = %+v, want %s because %q", got, tc.want, tc.why)
			}
			if !has(got.Do, tc.do) || tc.instead != "" && !has(got.Instead, tc.instead) {
				t.Errorf("Choose() says do %q, instead %q, want %q and %q", got.Do, got.Instead, tc.do, tc.instead)
			}
			must.Part(t, "the warning of Choose()", tc.bad, got.Warning)
		})
	}
}

// TestVersionNotKnown: with a version that podweir-cni does not speak every way into
// the chain fails all pods.
func TestVersionNotKnown(t *testing.T) {
	s := conflist.Situation{Profile: profiles.Find("ptp"), Runtime: conflist.Runtime{Name: "containerd", Version: "2.1.3"}, Exclusive: profiles.No}
	for raw, refused := range map[string]string{
		`"cniVersion":"7.0.0",`: "7.0.0",
		// One libcni takes 1.0.0, the next one 7.0.0.
		`"cniVersion":"1.0.0","cniVersions":["1.0.0","7.0.0"],`: "7.0.0",
		`"cniVersions":["0.4.0","1.1.0"],`:                      "",
		`"cniVersion":"0.3.0",`:                                 "",
		`"cniVersion":"",`:                                      "",
		"":                                                      "",
	} {
		s.Original = fileOf(t, "10-x.conflist", `{`+raw+`"name":"n","plugins":[{"type":"ptp"}]}`).Network
		for _, d := range []profiles.Delivery{profiles.Chain, profiles.DropIn, profiles.Handed, profiles.NRI, profiles.Watch} {
			why, certain := conflist.Objection(d, s)
			if want := refused != "" && !d.ByAgent(); certain != want || want && !strings.Contains(why, refused) {
				t.Errorf("{%s}: objection to %s = %q, certain: %v, want %v because of %q", raw, d, why, certain, want, refused)
			}
		}
		c := conflist.Choose(s)
		if want := c.Delivery == profiles.DropIn; want != (refused == "") || !strings.Contains(c.Why, refused) {
			t.Errorf("{%s}: Choose() = %+v", raw, c)
		}
	}
}

func TestReadsDropIns(t *testing.T) {
	for in, want := range map[string]profiles.Answer{
		"containerd://1.6.36": profiles.No, "containerd://1.7.35": profiles.No, "containerd://2.0.14": profiles.No,
		"containerd://2.1.3": profiles.Yes, "containerd://v2.4.2": profiles.Yes, "containerd://2.1-rc.0": profiles.Yes,
		"containerd://3.0.0": profiles.Yes, "containerd://x.y": profiles.Unknown, "containerd://2": profiles.Unknown,
		"cri-o://1.31.0": profiles.No, "cri-o://1.32.1": profiles.No, "cri-o://1.33.0": profiles.Yes,
		"cri-o://1.34.0": profiles.Yes, "cri-o://2.0.0": profiles.Yes, "docker://28.1.1": profiles.Unknown,
	} {
		r := must.Get(conflist.ParseRuntime(in))(t)
		must.Be(t, fmt.Sprintf("%v reads drop-ins", r), want, r.ReadsDropIns())
	}
	for _, in := range []string{"", "containerd", "://1", "containerd://"} {
		must.Fail(t, "ParseRuntime of "+in, must.Err(conflist.ParseRuntime(in)), "is not accepted")
	}
}
