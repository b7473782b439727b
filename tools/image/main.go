// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command image makes podweir's container image from binaries that are built
// already: an OCI tar for all architectures, a tar for "docker load" with one
// of them, and a list of what is linked in (SPDX) for each. It uses no
// registry, no daemon and no base image, and the same binaries give the same
// digest. ko does not fit: it makes an image of one program on a base image, and this one
// has two programs, the licences of all that is linked in, their SBOM, and no base.
// "make image" calls it, in the directory of the product's go.mod.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"github.com/podweir/podweir/tools/image/oci"
	"github.com/podweir/podweir/tools/image/sbom"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		_, _ = fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

// programs are the binaries of the image; the agent looks for the plugin
// beside itself.
var programs = []string{"podweir", "podweir-cni"}

const programDir = "/usr/local/bin"

type options struct {
	binaries, out, version, revision, reference string
	archs                                       []string
	created                                     time.Time
}

func run(args []string, stdout io.Writer) error {
	o, err := parse(args)
	if err != nil {
		return err
	}
	spec := oci.Spec{
		Reference: o.reference, Created: o.created,
		Entrypoint: []string{programDir + "/podweir"}, Command: []string{"agent"},
		Labels: labels(o),
	}
	var platforms []oci.Platform
	for _, arch := range o.archs {
		p, err := platform(o, arch)
		if err != nil {
			return fmt.Errorf("%s: %w", arch, err)
		}
		platforms = append(platforms, p)
		if arch == runtime.GOARCH {
			if err := toFile(filepath.Join(o.out, "podweir-docker.tar"), func(w io.Writer) error {
				return oci.WriteDocker(w, spec, p)
			}); err != nil {
				return err
			}
		}
	}
	return toFile(filepath.Join(o.out, "podweir-oci.tar"), func(w io.Writer) error {
		digest, err := oci.Write(w, spec, platforms)
		if err == nil {
			_, err = fmt.Fprintf(stdout, "%s %s\n", o.reference, digest)
		}
		return err
	})
}

func parse(args []string) (options, error) {
	var o options
	flags := flag.NewFlagSet("image", flag.ContinueOnError)
	flags.StringVar(&o.binaries, "binaries", "bin/image", "`directory` with a directory of binaries for each architecture")
	flags.StringVar(&o.out, "out", "bin/image", "`directory` to write to")
	flags.StringVar(&o.version, "version", "devel", "`version` of podweir")
	flags.StringVar(&o.revision, "revision", "", "`commit` it is built from")
	flags.StringVar(&o.reference, "reference", "", "`name` and tag that the image gets on import")
	archs := flags.String("arch", "amd64,arm64", "`architectures`")
	seconds := flags.Int64("created", 0, "`time` of the image and of all its files, in seconds since 1970: that of the commit")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if o.reference == "" {
		return o, fmt.Errorf("-reference is not given")
	}
	o.archs = strings.Split(*archs, ",")
	o.created = time.Unix(*seconds, 0).UTC()
	return o, nil
}

// labels are the keys of the OCI image specification, "Annotations".
func labels(o options) map[string]string {
	const prefix = "org.opencontainers.image."
	out := map[string]string{
		prefix + "title":       "podweir",
		prefix + "description": "Per-pod bandwidth limits with a queue in which light flows go first",
		prefix + "source":      "https://github.com/podweir/podweir",
		prefix + "licenses":    "Apache-2.0 AND (GPL-2.0-only OR BSD-2-Clause)",
		prefix + "version":     o.version,
		prefix + "created":     o.created.Format(time.RFC3339),
	}
	if o.revision != "" {
		out[prefix+"revision"] = o.revision
	}
	return out
}

// platform reads the binaries of one architecture, writes their SBOM beside
// them, and collects the licences of what is linked in.
func platform(o options, arch string) (oci.Platform, error) {
	var files []oci.File
	var read []sbom.Program
	for _, name := range programs {
		path := filepath.Join(o.binaries, arch, name)
		if err := static(path, arch); err != nil {
			return oci.Platform{}, err
		}
		program, err := sbom.Read(path)
		if err != nil {
			return oci.Platform{}, err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return oci.Platform{}, err
		}
		read = append(read, program)
		files = append(files, oci.File{Path: programDir + "/" + name, Mode: 0o755, Data: data})
	}
	name := fmt.Sprintf("podweir-%s-linux-%s", o.version, arch)
	text, err := sbom.SPDX(name, o.version, o.created, read)
	if err != nil {
		return oci.Platform{}, err
	}
	if err := os.WriteFile(filepath.Join(o.out, "podweir-"+arch+".spdx.json"), text, 0o644); err != nil {
		return oci.Platform{}, err
	}
	papers, err := licences(sbom.Modules(read))
	if err != nil {
		return oci.Platform{}, err
	}
	papers = append(papers, oci.File{Path: "/sbom/podweir.spdx.json", Mode: 0o644, Data: text})
	return oci.Platform{Architecture: arch, Layers: [][]oci.File{papers, files}}, nil
}

// toFile writes a file, whole or not at all.
func toFile(name string, write func(io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), ".image-*")
	if err != nil {
		return err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	if err := write(f); err != nil {
		_ = f.Close()
		return err
	}
	if err := f.Chmod(0o644); err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
