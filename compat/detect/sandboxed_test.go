// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
)

// Handlers are found in every file in which a runtime has them, by what they run and not by
// their names alone.
func TestSandboxedHandlers(t *testing.T) {
	const (
		crio    = "9 crio"
		config  = "etc/containerd/config.toml"
		dockerd = "etc/docker/daemon.json"
	)
	kata, gvisor := profiles.Runtimes{Redirects: true, TCX: profiles.Yes}, profiles.Runtimes{GVisor: true, TCX: profiles.Yes}
	for name, tc := range map[string]struct {
		files     map[string]string
		processes []string
		want      map[string]detect.Sandboxed
		runtimes  profiles.Runtimes
		// byDefault is what pods run that name no handler.
		byDefault detect.Sandboxed
	}{
		"containerd 2": {
			files:    map[string]string{config: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.vm]\nruntime_type = 'io.containerd.kata.v2'\n"},
			want:     map[string]detect.Sandboxed{"vm": detect.Kata},
			runtimes: kata,
		},
		"containerd 1.7": {
			files:    map[string]string{config: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.box]\nruntime_type = 'io.containerd.runsc.v1'\n"},
			want:     map[string]detect.Sandboxed{"box": detect.GVisor},
			runtimes: gvisor,
		},
		"containerd, version 1 of the file": {
			files:    map[string]string{config: "[plugins.cri.containerd.runtimes.vm]\nruntime_type = 'io.containerd.kata.v2'\n"},
			want:     map[string]detect.Sandboxed{"vm": detect.Kata},
			runtimes: kata,
		},
		"containerd, by the program of runc's shim": {
			files: map[string]string{config: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.box]\nruntime_type = 'io.containerd.runc.v2'\n" +
				"[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.box.options]\nBinaryName = '/usr/bin/runsc'\n"},
			want:     map[string]detect.Sandboxed{"box": detect.GVisor},
			runtimes: gvisor,
		},
		"containerd, the default": {
			files: map[string]string{config: "version = 2\n[plugins.'io.containerd.grpc.v1.cri'.containerd]\ndefault_runtime_name = 'box'\n" +
				"[plugins.'io.containerd.grpc.v1.cri'.containerd.runtimes.box]\nruntime_type = 'io.containerd.runsc.v1'\n"},
			want:      map[string]detect.Sandboxed{"box": detect.GVisor},
			runtimes:  gvisor,
			byDefault: detect.GVisor,
		},
		"containerd, untrusted workloads": {
			files:    map[string]string{config: "[plugins.cri.containerd.untrusted_workload_runtime]\nruntime_engine = '/usr/bin/kata-runtime'\n"},
			want:     map[string]detect.Sandboxed{"untrusted": detect.Kata},
			runtimes: kata,
		},
		"containerd 2.2, a drop-in that nothing imports": {
			files: map[string]string{
				config:                             "version = 3\n",
				"etc/containerd/conf.d/runsc.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]\nruntime_type = 'io.containerd.runsc.v1'\n",
			},
			want:     map[string]detect.Sandboxed{"runsc": detect.GVisor},
			runtimes: gvisor,
		},
		"containerd 2.2, a drop-in alone": {
			files: map[string]string{
				"etc/containerd/conf.d/k.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.u]\nruntime_type = 'io.containerd.urunc.v2'\n",
			},
			want:     map[string]detect.Sandboxed{"u": detect.Urunc},
			runtimes: kata,
		},
		"containerd of another, whose drop-ins are not its own": {
			processes: []string{"9 containerd -c /var/lib/rancher/k3s/agent/etc/containerd/config.toml"},
			files: map[string]string{
				"var/lib/rancher/k3s/agent/etc/containerd/config.toml": "version = 3\n",
				"etc/containerd/conf.d/runsc.toml":                     "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runsc]\nruntime_type = 'io.containerd.runsc.v1'\n",
			},
			runtimes: profiles.Runtimes{TCX: profiles.Yes},
		},
		"k3s, its drop-in": {
			processes: []string{"9 containerd -c /var/lib/rancher/k3s/agent/etc/containerd/config.toml"},
			files: map[string]string{
				"var/lib/rancher/k3s/agent/etc/containerd/config.toml":                "imports = ['/var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/*.toml']\nversion = 3\n",
				"var/lib/rancher/k3s/agent/etc/containerd/config-v3.toml.d/kata.toml": "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.kata-qemu]\nruntime_type = 'io.containerd.kata-qemu.v2'\n",
			},
			want:     map[string]detect.Sandboxed{"kata-qemu": detect.Kata},
			runtimes: kata,
		},
		"CRI-O's drop-in": {
			processes: []string{crio},
			files: map[string]string{
				"etc/crio/crio.conf.d/99-vm": "[crio.runtime]\ndefault_runtime = 'vm'\n[crio.runtime.runtimes.vm]\nruntime_path = '/usr/bin/containerd-shim-kata-v2'\nruntime_type = 'vm'\n",
			},
			want:      map[string]detect.Sandboxed{"vm": detect.Kata},
			runtimes:  kata,
			byDefault: detect.Kata,
		},
		"dockerd": {
			processes: []string{"9 cri-dockerd"},
			files:     map[string]string{dockerd: `{"default-runtime": "box", "runtimes": {"box": {"path": "/usr/local/bin/runsc"}, "k": {"runtimeType": "io.containerd.kata.v2"}}}`},
			want:      map[string]detect.Sandboxed{"box": detect.GVisor, "k": detect.Kata},
			runtimes:  profiles.Runtimes{Redirects: true, GVisor: true, TCX: profiles.Yes},
			byDefault: detect.GVisor,
		},
		"a chained plugin that redirects": {
			files: map[string]string{
				"etc/cni/net.d/10-fc.conflist": `{"cniVersion":"1.0.0","name":"fc","plugins":[{"type":"ptp"},{"type":"tc-redirect-tap"}]}`,
			},
			runtimes: kata,
		},
		"processes alone": {
			files:    map[string]string{config: "version = 3\n[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]\nruntime_type = 'io.containerd.runc.v2'\n"},
			runtimes: profiles.Runtimes{TCX: profiles.Yes},
		},
	} {
		n := detect.Read(t.Context(), node{files: tc.files, processes: tc.processes}.root(), detect.Options{Live: live{}})
		if diff := cmp.Diff(tc.want, n.Config.Sandboxed); diff != "" {
			t.Errorf("%s: handlers differ (-want +got):\n%s", name, diff)
		}
		if got := n.Runtimes(); got != tc.runtimes {
			t.Errorf("%s: Runtimes() = %+v, want %+v", name, got, tc.runtimes)
		}
		if got := n.Config.Runs(""); got != tc.byDefault {
			t.Errorf("%s: pods without a handler run %q, want %q", name, got, tc.byDefault)
		}
	}
}
