// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package lab

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containernetworking/cni/libcni"
	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/plugin/rtnl"
)

// stateRoot holds one directory per lab, on a tmpfs as everything in it means
// nothing after a reboot.
const stateRoot = "/run/podweir-lab"

// sweep removes what labs of dead processes left behind: their pods by CNI
// DEL, their namespaces and their directories. It touches nothing whose name
// does not start with the lab prefix and the ID of a dead process, and logs
// what it cannot remove.
func (o *Options) sweep(ctx context.Context) {
	for _, left := range []struct {
		in     string
		remove func(path string) error
	}{
		{stateRoot, func(dir string) error { return o.sweepDir(ctx, dir) }}, {netnsDir, removeNetns},
	} {
		paths, err := filepath.Glob(filepath.Join(left.in, namePrefix+"*"))
		for _, path := range paths {
			if !ownerAlive(filepath.Base(path)) {
				err = errors.Join(err, left.remove(path))
			}
		}
		if err != nil {
			log := slog.Default()
			log.Error("remove what crashed labs left", "in", left.in, "error", err)
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

// sweepDir deletes the pods of which libcni's cache knows: of an ADD that was interrupted
// itself, podweir's own clean-up finds what is left.
func (o *Options) sweepDir(ctx context.Context, dir string) error {
	node, err := openNetns(filepath.Join(netnsDir, filepath.Base(dir)+nodeSuffix))
	if err != nil {
		// Without the node's namespace nothing of the pods exists but pins;
		// any namespace will do to ask the plugins to remove those.
		if node.NetNS, err = rtnl.NewScratchNetNS(); err != nil {
			return err
		}
	}
	defer func() { _ = node.Close() }()
	cni := libcni.NewCNIConfigWithCacheDir(o.PluginDirs, filepath.Join(dir, "cache"), newNodeExec(node, nil))
	attached, err := cni.GetCachedAttachments("")
	errs := []error{err}
	files, err := filepath.Glob(filepath.Join(dir, "net.d", "*.conflist"))
	errs = append(errs, err)
	for _, file := range files {
		list, err := libcni.NetworkConfFromFile(file)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, pod := range attached {
			if pod.Network == list.Name {
				ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
				rt := &libcni.RuntimeConf{ContainerID: pod.ContainerID, NetNS: existing(pod.NetNS), IfName: pod.IfName}
				errs = append(errs, cni.DelNetworkList(ctx, list, rt))
				cancel()
			}
		}
	}
	// The directory goes even if a DEL did not work: nobody would do better
	// next time, and the error has been told.
	return errors.Join(append(errs, os.RemoveAll(dir))...)
}

// existing returns path, or nothing if it does not exist: CNI DEL takes an
// empty namespace for one that is gone.
func existing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}
