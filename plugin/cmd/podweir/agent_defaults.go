// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"
)

// defaultsCheck tries the operator's defaults on this node: what the kernel lacks must
// stop a rollout at the first node, and not be a line of log for each pod.
type defaultsCheck struct {
	*agentParts

	mu    sync.Mutex
	at    time.Time
	entry json.RawMessage
	found error
}

// tryAgain is how long an answer is good: a self-test of the kernel may fail for want of
// memory, and probes ask every few seconds.
const tryAgain = time.Minute

// problem says which default no pod of this node can have.
func (c *defaultsCheck) problem() error {
	entry, err := c.netConf()
	if err != nil {
		return nil // the part "delivery" says it
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.at.IsZero() && time.Since(c.at) < tryAgain && bytes.Equal(entry, c.entry) {
		return c.found
	}
	lacking, err := c.o.paths().Lacking(entry)
	c.at, c.entry, c.found = time.Now(), entry, nil
	switch {
	case err != nil:
		c.found = fmt.Errorf("the defaults were not tried: %w", err)
	case len(lacking) > 0:
		c.found = errors.New(strings.Join(lacking, "; ") + "; pods get what auto chooses. Change --default (chart: defaults)")
	}
	return c.found
}
