// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package oci

import (
	"archive/tar"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
)

// Names under which importers look for an image's own name: the OCI image
// specification's, which gives the tag, and containerd's, which gives all.
const (
	refName        = "org.opencontainers.image.ref.name"
	containerdName = "io.containerd.image.name"
)

// Write writes the image for all platforms as a tar of an OCI image layout,
// which "ctr images import", skopeo, crane, kind and k3s read. It returns the
// digest of the index, by which a registry will know the image.
func Write(w io.Writer, s Spec, platforms []Platform) (v1.Hash, error) {
	index, err := Index(s, platforms)
	if err != nil {
		return v1.Hash{}, err
	}
	digest, err := index.Digest()
	if err != nil {
		return v1.Hash{}, err
	}
	dir, err := os.MkdirTemp("", "oci-")
	if err != nil {
		return v1.Hash{}, err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	path, err := layout.Write(dir, empty.Index)
	if err != nil {
		return v1.Hash{}, err
	}
	_, tag, _ := strings.Cut(filepath.Base(s.Reference), ":")
	err = path.AppendIndex(index, layout.WithAnnotations(map[string]string{refName: tag, containerdName: s.Reference}))
	if err != nil {
		return v1.Hash{}, err
	}
	return digest, writeDir(w, dir, s.Created)
}

// writeDir writes a directory as a tar, in the order of names.
func writeDir(w io.Writer, dir string, created time.Time) error {
	out := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == dir {
			return err
		}
		below, err := filepath.Rel(dir, name)
		if err != nil {
			return err
		}
		if d.IsDir() {
			return out.WriteHeader(header(below+"/", tar.TypeDir, 0o755, 0, created))
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := out.WriteHeader(header(below, tar.TypeReg, 0o644, int64(len(data)), created)); err != nil {
			return err
		}
		_, err = out.Write(data)
		return err
	})
	if err != nil {
		return err
	}
	return out.Close()
}
