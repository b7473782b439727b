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
	"time"

	"github.com/podweir/podweir/e2e/step"
)

// Prepare runs setup.sh, which builds what is missing, and returns the options
// of a cluster made of it. here is the directory of e2e/k8s, dir is [Options.Dir], and
// kubernetes an older release of it, such as "1.34"; "" is the newest.
func Prepare(ctx context.Context, here, dir, kubernetes string, nodes ...string) (_ Options, err error) {
	defer step.End(&err)
	here = step.Get(filepath.Abs(here))
	made := step.Get(Setup(ctx, here, 2, "", kubernetes))
	image := filepath.Join(here, "../../bin/image/podweir-oci.tar")
	// Docker would make a directory of a file that is not there.
	if _, err := os.Stat(image); err != nil {
		return Options{}, fmt.Errorf("podweir's image: %w: \"make image\" makes it", err)
	}
	return Options{
		Dir: dir, Components: made[0], NodeImage: made[1], NodeFiles: filepath.Join(here, "node"),
		Images: []string{filepath.Join(made[0], "work.tar"), image},
		Nodes:  nodes,
	}, nil
}

// Setup runs setup.sh of a directory, which builds what is missing, and returns
// the words that it prints, as many as are wanted. What it says of its work goes
// to stderr.
func Setup(ctx context.Context, here string, words int, args ...string) (_ []string, err error) {
	defer step.End(&err)
	script := step.Get(filepath.Abs(filepath.Join(here, "setup.sh")))
	cmd := exec.CommandContext(ctx, script, args...)
	cmd.Stderr = os.Stderr
	// What it started may outlive it, and holds its output open.
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.Output()
	step.Say(err, "%s", script)
	made := strings.Fields(string(out))
	if len(made) != words {
		return nil, fmt.Errorf("%s printed %q, want %d words", script, out, words)
	}
	return made, nil
}
