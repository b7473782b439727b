// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package image_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/podweir/podweir/plugin/testutil/must"
)

const (
	created = 1764000000
	name    = "localhost:5000/podweir/podweir:1.2.3"
)

// binaries makes a directory with a program under both names, which has one module linked
// in.
func binaries(t *testing.T) string {
	t.Helper()
	out := t.TempDir()
	for _, program := range []string{"podweir", "podweir-cni"} {
		build := exec.CommandContext(t.Context(), "go", "build", "-o", filepath.Join(out, runtime.GOARCH, program), "./testdata/program")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if text, err := build.CombinedOutput(); err != nil {
			t.Fatalf("go build: %v: %s", err, text)
		}
	}
	return out
}

// image runs the script on binaries, and returns what it says.
func image(t *testing.T, out string) (string, error) {
	t.Helper()
	_, err := os.Stat("image.sh") // so that go test does not take a cached result for another script
	must.OK(t, err)
	run := exec.CommandContext(t.Context(), "tools/image/image.sh", "1.2.3", "abc", strconv.Itoa(created), name)
	run.Dir = filepath.Join("..", "..")
	run.Env = append(os.Environ(), "OUT="+out, "ARCHS="+runtime.GOARCH)
	text, err := run.CombinedOutput()
	return string(text), err
}

// untar returns the regular files of a tar, and checks that nothing in it tells of this
// machine.
func untar(t *testing.T, data []byte) map[string][]byte {
	t.Helper()
	files := map[string][]byte{}
	for in := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		must.OK(t, err)
		if h.Uid != 0 || h.Gid != 0 || h.Uname != "" || !h.ModTime.Equal(time.Unix(created, 0)) || h.Mode&0o22 != 0 {
			t.Errorf("%s: owner %d:%d %q, mode %o, time %s", h.Name, h.Uid, h.Gid, h.Uname, h.Mode, h.ModTime)
		}
		content := must.Get(io.ReadAll(in))(t)
		if h.Typeflag == tar.TypeReg {
			files[h.Name] = content
		}
	}
}

func readTar(t *testing.T, file string) map[string][]byte {
	t.Helper()
	data := must.Get(os.ReadFile(file))(t)
	return untar(t, data)
}

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
}

func decode[T any](t *testing.T, data []byte) (out T) {
	t.Helper()
	must.OK(t, json.Unmarshal(data, &out))
	return out
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

// checkImage holds a configuration and compressed layers to what is to be in the image.
func checkImage(t *testing.T, config []byte, layers [][]byte) {
	t.Helper()
	c := decode[struct {
		OS, Architecture string
		Config           struct{ Entrypoint, Cmd []string }
		RootFS           struct {
			DiffIDs []string `json:"diff_ids"`
		}
	}](t, config)
	if got := strings.Join(append(c.Config.Entrypoint, c.Config.Cmd...), " "); got != "/usr/local/bin/podweir agent" || c.Architecture != runtime.GOARCH {
		t.Errorf("the image of %s runs %q", c.Architecture, got)
	}
	var ids, names []string
	for _, layer := range layers {
		r := must.Get(gzip.NewReader(bytes.NewReader(layer)))(t)
		text := must.Get(io.ReadAll(r))(t)
		ids = append(ids, fmt.Sprintf("sha256:%x", sha256.Sum256(text)))
		for file := range untar(t, text) {
			names = append(names, file)
		}
	}
	must.Match(t, "layers of the configuration", ids, c.RootFS.DiffIDs)
	for _, want := range []string{
		"usr/local/bin/podweir", "usr/local/bin/podweir-cni", "sbom/podweir.spdx.json", "licenses/LICENSE", "licenses/go/LICENSE", "licenses/golang.org/x/sys/LICENSE",
	} {
		if !slices.Contains(names, want) {
			t.Errorf("%s is not in the image: %q", want, names)
		}
	}
}

func TestImage(t *testing.T) {
	out := binaries(t)
	said := must.Get(image(t, out))(t)
	files := readTar(t, filepath.Join(out, "podweir-oci.tar"))
	top := decode[document](t, files["index.json"]).Manifests[0]
	must.Be(t, "what the script says", name+" "+top.Digest+"\n", said)
	if named := top.Annotations; named["org.opencontainers.image.ref.name"] != "1.2.3" || named["io.containerd.image.name"] != name {
		t.Errorf("annotations of index.json = %v, want the tag and the name", named)
	}
	of := decode[document](t, blob(t, files, top)).Manifests[0]
	m := decode[document](t, blob(t, files, of))
	if of.Platform.OS != "linux" || of.Platform.Architecture != runtime.GOARCH || m.MediaType != of.MediaType {
		t.Errorf("the manifest is %+v of %+v", m, of)
	}
	var layers [][]byte
	for _, l := range m.Layers {
		layers = append(layers, blob(t, files, l))
	}
	checkImage(t, blob(t, files, m.Config), layers)

	docker := readTar(t, filepath.Join(out, "podweir-docker.tar"))
	one := decode[[]struct {
		Config           string
		RepoTags, Layers []string
	}](t, docker["manifest.json"])[0]
	layers = nil
	for _, file := range one.Layers {
		layers = append(layers, docker[file])
	}
	checkImage(t, docker[one.Config], layers)
	must.Match(t, "how docker calls it", []string{name}, one.RepoTags)

	sbom := must.Get(os.ReadFile(filepath.Join(out, "podweir-"+runtime.GOARCH+".spdx.json")))(t)
	checkSBOM(t, sbom)

	must.Be(t, "what is said of the same binaries", said, must.Get(image(t, out))(t))
	must.OK(t, os.WriteFile(filepath.Join(out, runtime.GOARCH, "podweir"), []byte("no program"), 0o755))
	if said, err := image(t, out); err == nil || !strings.Contains(said, "could not read Go build info") {
		t.Errorf("a file that is no program gives %q, %v", said, err)
	}
}

// checkSBOM: each module once, by identifiers that SPDX accepts.
func checkSBOM(t *testing.T, text []byte) {
	t.Helper()
	d := decode[struct {
		Packages []struct {
			ID           string `json:"SPDXID"`
			Name         string
			Version      string `json:"versionInfo"`
			ExternalRefs []struct{ ReferenceLocator string }
		}
		Relationships []struct{ SPDXElementID, RelationshipType, RelatedSPDXElement string }
	}](t, text)
	ids := map[string]bool{"SPDXRef-DOCUMENT": true}
	var names []string
	for _, p := range d.Packages {
		names = append(names, p.Name)
		if ids[p.ID] || strings.ContainsAny(p.ID, "/_+@") {
			t.Errorf("identifier %q is used twice or has characters that SPDX refuses", p.ID)
		}
		ids[p.ID] = true
		if p.Name == "golang.org/x/sys" && (p.Version == "" || p.ExternalRefs[0].ReferenceLocator != "pkg:golang/golang.org/x/sys@"+p.Version) {
			t.Errorf("the SBOM has %+v", p)
		}
	}
	must.Match(t, "packages", []string{"podweir", "stdlib", "golang.org/x/sys", "podweir-cni"}, names)
	for _, r := range d.Relationships {
		if !ids[r.SPDXElementID] || !ids[r.RelatedSPDXElement] {
			t.Errorf("relationship %v names what is not there", r)
		}
	}
	must.Len(t, "relationships: 2 programs and 2 libraries of each", 6, d.Relationships)
}
