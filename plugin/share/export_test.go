// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package share

import "github.com/podweir/podweir/plugin/units"

// Limit is the group's limit.
func (g *Group) Limit() units.ByteRate { return g.limit }

// Members are the members of the group, in the order in which they joined.
func (g *Group) Members() []*Member { return g.members }

// Waiting says that packets waited in the member's queue at the last tick.
func (m *Member) Waiting() bool { return m.waiting > 0 }
