// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// cni is a primary CNI as hosted.yaml has it.
type cni struct {
	Name     string    `yaml:"name"`
	Job      string    `yaml:"job"`
	Versions []string  `yaml:"versions"`
	Variants []variant `yaml:"variants"`
	// Values is the file of podweir's values, without its ending.
	Values  string   `yaml:"values"`
	Install []string `yaml:"install"`
	// OwnCNI leaves kind its own CNI. OwnCluster says that Install makes the
	// cluster, Existing that there is one.
	OwnCNI     bool `yaml:"ownCNI"`
	OwnCluster bool `yaml:"ownCluster"`
	Existing   bool `yaml:"existing"`
}

// variant is one configuration of a CNI.
type variant struct {
	Name string `yaml:"name"`
	// KubeProxy is the mode of kube-proxy; empty is kind's default.
	KubeProxy string   `yaml:"kubeProxy"`
	Options   []string `yaml:"options"`
}

// row is a CNI in one version and variant.
type row struct {
	Name string `json:"name"`
	Job  string `json:"job"`

	cni     *cni
	version string
	variant variant
}

// parse reads hosted.yaml and returns its rows.
func parse(text []byte) ([]row, error) {
	var file struct {
		CNIs []*cni `yaml:"cnis"`
	}
	d := yaml.NewDecoder(bytes.NewReader(text))
	d.KnownFields(true)
	if err := d.Decode(&file); err != nil {
		return nil, err
	}
	var rows []row
	var errs []error
	for _, c := range file.CNIs {
		if err := c.check(); err != nil {
			errs = append(errs, fmt.Errorf("cni %q: %w", c.Name, err))
		}
		for _, version := range c.Versions {
			for _, v := range c.Variants {
				// A commit is too long for a name.
				short := version[:min(len(version), 12)]
				r := row{Name: strings.Join([]string{c.Name, short, v.Name}, "-"), Job: c.Job, cni: c, version: version, variant: v}
				if slices.ContainsFunc(rows, func(o row) bool { return o.Name == r.Name }) {
					errs = append(errs, fmt.Errorf("row %q: there are two", r.Name))
				}
				rows = append(rows, r)
			}
		}
	}
	return rows, errors.Join(errs...)
}

func (c *cni) check() error {
	var errs []error
	if c.Name == "" || c.Values == "" || len(c.Versions) == 0 || len(c.Variants) == 0 {
		errs = append(errs, errors.New("name, values, versions and variants are required"))
	}
	if c.Job != "kind" && c.Job != "cloud" {
		errs = append(errs, fmt.Errorf("job %q: want kind or cloud", c.Job))
	}
	if (len(c.Install) == 0) != (c.OwnCNI || c.Existing) {
		errs = append(errs, errors.New("install is required, except with ownCNI or existing"))
	}
	if c.Existing != (c.Job == "cloud") {
		errs = append(errs, errors.New("existing and the job cloud go together"))
	}
	return errors.Join(errs...)
}

// commands returns what installs the CNI.
func (r *row) commands(dir string) [][]string {
	var out [][]string
	for _, line := range r.cni.Install {
		var words []string
		for w := range strings.FieldsSeq(line) {
			if w == "{options}" {
				for _, o := range r.variant.Options {
					words = append(words, "--set", o)
				}
				continue
			}
			words = append(words, strings.NewReplacer("{version}", r.version, "{dir}", dir).Replace(w))
		}
		out = append(out, words)
	}
	return out
}

// podSubnet is kind's default. It is written down because options name it.
const podSubnet = "10.244.0.0/16"

// kindConfig is the configuration of a kind cluster with two workers.
func (r *row) kindConfig() ([]byte, error) {
	networking := map[string]any{"disableDefaultCNI": !r.cni.OwnCNI, "podSubnet": podSubnet}
	if r.variant.KubeProxy != "" {
		networking["kubeProxyMode"] = r.variant.KubeProxy
	}
	return yaml.Marshal(map[string]any{
		"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4",
		"nodes":      []map[string]any{{"role": "control-plane"}, {"role": "worker"}, {"role": "worker"}},
		"networking": networking,
	})
}
