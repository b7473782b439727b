// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package netconf

import (
	"encoding/json"
	"fmt"
)

// ParseEntry reads podweir's entry in the chain, with the name of its network,
// together with a pod's annotations as a runtime would hand them over, and what is
// set for its namespace: for whoever shapes without being called by a runtime. Configuration and errors are those of
// [Parse]; an entry that is no JSON object is an error without a type.
func ParseEntry(entry []byte, annotations PodAnnotations, namespace Namespace) (*Config, error) {
	bad := func(err error) (*Config, error) {
		return &Config{OnError: FailOpen}, fmt.Errorf("read the node's configuration: %w", err)
	}
	conf, err := decodeObject(entry)
	if err != nil {
		return bad(err)
	}
	delete(conf, "runtimeConfig")
	stdin, err := json.Marshal(conf)
	if err != nil {
		return bad(err)
	}
	// STATUS is the command that needs no result of the plugin before.
	return parse(namespace, Status, stdin, annotations)
}
