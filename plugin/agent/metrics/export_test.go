// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics

import (
	"net/http"

	"github.com/podweir/podweir/plugin/agent/serve"
)

// Handler answers scrapes as the agent does.
func (m *Metrics) Handler() http.Handler { return serve.NewPage(ContentType, m.Write, m.log) }
