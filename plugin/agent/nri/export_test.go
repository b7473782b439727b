// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package nri

import "time"

// SetPatience changes how long a hook may take; it is called before [Plugin.Run].
func (p *Plugin) SetPatience(d time.Duration) { p.patience = d }
