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
	text, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("find the agent's own mounts: %w", err)
	}
	// What the node mounts anew, or over a directory, may be nowhere in the container: the list of its first process tells.
	// Not by os.Open: Go's poller would take the changes.
	list, err := unix.Open(filepath.Join(p.Root, "proc/1/mountinfo"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err == nil { // else the directories alone tell
		defer func() { _ = unix.Close(list) }()
	}
	mounted, before := mountPoints(text), p.nodeMounts()
	now := before
	tick := time.NewTicker(placesEvery)
	defer tick.Stop()
	for {
		if before != nil && changed(list) {
			if read := p.nodeMounts(); read != nil {
				now = read
			}
		}
		for _, dir := range p.Dirs() {
			there := filepath.Join("/", strings.TrimPrefix(dir, filepath.Clean(p.Root)+"/"))
			if mounted[dir] != "" && (now[there] != before[there] || p.replaced(dir)) {
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

// changed says whether anything was mounted or unmounted since it was asked last, or the file was opened. Without a file
// nothing was.
func changed(mounts int) bool {
	fds := []unix.PollFd{{Fd: int32(mounts), Events: unix.POLLPRI}} //nolint:gosec // descriptors are small
	n, err := unix.Poll(fds, 0)
	return n > 0 || err != nil
}

// nodeMounts are the mount points of the node, nil if they are not known.
func (p *Places) nodeMounts() map[string]string {
	text, err := os.ReadFile(filepath.Join(p.Root, "proc/1/mountinfo"))
	if err != nil {
		return nil
	}
	return mountPoints(text)
}

// mountPoints are the directories on which a list of mounts has something, and which file system and part of it is on top.
// Its number is not given to another one while the agent has it mounted.
func mountPoints(list []byte) map[string]string {
	all := make(map[string]string)
	for line := range strings.Lines(string(list)) {
		if fields := strings.Fields(line); len(fields) > 4 {
			all[fields[4]] = fields[2] + fields[3]
		}
	}
	return all
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
