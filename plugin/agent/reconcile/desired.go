// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package reconcile

import (
	"fmt"

	"github.com/podweir/podweir/plugin/netconf"
)

// desired is what the pod asks for, read by the code that reads it for ADD: the
// node's entry in the conflist with the pod's annotations as a runtime hands
// them over. Beside an error the configuration has what could be read, or is nil.
func (l *look) desired() (*netconf.Config, error) {
	entry, err := l.cfg.NetConf()
	if err != nil {
		return nil, fmt.Errorf("read the node's configuration: %w", err)
	}
	conf, err := netconf.ParseEntry(entry, l.pod.Annotations)
	l.warnings, l.ignored = conf.Warnings, conf.Ignored
	return conf, err
}
