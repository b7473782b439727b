// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package profiles

import (
	"regexp"
	"strings"
)

// handedEntry is podweir's entry in the commands of profiles.yaml. It has no settings of
// the operator's; see [Profile.WithEntry].
const handedEntry = `{"type":"podweir-cni","capabilities":{"bandwidth":true,"io.kubernetes.cri.pod-annotations":true},"hostHook":"tcx","ingressPlace":"prefer-ifb"}`

// ciliumUpgrade changes one setting of the release that runs: without its version
// Helm would take the newest.
const ciliumUpgrade = "helm upgrade cilium cilium/cilium --version " + AnyRelease + " --namespace kube-system --reuse-values --set "

// CiliumWithoutManager is the command that turns Cilium's bandwidth manager off;
// see [Command].
const CiliumWithoutManager = ciliumUpgrade + "bandwidthManager.enabled=false"

// AnyRelease is the placeholder in commands for the version of the CNI that runs;
// [Command] replaces it.
const AnyRelease = "VERSION"

// askRelease queries Helm for the version of the chart that is installed.
const askRelease = `"$(helm list --namespace kube-system --filter '^cilium$' --output json | jq -r '.[0].chart | ltrimstr("cilium-")')"`

// release is a version that may be written into a command as it is.
var release = regexp.MustCompile(`^[0-9]+\.[0-9]+\.[0-9]+(-[0-9A-Za-z.]+)?$`)

// Command returns a command for the release that runs. Where that is not known
// the command asks Helm for it.
func Command(command, version string) string {
	if !release.MatchString(version) {
		version = askRelease
	}
	return strings.ReplaceAll(command, "--version "+AnyRelease, "--version "+version)
}

// ForRelease returns the profile with its commands for the release that runs.
func (p *Profile) ForRelease(version string) *Profile {
	out := *p
	out.Conflist.HandedDo = commands(p.Conflist.HandedDo, version)
	out.Conflist.ShareDo = commands(p.Conflist.ShareDo, version)
	return &out
}

// WithEntry returns the profile with its commands for an entry of podweir's that has the
// settings of the node.
func (p *Profile) WithEntry(entry string) *Profile {
	out := *p
	out.Conflist.HandedDo = withEntry(p.Conflist.HandedDo, entry)
	out.Conflist.HandedAgainDo = withEntry(p.Conflist.HandedAgainDo, entry)
	return &out
}

// withEntry puts an entry in the place of the plain one, which is between single quotes
// of the shell. JSON is a literal of jq's, too.
func withEntry(list []string, entry string) []string {
	quoted := strings.ReplaceAll(entry, "'", `'\''`)
	var out []string
	for _, c := range list {
		out = append(out, strings.ReplaceAll(c, handedEntry, quoted))
	}
	return out
}

func commands(list []string, version string) []string {
	var out []string
	for _, c := range list {
		out = append(out, Command(c, version))
	}
	return out
}
