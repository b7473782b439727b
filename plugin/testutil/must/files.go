// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package must

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Files writes files of mode 0755 below a directory, which it returns, and the directories that
// they are in.
func Files(tb testing.TB, root string, files map[string]string) string {
	tb.Helper()
	for name, content := range files {
		name = filepath.Join(root, name)
		OK(tb, os.MkdirAll(filepath.Dir(name), 0o755))
		OK(tb, os.WriteFile(name, []byte(content), 0o755))
	}
	return root
}

// Tree describes everything below a directory by its names there: kinds, modes, contents, and
// the second in which files were last written.
func Tree(tb testing.TB, root string) map[string]string {
	tb.Helper()
	out := map[string]string{}
	OK(tb, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info := Get(d.Info())(tb)
		text := info.Mode().String()
		switch {
		case info.Mode()&fs.ModeSymlink != 0:
			text += " to " + Get(os.Readlink(path))(tb)
		case info.Mode().IsRegular():
			text += fmt.Sprintf(" of %d: %s", info.ModTime().Unix(), Get(os.ReadFile(path))(tb))
		}
		out[strings.TrimPrefix(path, root)] = text
		return nil
	}))
	return out
}
