// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"
)

// stateRoot holds one directory per lab, on a tmpfs as everything in it means
// nothing after a reboot.
const stateRoot = "/run/podweir-lab"

// podRecord is written before a pod's ADD, so that whoever finds it knows
// everything DEL needs.
type podRecord struct {
	PluginDirs  []string
	Conflist    string // path of the conflist
	ContainerID string
	Netns       string // path of the namespace
	IfName      string
	Node        string // path of the node's namespace
}

// Sweep removes what labs of dead processes left behind: their pods by CNI
// DEL, their namespaces and their directories. It touches nothing whose name
// does not start with the lab prefix and the ID of a dead process, and logs
// what it cannot remove.
func Sweep(ctx context.Context, log *slog.Logger) {
	dirs, err := filepath.Glob(filepath.Join(stateRoot, namePrefix+"*"))
	if err != nil {
		log.Error("list crashed labs", "error", err)
	}
	for _, dir := range dirs {
		if ownerAlive(filepath.Base(dir)) {
			continue
		}
		if err := sweepDir(ctx, dir); err != nil {
			log.Error("remove a crashed lab", "dir", dir, "error", err)
		}
	}
	names, err := filepath.Glob(filepath.Join(netnsDir, namePrefix+"*"))
	if err != nil {
		log.Error("list crashed labs' namespaces", "error", err)
	}
	for _, path := range names {
		if ownerAlive(filepath.Base(path)) {
			continue
		}
		if err := removeNetns(path); err != nil {
			log.Error("remove a crashed lab's namespace", "path", path, "error", err)
		}
	}
}

// ownerAlive says whether the process whose ID the name carries still runs. A
// name without an ID is not ours and counts as alive.
func ownerAlive(name string) bool {
	digits, _, found := strings.Cut(strings.TrimPrefix(name, namePrefix), "-")
	pid, err := strconv.Atoi(digits)
	if !found || err != nil || pid <= 0 {
		return true
	}
	return !errors.Is(unix.Kill(pid, 0), unix.ESRCH)
}

func sweepDir(ctx context.Context, dir string) error {
	records, err := filepath.Glob(filepath.Join(dir, "pods", "*.json"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range records {
		ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
		if err := sweepPod(ctx, dir, path); err != nil {
			errs = append(errs, err)
		}
		cancel()
	}
	// The directory goes even if a DEL did not work: nobody would do better
	// next time, and the error has been told.
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}

func sweepPod(ctx context.Context, dir, path string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var rec podRecord
	if err := json.Unmarshal(raw, &rec); err != nil {
		return fmt.Errorf("read %s: %w", path, err)
	}
	list, err := libcni.NetworkConfFromFile(rec.Conflist)
	if err != nil {
		return err
	}
	node, err := openNetns(rec.Node)
	if err != nil {
		// Without the node's namespace nothing of the pod exists but pins;
		// any namespace will do to ask the plugins to remove those.
		node, err = newNetns(fmt.Sprintf("%s%d-sweep", namePrefix, os.Getpid()))
		if err != nil {
			return err
		}
		defer func() { _ = removeNetns(node.Path()) }()
	}
	defer node.stop()
	cni := libcni.NewCNIConfigWithCacheDir(rec.PluginDirs, filepath.Join(dir, "cache"),
		&nodeExec{node: node})
	rt := &libcni.RuntimeConf{
		ContainerID: rec.ContainerID, NetNS: existing(rec.Netns), IfName: rec.IfName,
	}
	if err := cni.DelNetworkList(ctx, list, rt); err != nil {
		return fmt.Errorf("delete pod %s: %w", rec.ContainerID, err)
	}
	return nil
}

// existing returns path, or nothing if it does not exist: CNI DEL takes an
// empty namespace for one that is gone.
func existing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
