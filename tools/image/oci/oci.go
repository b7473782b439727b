// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package oci puts files together to a container image for several
// architectures, without a registry, a daemon or a base image. The same files
// give the same bytes.
package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// File is one regular file of an image, owned by root.
type File struct {
	// Path is absolute.
	Path string
	Mode int64
	Data []byte
}

// Spec is what all architectures of an image have in common.
type Spec struct {
	// Reference is the name that runtimes give the image on import, with a tag.
	Reference string
	// Created is the time of every file and of the image.
	Created time.Time
	// Entrypoint is executed as it is: there is no shell in the image.
	Entrypoint, Command []string
	// Labels are those of the configuration, and the annotations of manifest and
	// index.
	Labels map[string]string
}

// Platform is the part of an image that is for one architecture. Each layer is
// a list of files.
type Platform struct {
	Architecture string
	Layers       [][]File
}

// searchPath lets "kubectl exec" find programs by name.
const searchPath = "/usr/local/bin"

// Image makes the image for one architecture.
func Image(s Spec, p Platform) (v1.Image, error) {
	image := mutate.MediaType(empty.Image, types.OCIManifestSchema1)
	image = mutate.ConfigMediaType(image, types.OCIConfigJSON)
	config := &v1.ConfigFile{
		Architecture: p.Architecture, OS: "linux", Created: v1.Time{Time: s.Created},
		RootFS: v1.RootFS{Type: "layers"},
		Config: v1.Config{
			User: "0:0", WorkingDir: "/", Env: []string{"PATH=" + searchPath},
			Entrypoint: s.Entrypoint, Cmd: s.Command, Labels: s.Labels,
		},
	}
	image, err := mutate.ConfigFile(image, config)
	if err != nil {
		return nil, err
	}
	for _, files := range p.Layers {
		text, err := archive(files, s.Created)
		if err != nil {
			return nil, err
		}
		layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) {
			return io.NopCloser(bytes.NewReader(text)), nil
		}, tarball.WithMediaType(types.OCILayer))
		if err != nil {
			return nil, err
		}
		image, err = mutate.Append(image, mutate.Addendum{
			Layer: layer, MediaType: types.OCILayer,
			History: v1.History{Created: v1.Time{Time: s.Created}, CreatedBy: "tools/image"},
		})
		if err != nil {
			return nil, err
		}
	}
	return mutate.Annotations(image, s.Labels).(v1.Image), nil
}

// archive is a tar of files and their directories, in the order of their
// paths, without anything of the machine it is made on.
func archive(files []File, created time.Time) ([]byte, error) {
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	made := map[string]bool{"/": true}
	for _, f := range files {
		if !path.IsAbs(f.Path) {
			return nil, fmt.Errorf("file %q: the path is not absolute", f.Path)
		}
		for _, dir := range parents(f.Path) {
			if made[dir] {
				continue
			}
			made[dir] = true
			if err := w.WriteHeader(header(dir+"/", tar.TypeDir, 0o755, 0, created)); err != nil {
				return nil, err
			}
		}
		if err := w.WriteHeader(header(f.Path, tar.TypeReg, f.Mode, int64(len(f.Data)), created)); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.Data); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return out.Bytes(), err
}

func header(file string, kind byte, mode, size int64, created time.Time) *tar.Header {
	return &tar.Header{Name: strings.TrimPrefix(file, "/"), Typeflag: kind, Mode: mode, Size: size, ModTime: created, Format: tar.FormatPAX}
}

// parents lists the directories above a path, the highest first.
func parents(file string) []string {
	var out []string
	for dir := path.Dir(file); dir != "/"; dir = path.Dir(dir) {
		out = append(out, dir)
	}
	slices.Reverse(out)
	return out
}

// Index joins the images of all architectures.
func Index(s Spec, platforms []Platform) (v1.ImageIndex, error) {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, p := range platforms {
		image, err := Image(s, p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", p.Architecture, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: "linux", Architecture: p.Architecture}},
		})
	}
	return mutate.Annotations(index, s.Labels).(v1.ImageIndex), nil
}

// WriteDocker writes the image of one architecture as "docker load" reads it,
// old versions too.
func WriteDocker(w io.Writer, s Spec, p Platform) error {
	ref, err := name.NewTag(s.Reference)
	if err != nil {
		return err
	}
	image, err := Image(s, p)
	if err != nil {
		return err
	}
	return tarball.Write(ref, image, w)
}
