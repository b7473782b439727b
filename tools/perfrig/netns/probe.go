// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netns

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/podweir/podweir/tools/perfrig/spec"
)

// unavailable says why this checkout cannot do a cell, "" if it can: the build that it is
// of may be missing.
func (s *Substrate) unavailable(c *spec.Cell) string {
	if name := c.Phase.Keys["type"]; name != "" {
		if _, err := os.Stat(filepath.Join(s.root, ownPlugins, name)); errors.Is(err, fs.ErrNotExist) {
			return "no " + filepath.Join(ownPlugins, name) + `: "make before" builds it`
		}
	}
	return ""
}
