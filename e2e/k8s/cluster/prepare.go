// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// Prepare runs setup.sh, which builds what is missing, and returns the options
// of a cluster made of it. here is the directory of e2e/k8s, dir is
// [Options.Dir].
func Prepare(ctx context.Context, here, dir string, nodes ...string) (Options, error) {
	here, err := filepath.Abs(here)
	if err != nil {
		return Options{}, err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(here, "setup.sh"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return Options{}, fmt.Errorf("setup.sh: %w", err)
	}
	made := strings.Fields(string(out))
	if len(made) != 2 {
		return Options{}, fmt.Errorf("setup.sh printed %q, want two words", out)
	}
	return Options{
		Dir: dir, Components: made[0], NodeImage: made[1], NodeFiles: filepath.Join(here, "node"),
		Images: []string{filepath.Join(made[0], "work.tar"), filepath.Join(here, "../../bin/image/podweir-oci.tar")},
		Nodes:  nodes,
	}, nil
}
