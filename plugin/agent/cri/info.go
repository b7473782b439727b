// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cri

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/plugin/terms"
)

// errNoNetNS is for a sandbox without a network namespace of its own, or of a
// runtime that does not tell.
var errNoNetNS = errors.New("the runtime's verbose status names no network namespace")

// info is the part that is read of what a runtime says beyond the CRI's own
// fields: containerd and CRI-O both give the OCI specification of the sandbox,
// containerd the result of CNI too.
type info struct {
	RuntimeSpec struct {
		Linux struct {
			Namespaces []struct {
				Type string `json:"type"`
				Path string `json:"path"`
			} `json:"namespaces"`
		} `json:"linux"`
	} `json:"runtimeSpec"`
	CNIResult struct {
		Interfaces map[string]struct {
			Sandbox string `json:"Sandbox"`
		} `json:"Interfaces"`
	} `json:"cniResult"`
}

// parseInfo reads the value "info" of a verbose PodSandboxStatus.
func parseInfo(verbose map[string]string) (Sandbox, error) {
	raw, ok := verbose["info"]
	if !ok {
		return Sandbox{}, errNoNetNS
	}
	var i info
	if err := json.Unmarshal([]byte(raw), &i); err != nil {
		return Sandbox{}, fmt.Errorf("read the runtime's verbose status: %w", err)
	}
	var s Sandbox
	for _, ns := range i.RuntimeSpec.Linux.Namespaces {
		if ns.Type == "network" {
			s.NetNSPath = terms.NetNSPath(ns.Path)
		}
	}
	if s.NetNSPath == "" {
		return s, errNoNetNS
	}
	for name, dev := range i.CNIResult.Interfaces {
		// The host's ends are named without a sandbox, and not everything with one
		// is an interface: aws-cni keeps notes for its DEL in an entry "dummy…" whose
		// sandbox is the number of a network card.
		if name != "lo" && terms.NetNSPath(dev.Sandbox) == s.NetNSPath {
			s.Interfaces = append(s.Interfaces, name)
		}
	}
	slices.Sort(s.Interfaces)
	return s, nil
}

// parseNetwork reads the value "cniconfig" of a verbose Status; nil if there is none, or
// none of a network.
func parseNetwork(verbose map[string]string) (*detect.RuntimeNetwork, error) {
	raw, ok := verbose["cniconfig"]
	if !ok {
		return nil, nil
	}
	var n *detect.RuntimeNetwork
	if err := json.Unmarshal([]byte(raw), &n); err != nil {
		return nil, fmt.Errorf("read the runtime's verbose status: cniconfig: %w", err)
	}
	if n == nil || n.ConfDir == "" {
		return nil, nil
	}
	return n, nil
}
