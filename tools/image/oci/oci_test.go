// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package oci_test

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/podweir/podweir/tools/image/oci"
)

var created = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

func spec() oci.Spec {
	return oci.Spec{
		Reference: "localhost/podweir/podweir:1.2.3", Created: created,
		Entrypoint: []string{"/usr/local/bin/podweir"}, Command: []string{"agent"},
		Labels: map[string]string{"org.opencontainers.image.version": "1.2.3", "b": "2", "c": "3"},
	}
}

func platforms() []oci.Platform {
	var out []oci.Platform
	for _, arch := range []string{"amd64", "arm64"} {
		out = append(out, oci.Platform{Architecture: arch, Layers: [][]oci.File{
			{{Path: "/licenses/LICENSE", Mode: 0o644, Data: []byte("text")}},
			{
				{Path: "/usr/local/bin/podweir-cni", Mode: 0o755, Data: []byte("plugin for " + arch)},
				{Path: "/usr/local/bin/podweir", Mode: 0o755, Data: []byte("command for " + arch)},
			},
		}})
	}
	return out
}

func write(t *testing.T, s oci.Spec, p []oci.Platform) ([]byte, v1.Hash) {
	t.Helper()
	var out bytes.Buffer
	digest, err := oci.Write(&out, s, p)
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), digest
}

func TestTheSameFilesGiveTheSameImage(t *testing.T) {
	first, digest := write(t, spec(), platforms())
	turned := platforms()
	for _, p := range turned {
		slices.Reverse(p.Layers[1])
	}
	second, again := write(t, spec(), turned)
	if digest != again || !bytes.Equal(first, second) {
		t.Errorf("digests %s and %s: the order of the files shows", digest, again)
	}
	turned[1].Layers[1][0].Data = []byte("another plugin")
	if _, other := write(t, spec(), turned); other == digest {
		t.Error("another file gives the same digest")
	}
}

// unpack reads the OCI tar as an importer does.
func unpack(t *testing.T, text []byte) v1.ImageIndex {
	t.Helper()
	dir := t.TempDir()
	for name, data := range untar(t, bytes.NewReader(text)) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	top, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := top.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if n := len(manifest.Manifests); n != 1 {
		t.Fatalf("index.json names %d images, want 1", n)
	}
	named := manifest.Manifests[0].Annotations
	if named["org.opencontainers.image.ref.name"] != "1.2.3" || named["io.containerd.image.name"] != spec().Reference {
		t.Errorf("annotations of index.json = %v, want the tag and the name", named)
	}
	index, err := top.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return index
}

// untar returns the regular files of a tar, and checks that nothing in it
// tells of this machine.
func untar(t *testing.T, r io.Reader) map[string][]byte {
	t.Helper()
	out := map[string][]byte{}
	for in := tar.NewReader(r); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(created) {
			t.Errorf("%s: owner %d:%d %q, time %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
		data, err := io.ReadAll(in)
		if err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			out[h.Name] = data
		}
	}
}

func TestTheImageIsWhole(t *testing.T) {
	text, _ := write(t, spec(), platforms())
	index := unpack(t, text)
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var archs []string
	for _, d := range manifest.Manifests {
		archs = append(archs, d.Platform.OS+"/"+d.Platform.Architecture)
		image, err := index.Image(d.Digest)
		if err != nil {
			t.Fatal(err)
		}
		checkImage(t, image, d.Platform.Architecture)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(archs, want) {
		t.Errorf("platforms = %v, want %v", archs, want)
	}
}

func checkImage(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	config, err := image.ConfigFile()
	if err != nil {
		t.Fatal(err)
	}
	if config.Architecture != arch || config.OS != "linux" {
		t.Errorf("configuration is for %s/%s, want linux/%s", config.OS, config.Architecture, arch)
	}
	if got := strings.Join(append(config.Config.Entrypoint, config.Config.Cmd...), " "); got != "/usr/local/bin/podweir agent" {
		t.Errorf("the image runs %q", got)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{}
	for _, layer := range layers {
		r, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(files, untar(t, r))
		_ = r.Close()
	}
	if len(files) != 3 || string(files["usr/local/bin/podweir"]) != "command for "+arch {
		t.Errorf("%s: files = %q", arch, files)
	}
}

func TestDockerReadsItsTar(t *testing.T) {
	name := filepath.Join(t.TempDir(), "docker.tar")
	f, err := os.Create(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := oci.WriteDocker(f, spec(), platforms()[0]); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	image, err := tarball.ImageFromPath(name, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Image(image); err != nil {
		t.Error(err)
	}
	checkImage(t, image, "amd64")
}

func TestRelativePathIsRefused(t *testing.T) {
	p := oci.Platform{Architecture: "amd64", Layers: [][]oci.File{{{Path: "etc/passwd"}}}}
	if _, err := oci.Image(spec(), p); err == nil || !strings.Contains(err.Error(), `"etc/passwd"`) {
		t.Errorf("error = %v, want one that names the path", err)
	}
}
