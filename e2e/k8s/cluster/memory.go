// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cluster

import (
	"bufio"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Memory is what the cluster takes of the machine's memory now, in bytes, without
// what the kernel can drop at once (the cache of files): the nodes' memory cgroups,
// with what the kernel keeps for them, and the processes of the control plane.
func (c *Cluster) Memory() (uint64, error) {
	var sum uint64
	for _, n := range c.Members {
		bytes, err := cgroupMemory(n.pid)
		if err != nil {
			return 0, fmt.Errorf("memory of %s: %w", n.Name, err)
		}
		sum += bytes
	}
	for _, p := range c.processes {
		fields, err := numbers(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
		if err != nil {
			return 0, fmt.Errorf("memory of %s: %w", p.name, err)
		}
		sum += (fields["RssAnon:"] + fields["RssShmem:"]) << 10
	}
	return sum, nil
}

// cgroupMemory is what the cgroup of a process uses, with the cgroups below it.
func cgroupMemory(pid int) (uint64, error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/cgroup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(raw)) {
		_, rest, _ := strings.Cut(strings.TrimSpace(line), ":")
		controllers, path, _ := strings.Cut(rest, ":")
		switch controllers {
		case "memory": // version 1
			return withoutCache(filepath.Join("/sys/fs/cgroup/memory", path), "memory.usage_in_bytes", "total_cache", "total_shmem")
		case "":
			bytes, err := withoutCache(filepath.Join("/sys/fs/cgroup", path), "memory.current", "file", "shmem")
			if !errors.Is(err, fs.ErrNotExist) {
				return bytes, err
			}
		}
	}
	return 0, errors.New("no cgroup of it has a memory controller")
}

// withoutCache is the usage of a cgroup less its cache. Files of a tmpfs are in the
// cache, too, and cannot be dropped.
func withoutCache(dir, usage, cache, shmem string) (uint64, error) {
	raw, err := os.ReadFile(filepath.Join(dir, usage))
	if err != nil {
		return 0, err
	}
	all, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	if err != nil {
		return 0, err
	}
	stat, err := numbers(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return 0, err
	}
	// The kernel counts them at different times.
	return all - min(all, stat[cache]-min(stat[cache], stat[shmem])), nil
}

// numbers reads lines of a name, a number and perhaps a unit.
func numbers(file string) (map[string]uint64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }()
	out := map[string]uint64{}
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) < 2 {
			continue
		}
		if number, err := strconv.ParseUint(words[1], 10, 64); err == nil {
			out[words[0]] = number
		}
	}
	return out, lines.Err()
}
