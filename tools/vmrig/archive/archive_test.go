// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package archive

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/podweir/podweir/plugin/testutil/must"
)

func TestSystemSource(t *testing.T) {
	tests := map[string]struct {
		files map[string]string
		want  Source
		err   bool
	}{
		"one line": {
			files: map[string]string{"sources.list": "# deb http://a.example/debian trixie main\ndeb http://b.example/debian/ bookworm main contrib\n"},
			want:  Source{URI: "http://b.example/debian"},
		},
		"one line with options": {
			files: map[string]string{"sources.list.d/a.list": "deb [arch=amd64 signed-by=/k.gpg] http://b.example/debian sid main\n"},
			want:  Source{URI: "http://b.example/debian"},
		},
		"source packages are no binary packages": {
			files: map[string]string{"sources.list": "deb-src http://b.example/debian bookworm main\n"},
			err:   true,
		},
		"security alone is another archive": {
			files: map[string]string{"sources.list": "deb http://s.example/debian-security bookworm-security main\n"},
			err:   true,
		},
		"paragraphs": {
			files: map[string]string{"sources.list.d/debian.sources": "Types: deb\nURIs: http://s.example/x\nSuites: nodistro\nComponents: main\n\n" +
				"Types: deb\n# a remark\nURIs: http://b.example/debian\nSuites: bookworm bookworm-updates\nComponents: main\nSigned-By: /d.gpg\n"},
			want: Source{URI: "http://b.example/debian"},
		},
		"a disabled paragraph": {
			files: map[string]string{"sources.list.d/debian.sources": "Types: deb\nURIs: http://b.example/debian\nSuites: trixie\nComponents: main\nEnabled: no\n"},
			err:   true,
		},
		"nothing": {err: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			etc := t.TempDir()
			for path, data := range tt.files {
				path = filepath.Join(etc, path)
				must.OK(t, os.MkdirAll(filepath.Dir(path), 0o755))
				must.OK(t, os.WriteFile(path, []byte(data), 0o644))
			}
			got, err := SystemSource(t.Context(), etc)
			if (err != nil) != tt.err {
				t.Fatalf("SystemSource() error = %v, want one: %t", err, tt.err)
			}
			if tt.want != (Source{}) {
				tt.want = tt.want.WithKeyring()
			}
			if got != tt.want {
				t.Errorf("SystemSource() = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestDependencies(t *testing.T) {
	record := "Package: p\nDepends: libc6 (>= 2.39), libgcc-s1:any (>= 4.2), kmod | module-init-tools,libx\nSuggests: q\n"
	want := []string{"libc6", "libgcc-s1", "kmod", "libx"}
	if diff := cmp.Diff(want, dependencies(record)); diff != "" {
		t.Errorf("dependencies() mismatch (-want +got):\n%s", diff)
	}
}
