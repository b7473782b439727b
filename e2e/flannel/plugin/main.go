// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Command plugin stands in for flannel's CNI binary, which module proxies do not
// have. As that does, it makes a configuration of the reference plugins bridge
// and host-local from /run/flannel/subnet.env and the "delegate" of its own, and
// calls bridge with it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

const subnetFile = "/run/flannel/subnet.env"

func main() {
	if err := run(); err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			os.Exit(exit.ExitCode()) // bridge has said why
		}
		_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"cniVersion": "1.0.0", "code": 11, "msg": err.Error()})
		os.Exit(1)
	}
}

func run() error {
	text, err := io.ReadAll(os.Stdin)
	if err != nil {
		return err
	}
	if os.Getenv("CNI_COMMAND") != "VERSION" {
		env, err := subnet()
		if err != nil {
			return err
		}
		if text, err = delegate(text, env); err != nil {
			return err
		}
	}
	for _, dir := range filepath.SplitList(os.Getenv("CNI_PATH")) {
		bridge := filepath.Join(dir, "bridge")
		if _, err := os.Stat(bridge); err != nil {
			continue
		}
		cmd := exec.Command(bridge)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(string(text)), os.Stdout, os.Stderr
		return cmd.Run()
	}
	return fmt.Errorf("no plugin bridge in %q", os.Getenv("CNI_PATH"))
}

// subnet is what flanneld wrote about this node.
func subnet() (map[string]string, error) {
	f, err := os.Open(subnetFile)
	if err != nil {
		return nil, fmt.Errorf("flanneld has not written the node's subnet: %w", err)
	}
	defer func() { _ = f.Close() }()
	env := map[string]string{}
	for s := bufio.NewScanner(f); s.Scan(); {
		if key, value, ok := strings.Cut(s.Text(), "="); ok {
			env[key] = value
		}
	}
	return env, nil
}

// delegate is the configuration of bridge.
func delegate(text []byte, env map[string]string) ([]byte, error) {
	var conf map[string]any
	if err := json.Unmarshal(text, &conf); err != nil {
		return nil, err
	}
	out, ok := conf["delegate"].(map[string]any)
	if !ok {
		out = map[string]any{}
	}
	for _, key := range []string{"cniVersion", "name", "prevResult", "runtimeConfig"} {
		if conf[key] != nil {
			out[key] = conf[key]
		}
	}
	var mtu int
	if _, err := fmt.Sscan(env["FLANNEL_MTU"], &mtu); err != nil {
		return nil, fmt.Errorf("FLANNEL_MTU %q: %w", env["FLANNEL_MTU"], err)
	}
	// The file has the address of the bridge.
	subnet, err := netip.ParsePrefix(env["FLANNEL_SUBNET"])
	if err != nil {
		return nil, err
	}
	out["type"], out["bridge"], out["mtu"] = "bridge", "cni0", mtu
	out["isGateway"], out["ipMasq"] = true, env["FLANNEL_IPMASQ"] == "false"
	out["ipam"] = map[string]any{
		"type":   "host-local",
		"ranges": []any{[]any{map[string]any{"subnet": subnet.Masked().String()}}},
		"routes": []any{map[string]any{"dst": env["FLANNEL_NETWORK"]}},
	}
	return json.Marshal(out)
}
