// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package doctor

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"strings"
)

// SELinux is what is known of it.
type SELinux struct {
	// Present says that the kernel runs it, Enforcing that it denies.
	Present, Enforcing bool
	// Denials are the audit records about podweir's processes, the last ones
	// last; LogErr says why the log could not be read.
	Denials []string
	LogErr  error
}

const (
	enforceFile = "sys/fs/selinux/enforce"
	auditLog    = "var/log/audit/audit.log"
	// tailBytes is how much of the end of a log is read: thousands of lines,
	// in some milliseconds.
	tailBytes = 1 << 20
)

var denied = regexp.MustCompile(`avc:\s+denied .*comm="podweir`)

func (f *Facts) readSELinux() {
	enforce, err := fs.ReadFile(f.Root, enforceFile)
	if err != nil {
		return
	}
	s := &f.SELinux
	s.Present, s.Enforcing = true, strings.TrimSpace(string(enforce)) == "1"
	s.Denials, s.LogErr = matchesInTail(f.Root, auditLog, denied)
}

// matchesInTail returns the lines at the end of a log that match.
func matchesInTail(root fs.FS, name string, match *regexp.Regexp) ([]string, error) {
	file, err := root.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() > tailBytes {
		seeker, ok := file.(io.Seeker)
		if !ok {
			return nil, errors.New("the file system has no random access")
		}
		if _, err := seeker.Seek(-tailBytes, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	// The file may grow while it is read.
	b, err := io.ReadAll(io.LimitReader(file, tailBytes))
	if err != nil {
		return nil, err
	}
	var out []string
	for line := range strings.Lines(string(b)) {
		if match.MatchString(line) {
			out = append(out, strings.TrimSpace(line))
		}
	}
	return out, nil
}

func checkSELinux(f *Facts) Finding {
	s := &f.SELinux
	// The newest are what counts.
	latest := s.Denials[max(0, len(s.Denials)-maxEvidence):]
	switch {
	case !s.Present:
		return skip("the kernel runs no SELinux")
	case len(s.Denials) > 0 && s.Enforcing:
		return breaks(fmt.Sprintf("%d denials of podweir's processes, the last: %s", len(s.Denials), latest[len(latest)-1]), "none",
			"ausearch -m avc -c podweir-cni", latest...)
	case len(s.Denials) > 0:
		return warns(fmt.Sprintf("permissive, but enforced it would deny: %s", latest[len(latest)-1]), "none",
			"ausearch -m avc -c podweir-cni", latest...)
	case s.LogErr != nil && s.Enforcing && !errors.Is(s.LogErr, fs.ErrNotExist):
		return unknown("enforcing; denials cannot be read: " + s.LogErr.Error())
	case s.Enforcing:
		return holds("enforcing, no denial in /" + auditLog)
	}
	return holds("permissive")
}

// maxEvidence bounds what a log brings into a report, in lines.
const maxEvidence = 5
