// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package logged has a log that may be read while it is written.
package logged

import (
	"bytes"
	"sync"
)

// Log keeps what is written to it. The zero value is ready.
type Log struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write adds to the log and never fails.
func (l *Log) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// String returns what was written so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
