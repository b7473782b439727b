// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"encoding/json"
	"fmt"

	"github.com/podweir/podweir/plugin/netconf"
)

// desired is what the pod asks for, read by the code that reads it for ADD: the
// node's entry in the conflist with the pod's annotations as a runtime hands
// them over.
func (l *look) desired() (*netconf.Config, error) {
	entry, err := l.cfg.NetConf()
	if err != nil {
		return nil, fmt.Errorf("read the node's configuration: %w", err)
	}
	stdin, err := withAnnotations(entry, l.pod.Annotations)
	if err != nil {
		return nil, err
	}
	// STATUS is the command that needs no result of the plugin before.
	conf, err := netconf.Parse(netconf.Status, stdin)
	if err != nil {
		return nil, err
	}
	l.warnings = conf.Warnings
	return conf, nil
}

func withAnnotations(entry json.RawMessage, annotations map[string]string) ([]byte, error) {
	var conf map[string]json.RawMessage
	if err := json.Unmarshal(entry, &conf); err != nil {
		return nil, fmt.Errorf("read the node's configuration: %w", err)
	}
	runtime, err := json.Marshal(map[string]any{netconf.PodAnnotationsCapability: annotations})
	if err != nil {
		return nil, fmt.Errorf("encode annotations: %w", err)
	}
	conf["runtimeConfig"] = runtime
	return json.Marshal(conf)
}
