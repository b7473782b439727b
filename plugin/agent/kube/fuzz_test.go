// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package kube_test

import (
	"bytes"
	"testing"

	"github.com/podweir/podweir/plugin/agent/kube"
	"github.com/podweir/podweir/plugin/netconf"
)

const aPod = `{"metadata":{"namespace":"a","name":"b","uid":"c","resourceVersion":"1","deletionTimestamp":null,"annotations":{"kubernetes.io/egress-bandwidth":"10M",` +
	`"kubernetes.io/config.mirror":"d","podweir.io/x":"y"}},"spec":{"hostNetwork":true},"status":{"phase":"Running","podIP":"10.0.0.1"}}`

// checkKept fails if more of a pod is kept than the agent has room for.
func checkKept(t *testing.T, p *kube.Pod) {
	t.Helper()
	const most = netconf.MaxAnnotationBytes + 1
	if len(p.Annotations.Values) > 20 {
		t.Errorf("%d annotations are kept", len(p.Annotations.Values))
	}
	for name, value := range p.Annotations.Values {
		if len(name) > most || len(value) > most {
			t.Errorf("annotation %.40q has %d bytes", name, len(value))
		}
	}
	if p.RuntimeUID != p.UID && len(p.RuntimeUID) > most {
		t.Errorf("the mirror's UID has %d bytes", len(p.RuntimeUID))
	}
}

// FuzzWatchEvent: no message of a watch breaks the decoder, and what is kept is bounded.
func FuzzWatchEvent(f *testing.F) {
	f.Add([]byte(`{"type":"ADDED","object":` + aPod + `}`))
	f.Add([]byte(`{"type":"BOOKMARK","object":{"kind":"Pod","metadata":{"resourceVersion":"7","annotations":null}}}`))
	f.Add([]byte(`{"type":"ERROR","object":{"kind":"Status","status":"Failure","reason":"Expired","message":"too old","code":410}}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		kind, p, failure, err := kube.DecodeEvent(raw)
		if err != nil {
			return
		}
		if failure == nil {
			t.Errorf("%q: an ERROR of it would be none", kind)
		}
		checkKept(t, &p)
	})
}

// FuzzPodList: no list breaks the decoder, and one without a version is an error.
func FuzzPodList(f *testing.F) {
	f.Add([]byte(`{"kind":"PodList","metadata":{"resourceVersion":"1"},"items":[` + aPod + `,` + aPod + `]}`))
	f.Add([]byte(`{"items":null,"metadata":{"resourceVersion":"1"},"x":[1,{}]}`))
	f.Add([]byte(`{"items":[{"metadata":{"annotations":[]}}]}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		version, err := kube.DecodeList(bytes.NewReader(raw), func(p kube.Pod) { checkKept(t, &p) })
		if (err == nil) != (version != "") {
			t.Errorf("version %q with error %v", version, err)
		}
	})
}
