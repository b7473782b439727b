// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package vm

import (
	"context"
	"path/filepath"

	"github.com/podweir/podweir/tools/vmrig/archive"
)

// Dir returns the directory of the cache for a name.
func (c *Cache) Dir(name string) string { return filepath.Join(c.dir, name) }

// HostLib returns the directory of the C library and loader that the emulator
// runs with; they are newer than those of some machines.
func (c *Cache) HostLib() string { return filepath.Join(c.hostDir(), hostLib) }

// Unpack brings the files of one package of a release into the directory for a
// name, whole or not at all, after finish has worked on them.
func (c *Cache) Unpack(ctx context.Context, src archive.Source, suite, pkg, name string, finish func(dir string) error) error {
	none := func(string) bool { return false }
	return c.fetch(ctx, src, suite, []string{pkg}, c.Dir(name), none, finish)
}
