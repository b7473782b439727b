// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cluster"
	"github.com/podweir/podweir/e2e/step"
)

// Made is what a Cilium is installed from.
type Made struct {
	// Dir has the archive and chart.
	Dir string
	// Image is the name of the image in the archive.
	Image string
}

// The versions, by the names of their go.mod in e2e/cilium.
const (
	Newest = "go.mod"
	// Old is what upgrades come from.
	Old = "1.15.mod"
)

// Prepare runs e2e/cilium/setup.sh, which builds what is missing of a version; here is
// that directory. It takes 20 minutes of processor time the first time.
func Prepare(ctx context.Context, here, version string) (_ Made, err error) {
	defer step.End(&err)
	made := step.Get(cluster.Setup(ctx, here, 2, version))
	return Made{Dir: made[0], Image: made[1]}, nil
}

// Archive is the image as nodes import it.
func (m Made) Archive() string { return filepath.Join(m.Dir, "cilium-"+m.Version()+".tar") }

// Chart is the directory of Cilium's own chart.
func (m Made) Chart() string { return filepath.Join(m.Dir, "chart") }

// Version of Cilium.
func (m Made) Version() string { return m.Image[strings.LastIndexByte(m.Image, ':')+1:] }
