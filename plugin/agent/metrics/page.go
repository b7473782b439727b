// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package metrics

import (
	"errors"
	"fmt"
	"io"

	"github.com/prometheus/common/expfmt"
)

// format is Prometheus' text format 0.0.4, which every version of it reads.
var format = expfmt.NewFormat(expfmt.TypeTextPlain)

// ContentType of what Write writes.
var ContentType = string(format)

// Write answers a scrape. What cannot be read is left out and logged.
func (m *Metrics) Write(w io.Writer) error {
	families, err := m.registry.Gather()
	if err != nil {
		m.log.Error("scrape failed", "error", err)
	}
	if len(families) == 0 {
		return errors.Join(errors.New("no metric can be read"), err)
	}
	enc := expfmt.NewEncoder(w, format)
	for _, f := range families {
		if err := enc.Encode(f); err != nil {
			return fmt.Errorf("write %s: %w", f.GetName(), err)
		}
	}
	return nil
}
