// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package oci_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
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

func write(t *testing.T, s oci.Spec, p []oci.Platform) ([]byte, string) {
	t.Helper()
	var out bytes.Buffer
	digest, err := oci.Write(&out, s, p)
	must.OK(t, err)
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
		must.OK(t, err)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(created) {
			t.Errorf("%s: owner %d:%d %q, time %s", h.Name, h.Uid, h.Gid, h.Uname, h.ModTime)
		}
		data, err := io.ReadAll(in)
		must.OK(t, err)
		if h.Typeflag == tar.TypeReg {
			out[h.Name] = data
		}
	}
}

// reference is what an image's parts say of one another.
type reference struct {
	MediaType, Digest string
	Size              int
	Platform          struct{ OS, Architecture string }
	Annotations       map[string]string
}

type document struct {
	MediaType         string
	Manifests, Layers []reference
	Config            reference
	Annotations       map[string]string
}

// blob returns what a reference leads to, which must be what it says.
func blob(t *testing.T, files map[string][]byte, r reference) []byte {
	t.Helper()
	data, ok := files["blobs/"+strings.Replace(r.Digest, ":", "/", 1)]
	if got := fmt.Sprintf("sha256:%x", sha256.Sum256(data)); !ok || got != r.Digest || len(data) != r.Size {
		t.Fatalf("%s of %d bytes is %s of %d bytes (there: %t)", r.Digest, r.Size, got, len(data), ok)
	}
	return data
}

func read[T any](t *testing.T, data []byte) T {
	t.Helper()
	var out T
	must.OK(t, json.Unmarshal(data, &out))
	return out
}

func TestTheImageIsWhole(t *testing.T) {
	text, digest := write(t, spec(), platforms())
	files := untar(t, bytes.NewReader(text))
	if got := string(files["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout = %s", got)
	}
	top := read[document](t, files["index.json"])
	if len(top.Manifests) != 1 || top.Manifests[0].Digest != digest {
		t.Fatalf("index.json names %+v, want %s", top.Manifests, digest)
	}
	named := top.Manifests[0].Annotations
	if named["org.opencontainers.image.ref.name"] != "1.2.3" || named["io.containerd.image.name"] != spec().Reference {
		t.Errorf("annotations of index.json = %v, want the tag and the name", named)
	}
	index := read[document](t, blob(t, files, top.Manifests[0]))
	var archs []string
	for _, r := range index.Manifests {
		archs = append(archs, r.Platform.OS+"/"+r.Platform.Architecture)
		m := read[document](t, blob(t, files, r))
		if m.MediaType != r.MediaType || !maps.Equal(m.Annotations, spec().Labels) {
			t.Errorf("manifest = %+v", m)
		}
		var layers [][]byte
		for _, l := range m.Layers {
			layers = append(layers, blob(t, files, l))
		}
		checkImage(t, blob(t, files, m.Config), layers, r.Platform.Architecture)
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(archs, want) {
		t.Errorf("platforms = %v, want %v", archs, want)
	}
}

// checkImage holds a configuration and compressed layers to the files of an architecture.
func checkImage(t *testing.T, raw []byte, layers [][]byte, arch string) {
	t.Helper()
	c := read[struct {
		OS, Architecture string
		Config           struct{ Entrypoint, Cmd []string }
		RootFS           struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}](t, raw)
	if c.Architecture != arch || c.OS != "linux" {
		t.Errorf("configuration is for %s/%s, want linux/%s", c.OS, c.Architecture, arch)
	}
	if got := strings.Join(append(c.Config.Entrypoint, c.Config.Cmd...), " "); got != "/usr/local/bin/podweir agent" {
		t.Errorf("the image runs %q", got)
	}
	files := map[string][]byte{}
	var ids []string
	for _, layer := range layers {
		r, err := gzip.NewReader(bytes.NewReader(layer))
		must.OK(t, err)
		text, err := io.ReadAll(r)
		must.OK(t, err)
		ids = append(ids, fmt.Sprintf("sha256:%x", sha256.Sum256(text)))
		maps.Copy(files, untar(t, bytes.NewReader(text)))
	}
	if !slices.Equal(ids, c.RootFS.DiffIDs) {
		t.Errorf("%s: layers are %v, the configuration says %v", arch, ids, c.RootFS.DiffIDs)
	}
	if len(files) != 3 || string(files["usr/local/bin/podweir"]) != "command for "+arch {
		t.Errorf("%s: files = %q", arch, files)
	}
}

func TestDockerReadsItsTar(t *testing.T) {
	var out bytes.Buffer
	must.OK(t, oci.WriteDocker(&out, spec(), platforms()[0]))
	files := untar(t, &out)
	all := read[[]struct {
		Config           string
		RepoTags, Layers []string
	}](t, files["manifest.json"])
	if len(all) != 1 || !slices.Equal(all[0].RepoTags, []string{spec().Reference}) {
		t.Fatalf("manifest.json = %+v, want one image of the name", all)
	}
	var layers [][]byte
	for _, name := range all[0].Layers {
		layers = append(layers, files[name])
	}
	checkImage(t, files[all[0].Config], layers, "amd64")
}

func TestRelativePathIsRefused(t *testing.T) {
	p := oci.Platform{Architecture: "amd64", Layers: [][]oci.File{{{Path: "etc/passwd"}}}}
	if err := oci.WriteDocker(io.Discard, spec(), p); err == nil || !strings.Contains(err.Error(), `"etc/passwd"`) {
		t.Errorf("error = %v, want one that names the path", err)
	}
}
