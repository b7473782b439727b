// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect

import (
	"runtime/debug"
	"testing"
)

func TestLibcniVersion(t *testing.T) {
	const head = "path\tgithub.com/containerd/containerd/v2/cmd/containerd\nmod\tgithub.com/containerd/containerd/v2\t(devel)\t\n"
	for text, want := range map[string]string{
		head + "dep\tgithub.com/containernetworking/cni\tv1.3.0\th1:x=\n":                              "v1.3.0",
		head + "dep\tgithub.com/containernetworking/cni\tv1.2.3\n=>\texample.org/cni\tv1.3.1\th1:x=\n": "v1.3.1",
		head + "dep\tgithub.com/containernetworking/plugins\tv1.9.1\th1:x=\n":                          "",
		head: "",
	} {
		info, err := debug.ParseBuildInfo(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := libcniVersion(info); got != want {
			t.Errorf("libcniVersion(%q) = %q, want %q", text, got, want)
		}
	}
}
