// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package stats

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

const (
	// highest is what a histogram tells apart: every load gives up before.
	highest = 100 * time.Second
	// digits of a latency are exact.
	digits = 3
)

// Histogram counts latencies with three significant digits, from 1 ns to
// 100 s; longer ones count as 100 s. Each latency must be measured from the
// time at which its request was due to be sent, whether or not the one before
// was answered: then a stall is in all the requests that it held up, and the
// percentiles need no correction for coordinated omission.
type Histogram struct{ h *hdrhistogram.Histogram }

// NewHistogram counts latencies.
func NewHistogram(latencies []time.Duration) *Histogram {
	out := &Histogram{h: hdrhistogram.New(1, int64(highest), digits)}
	for _, l := range latencies {
		// It is within the bounds.
		_ = out.h.RecordValue(int64(min(max(l, 1), highest)))
	}
	return out
}

// Count is the number of latencies.
func (h *Histogram) Count() int64 { return h.h.TotalCount() }

// Quantile is the q-quantile, 0 ≤ q ≤ 1, to three digits; 0 of none.
func (h *Histogram) Quantile(q float64) time.Duration {
	return time.Duration(h.h.ValueAtQuantile(q * 100))
}

// Max is the longest, to three digits.
func (h *Histogram) Max() time.Duration { return time.Duration(h.h.Max()) }

// Resolves says whether there are enough latencies for a quantile: ten beyond
// it.
func (h *Histogram) Resolves(q float64) bool { return float64(h.Count())*(1-q) >= 10 }

// Add counts another's latencies, too.
func (h *Histogram) Add(other *Histogram) { h.h.Merge(other.h) }

// MarshalJSON writes the interchange format of HdrHistogram (V2, compressed,
// base64) as a string.
func (h *Histogram) MarshalJSON() ([]byte, error) {
	raw, err := h.h.Encode(hdrhistogram.V2CompressedEncodingCookieBase)
	if err != nil {
		return nil, fmt.Errorf("encode histogram: %w", err)
	}
	return json.Marshal(string(raw))
}

// UnmarshalJSON reads what MarshalJSON writes.
func (h *Histogram) UnmarshalJSON(raw []byte) error {
	var text string
	if err := json.Unmarshal(raw, &text); err != nil {
		return err
	}
	var err error
	if h.h, err = hdrhistogram.Decode([]byte(text)); err != nil {
		return fmt.Errorf("decode histogram: %w", err)
	}
	return nil
}
