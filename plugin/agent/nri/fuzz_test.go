// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package nri

import (
	"testing"

	"github.com/containerd/nri/pkg/api"
	"github.com/containerd/ttrpc"
	"google.golang.org/protobuf/proto"

	"github.com/podweir/podweir/plugin/netconf"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// A call that podweir does not subscribe to is answered, and nothing in podweir is called.
func TestCallThatNobodyAskedFor(t *testing.T) {
	got, err := answer(t.Context(), nil, &ttrpc.UnaryServerInfo{FullMethod: "/nri.pkg.api.v1alpha1.Plugin/CreateContainer"}, nil)
	if _, is := got.(*api.Empty); !is || err != nil {
		t.Errorf("answer() = %v, %v, want nothing", got, err)
	}
}

// FuzzSynchronize: nothing that a runtime sends when it connects breaks the agent, and
// what is held of it is bounded.
func FuzzSynchronize(f *testing.F) {
	seed, err := proto.Marshal(&api.SynchronizeRequest{Pods: []*api.PodSandbox{{
		Id: "a", Uid: "b", Name: "c", Namespace: "d", Annotations: map[string]string{"podweir.io/policy": "flat", "podweir.io/x": "y"},
		Linux: &api.LinuxPodSandbox{Namespaces: []*api.LinuxNamespace{{Type: "network", Path: "/run/netns/a"}, nil}},
	}}})
	must.OK(f, err)
	f.Add(seed)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		var req api.SynchronizeRequest
		if proto.Unmarshal(raw, &req) != nil {
			return
		}
		for _, s := range req.GetPods() {
			p := podOf(s)
			if p.ID != s.GetId() || len(p.Annotations.Values) > 20 {
				t.Errorf("pod %q keeps %d annotations", p.ID, len(p.Annotations.Values))
			}
			for _, v := range p.Annotations.Values {
				must.AtMost(t, "bytes of a value that is kept", netconf.MaxAnnotationBytes+1, len(v))
			}
		}
	})
}
