// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package agent

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Places are the node's directories that were mounted into the agent's container. Such a mount keeps the directory that was
// there when the container started: after another one took its place, the agent would look at what nobody else uses any
// more, and find everything in order.
type Places struct {
	// Root is where the node's root directory is in our own file system. In "/" everything is what the node has.
	Root string
	// Dirs are the directories in our own file system; there may be others later.
	Dirs func() []string
}

// placesEvery is the time between two looks at the directories, which takes some microseconds.
const placesEvery = 2 * time.Second

// Watch returns an error that names a directory as soon as another one took its place on the node, and nil when the
// context ends. The kubelet starts the container again with mounts of what is there now.
func (p *Places) Watch(ctx context.Context) error {
	if filepath.Clean(p.Root) == "/" {
		<-ctx.Done()
		return nil
	}
	// Not by os.Open: Go's poller would take the changes.
	changes, err := unix.Open(mountInfo, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("find the agent's own mounts: %w", err)
	}
	defer func() { _ = unix.Close(changes) }()
	mounted, err := mountPoints()
	if err != nil {
		return err
	}
	now := mounted
	tick := time.NewTicker(placesEvery)
	defer tick.Stop()
	for {
		if changed(changes) {
			if read, err := mountPoints(); err == nil {
				now = read
			}
		}
		for _, dir := range p.Dirs() {
			// What the node mounts over a directory comes to lie below the agent's own mount of it.
			if mounted[dir] > 0 && (now[dir] != mounted[dir] || p.replaced(dir)) {
				return fmt.Errorf("%s is not the node's directory any more: it was replaced, removed, unmounted or mounted over while the agent ran; "+
					"an agent that starts anew uses the one that is there now", dir)
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

const mountInfo = "/proc/self/mountinfo"

// changed says whether anything was mounted or unmounted since it was asked last, or the file was opened.
func changed(mounts int) bool {
	fds := []unix.PollFd{{Fd: int32(mounts), Events: unix.POLLPRI}} //nolint:gosec // descriptors are small
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil
}

// mountPoints are the directories on which something is mounted for this process now, and how many times.
func mountPoints() (map[string]int, error) {
	text, err := os.ReadFile(mountInfo)
	if err != nil {
		return nil, fmt.Errorf("find the agent's own mounts: %w", err)
	}
	all := make(map[string]int)
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			all[fields[4]]++
		}
	}
	return all, nil
}

// replaced says whether the node has another directory, or none, where this one was mounted from. The root, and what is
// below it, has no other path to compare.
func (p *Places) replaced(dir string) bool {
	own, err := stat(dir)
	// A mount goes along when its directory gets another name or is removed, if the one above is mounted, too.
	if err != nil || own.Attributes&unix.STATX_ATTR_MOUNT_ROOT == 0 || own.Nlink == 0 {
		return true
	}
	if strings.HasPrefix(dir+"/", filepath.Clean(p.Root)+"/") {
		return false
	}
	now, err := stat(filepath.Join(p.Root, dir))
	return err == nil && (now.Dev_major != own.Dev_major || now.Dev_minor != own.Dev_minor || now.Ino != own.Ino)
}

func stat(dir string) (st unix.Statx_t, err error) {
	err = unix.Statx(unix.AT_FDCWD, dir, 0, unix.STATX_NLINK|unix.STATX_INO, &st)
	return st, err
}
