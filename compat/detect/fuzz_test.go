// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package detect_test

import (
	"path"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/podweir/podweir/compat/detect"
)

// FuzzContainerdConfig: no configuration of the runtime, which is TOML, breaks the reader
// or leads out of the node's root. It reads that file alone, which is more than twice as
// fast as a look at a whole node.
func FuzzContainerdConfig(f *testing.F) {
	f.Add([]byte("version = 2\n[plugins.\"io.containerd.grpc.v1.cri\".cni]\n  bin_dir = \"/opt/cni/bin\"\n  conf_dir = \"/etc/cni/net.d\"\n"))
	f.Add([]byte("bin_dirs = ['/a', \"/b\"]\nconf_dir = '../../x'\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		root := fstest.MapFS{"etc/containerd/config.toml": &fstest.MapFile{Data: raw}}
		c := detect.ReadRuntimeConfig(root, nil)
		for _, dir := range append(c.BinDirs, c.ConfDir) {
			if path.IsAbs(dir) || dir == ".." || strings.HasPrefix(dir, "../") {
				t.Errorf("directory %q is not below the root", dir)
			}
		}
	})
}
