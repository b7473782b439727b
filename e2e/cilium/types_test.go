// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package cilium

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/cilium/cilium/api/v1/models"
	"github.com/cilium/cilium/plugins/cilium-cni/types"

	"github.com/podweir/podweir/compat/detect"
	"github.com/podweir/podweir/compat/profiles"
	"github.com/podweir/podweir/plugin/testutil/must"
)

// realAgent answers with Cilium's own types.
type realAgent struct {
	health models.StatusResponse
	config models.DaemonConfiguration
}

var errNoSuchResource = errors.New("no such resource")

func (realAgent) Programs(context.Context) ([]string, error) { return nil, nil }

func (a realAgent) Runtime(context.Context) (string, error) { return "", errors.ErrUnsupported }

func (a realAgent) TCX(context.Context) (bool, error) { return true, nil }

func (a realAgent) RuntimeNetwork(context.Context) (*detect.RuntimeNetwork, error) {
	return nil, errors.ErrUnsupported
}

func (a realAgent) CiliumAPI(_ context.Context, resource string) ([]byte, error) {
	switch resource {
	case "/v1/healthz":
		return json.Marshal(a.health)
	case "/v1/config":
		return json.Marshal(a.config)
	}
	return nil, errNoSuchResource
}

const confFile = "etc/cni/net.d/05-cilium.conflist"

// conf is a node's root with a chain of one plugin.
func conf(plugin string) fstest.MapFS {
	return fstest.MapFS{
		confFile:          {Data: []byte(`{"name":"cilium","plugins":[` + plugin + `]}`)},
		"proc/1/net/unix": {Data: []byte("0: 00000002 00000000 00010000 0001 01 1 /var/run/cilium/cilium.sock\n")},
	}
}

const plain = `{"type":"cilium-cni"}`

// TestOwnStructsFitCiliumsTypes: what podweir reads by structs of its own is
// what Cilium's types write.
func TestOwnStructsFitCiliumsTypes(t *testing.T) {
	agent := realAgent{
		health: models.StatusResponse{
			Cilium:     &models.Status{State: models.StatusStateOk, Msg: "1.20.2 (v1.20.2-5e6d0a3e)"},
			AttachMode: models.AttachModeTcx, DatapathMode: models.DatapathModeVeth,
			Routing:          &models.Routing{IntraHostRoutingMode: models.RoutingIntraHostRoutingModeLegacy},
			BandwidthManager: &models.BandwidthManager{Enabled: true},
			CniChaining:      &models.CNIChainingStatus{Mode: models.CNIChainingStatusModePortmap},
		},
		config: models.DaemonConfiguration{Status: &models.DaemonConfigurationStatus{
			DaemonConfigurationMap: map[string]any{"EnableEndpointRoutes": true},
		}},
	}
	n := detect.Read(t.Context(), conf(plain), detect.Options{Live: agent})
	want := detect.Cilium{
		Version: "1.20.2", DatapathMode: "veth", AttachMode: "tcx", Routing: "Legacy", ChainingMode: "portmap",
		EndpointRoutes: profiles.Yes, BandwidthManager: profiles.Yes, API: true,
	}
	must.Match(t, "what is read", want, n.Cilium)
	if n.Profile.Name != "cilium-endpoint-routes" || n.Assumed {
		t.Errorf("profile %s, assumed %v: %s", n.Profile.Name, n.Assumed, n.Why)
	}
}

// TestBandwidthManagerOff: the field enabled is left out when it is false.
func TestBandwidthManagerOff(t *testing.T) {
	agent := realAgent{health: models.StatusResponse{BandwidthManager: &models.BandwidthManager{}}}
	n := detect.Read(t.Context(), conf(plain), detect.Options{Live: agent})
	must.Be(t, "the bandwidth manager", profiles.No, n.Cilium.BandwidthManager)
}

// TestChainingModeOfNetConf: the key means to Cilium's reader what it means to
// podweir's.
func TestChainingModeOfNetConf(t *testing.T) {
	root := conf(`{"type":"cilium-cni","chaining-mode":"generic-veth"}`)
	file := filepath.Join(t.TempDir(), "05-cilium.conflist")
	must.OK(t, os.WriteFile(file, root[confFile].Data, 0o644))
	theirs := must.Get(types.ReadNetConf(file))(t)
	ours := detect.Read(t.Context(), root, detect.Options{}).Cilium.ChainingMode
	if ours != "generic-veth" || ours != theirs.ChainingMode {
		t.Errorf("chaining mode %q, Cilium reads %q", ours, theirs.ChainingMode)
	}
}
