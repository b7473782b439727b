// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package delivery

import "time"

// Poll has a manager look every so often whether a file changed.
func (m *Manager) Poll(every time.Duration) { m.poll = every }

// Tick has a manager read the files every so often although none seems changed.
func (m *Manager) Tick(every time.Duration) { m.tick = every }
