// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube

import (
	stdbase64 "encoding/base64"
	"fmt"

	"go.yaml.in/yaml/v3"
)

// base64 is bytes that YAML holds in base64.
type base64 []byte

// UnmarshalYAML implements [yaml.Unmarshaler].
func (b *base64) UnmarshalYAML(n *yaml.Node) error {
	decoded, err := stdbase64.StdEncoding.DecodeString(n.Value)
	if err != nil {
		return fmt.Errorf("line %d: %w", n.Line, err)
	}
	*b = decoded
	return nil
}
