// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package oci puts files together to a container image for several
// architectures, without a registry, a daemon or a base image. The same files
// give the same bytes.
package oci

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
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

// Media types of the OCI image specification.
const (
	indexType    = "application/vnd.oci.image.index.v1+json"
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	configType   = "application/vnd.oci.image.config.v1+json"
	layerType    = "application/vnd.oci.image.layer.v1.tar+gzip"
)

// Names under which importers look for an image's own name: the OCI image
// specification's, which gives the tag, and containerd's, which gives all.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

type descriptor struct {
	MediaType   string            `json:"mediaType"`
	Digest      string            `json:"digest"`
	Size        int               `json:"size"`
	Platform    *platform         `json:"platform,omitempty"`
	Annotations map[string]string `json:"annotations,omitempty"`
}

type platform struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
}

// manifest of an image, or an index of manifests.
type manifest struct {
	SchemaVersion int               `json:"schemaVersion"`
	MediaType     string            `json:"mediaType"`
	Config        *descriptor       `json:"config,omitempty"`
	Layers        []descriptor      `json:"layers,omitempty"`
	Manifests     []descriptor      `json:"manifests,omitempty"`
	Annotations   map[string]string `json:"annotations,omitempty"`
}

// config is an image's configuration.
type config struct {
	platform
	Created time.Time `json:"created"`
	Config  struct {
		User       string            `json:"User"`
		Env        []string          `json:"Env"`
		Entrypoint []string          `json:"Entrypoint"`
		Cmd        []string          `json:"Cmd"`
		WorkingDir string            `json:"WorkingDir"`
		Labels     map[string]string `json:"Labels"`
	} `json:"config"`
	RootFS struct {
		Type    string   `json:"type"`
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
	History []history `json:"history"`
}

type history struct {
	Created   time.Time `json:"created"`
	CreatedBy string    `json:"created_by"`
}

// blobs are contents by their digests.
type blobs map[string][]byte

func digestOf(data []byte) string {
	sum := sha256.Sum256(data)
	return "sha256:" + hex.EncodeToString(sum[:])
}

func (b blobs) put(mediaType string, data []byte) descriptor {
	d := descriptor{MediaType: mediaType, Digest: digestOf(data), Size: len(data)}
	b[d.Digest] = data
	return d
}

func (b blobs) putJSON(mediaType string, v any) (descriptor, error) {
	data, err := json.Marshal(v)
	return b.put(mediaType, data), err
}

// image makes the image for one architecture.
func (b blobs) image(s Spec, p Platform) (manifest, error) {
	c := config{platform: platform{p.Architecture, "linux"}, Created: s.Created}
	// PATH lets "kubectl exec" find programs by name.
	c.Config.User, c.Config.WorkingDir, c.Config.Env = "0:0", "/", []string{"PATH=/usr/local/bin"}
	c.Config.Entrypoint, c.Config.Cmd, c.Config.Labels = s.Entrypoint, s.Command, s.Labels
	c.RootFS.Type = "layers"
	m := manifest{SchemaVersion: 2, MediaType: manifestType, Annotations: s.Labels}
	for _, files := range p.Layers {
		text, err := archive(files, s.Created)
		if err != nil {
			return m, err
		}
		var packed bytes.Buffer
		w := gzip.NewWriter(&packed)
		if _, err := w.Write(text); err != nil {
			return m, err
		}
		if err := w.Close(); err != nil {
			return m, err
		}
		m.Layers = append(m.Layers, b.put(layerType, packed.Bytes()))
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, digestOf(text))
		c.History = append(c.History, history{s.Created, "tools/image"})
	}
	d, err := b.putJSON(configType, c)
	m.Config = &d
	return m, err
}

// Write writes the image for all platforms as a tar of an OCI image layout,
// which "ctr images import", skopeo, crane, kind and k3s read. It returns the
// digest of the index, by which a registry will know the image.
func Write(w io.Writer, s Spec, platforms []Platform) (digest string, err error) {
	b := blobs{}
	index := manifest{SchemaVersion: 2, MediaType: indexType, Annotations: s.Labels}
	for _, p := range platforms {
		m, err := b.image(s, p)
		if err != nil {
			return "", fmt.Errorf("%s: %w", p.Architecture, err)
		}
		d, err := b.putJSON(manifestType, m)
		if err != nil {
			return "", err
		}
		d.Platform = &platform{p.Architecture, "linux"}
		index.Manifests = append(index.Manifests, d)
	}
	top, err := b.putJSON(indexType, index)
	if err != nil {
		return "", err
	}
	_, tag, _ := strings.Cut(path.Base(s.Reference), ":")
	top.Annotations = map[string]string{refName: tag, containerdName: s.Reference}
	named, err := json.Marshal(manifest{SchemaVersion: 2, MediaType: indexType, Manifests: []descriptor{top}})
	if err != nil {
		return "", err
	}
	files := []File{
		{Path: "/index.json", Mode: 0o644, Data: named},
		{Path: "/oci-layout", Mode: 0o644, Data: []byte(`{"imageLayoutVersion":"1.0.0"}`)},
	}
	for _, digest := range slices.Sorted(maps.Keys(b)) {
		files = append(files, File{Path: "/blobs/" + strings.Replace(digest, ":", "/", 1), Mode: 0o644, Data: b[digest]})
	}
	return top.Digest, writeFiles(w, files, s.Created)
}

// WriteDocker writes the image of one architecture as "docker load" reads it,
// old versions too.
func WriteDocker(w io.Writer, s Spec, p Platform) error {
	b := blobs{}
	m, err := b.image(s, p)
	if err != nil {
		return err
	}
	one := struct {
		Config   string
		RepoTags []string
		Layers   []string
	}{Config: m.Config.Digest, RepoTags: []string{s.Reference}}
	files := []File{{Path: "/" + m.Config.Digest, Mode: 0o644, Data: b[m.Config.Digest]}}
	for _, l := range m.Layers {
		name := strings.TrimPrefix(l.Digest, "sha256:") + ".tar.gz"
		one.Layers = append(one.Layers, name)
		files = append(files, File{Path: "/" + name, Mode: 0o644, Data: b[l.Digest]})
	}
	text, err := json.Marshal([]any{one})
	if err != nil {
		return err
	}
	return writeFiles(w, append(files, File{Path: "/manifest.json", Mode: 0o644, Data: text}), s.Created)
}

func writeFiles(w io.Writer, files []File, created time.Time) error {
	text, err := archive(files, created)
	if err != nil {
		return err
	}
	_, err = w.Write(text)
	return err
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
