// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	"encoding/json"
	"io"
)

// Hurry divides the pauses between attempts, which no test has to sit out.
func (c *Client) Hurry() { c.hurry = 50 }

// DecodeList decodes a list of pods.
func DecodeList(body io.Reader, each func(Pod)) (version string, err error) {
	return decodeList(body, "PodList", func(m *manifest) { each(m.pod()) })
}

// DecodeEvent decodes one message of a watch.
func DecodeEvent(raw []byte) (kind string, p Pod, failure error, err error) {
	var e watchEvent
	if err := json.Unmarshal(raw, &e); err != nil {
		return "", Pod{}, nil, err
	}
	return e.Type, e.Object.pod(), e.failure(), nil
}
