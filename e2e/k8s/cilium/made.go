// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

import (
	"context"
	"path/filepath"
	"strings"

	"github.com/podweir/podweir/e2e/k8s/cluster"
)

// Made is what a Cilium is installed from.
type Made struct {
	// Dir has image.tar and chart.
	Dir string
	// Image is the name of the image in image.tar.
	Image string
}

// Prepare runs e2e/cilium-agent/setup.sh, which builds what is missing; here is
// that directory. It takes 15 minutes of processor time the first time.
func Prepare(ctx context.Context, here string) (Made, error) {
	made, err := cluster.Setup(ctx, here, 2)
	if err != nil {
		return Made{}, err
	}
	return Made{Dir: made[0], Image: made[1]}, nil
}

// Archive is the image as nodes import it.
func (m Made) Archive() string { return filepath.Join(m.Dir, "image.tar") }

// Chart is the directory of Cilium's own chart.
func (m Made) Chart() string { return filepath.Join(m.Dir, "chart") }

// Version is that of Cilium.
func (m Made) Version() string { return m.Image[strings.LastIndexByte(m.Image, ':')+1:] }
