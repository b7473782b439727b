// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"fmt"
	"runtime/debug"
	"testing"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestCalicoVersion(t *testing.T) {
	const head = "path\tgithub.com/projectcalico/calico/node/cmd/calico-node\n"
	for text, want := range map[string]string{
		// As `go version -m` shows it for LDFLAGS of lib.Makefile.
		head + "build\t-ldflags=\"-X github.com/projectcalico/calico/pkg/buildinfo.Version=v3.31.2 -X github.com/projectcalico/calico/pkg/buildinfo.GitRevision=abc -B 0x1\"\n": "v3.31.2",
		head + "build\t-ldflags=\"-X github.com/projectcalico/calico/pkg/buildinfo.Version=v3.33.0-0.dev-417-g0123456789ab\"\n":                                                 "v3.33.0-0.dev-417-g0123456789ab",
		head + "build\t-ldflags=\"-s -X github.com/projectcalico/calico/node/pkg/lifecycle/startup.VERSION=v3.29.1 -X main.VERSION=v1.2\"\n":                                    "v3.29.1",
		head + "build\t-ldflags=\"-X github.com/projectcalico/calico/pkg/buildinfo.Version=<unknown>\"\n":                                                                       "",
		head + "build\t-ldflags=\"-X github.com/flannel-io/flannel/pkg/version.Version=v0.27.0\"\n":                                                                             "",
		head + "build\t-tags=x\n": "",
	} {
		info := must.Get(debug.ParseBuildInfo(text))(t)
		must.Be(t, fmt.Sprintf("calicoVersion(%q)", text), want, calicoVersion(info))
	}
}

func TestLibcniVersion(t *testing.T) {
	const head = "path\tgithub.com/containerd/containerd/v2/cmd/containerd\nmod\tgithub.com/containerd/containerd/v2\t(devel)\t\n"
	for text, want := range map[string]string{
		head + "dep\tgithub.com/containernetworking/cni\tv1.3.0\th1:x=\n":                              "v1.3.0",
		head + "dep\tgithub.com/containernetworking/cni\tv1.2.3\n=>\texample.org/cni\tv1.3.1\th1:x=\n": "v1.3.1",
		head + "dep\tgithub.com/containernetworking/plugins\tv1.9.1\th1:x=\n":                          "",
		head: "",
	} {
		info := must.Get(debug.ParseBuildInfo(text))(t)
		must.Be(t, fmt.Sprintf("libcniVersion(%q)", text), want, libcniVersion(info))
	}
}
