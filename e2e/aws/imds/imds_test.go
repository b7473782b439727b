// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package imds

import (
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
)

func testInstance() *Instance {
	return &Instance{
		Name: "n1", MAC: "02:42:ac:1e:01:0b", Address: netip.MustParseAddr("172.30.1.11"),
		Subnet: netip.MustParsePrefix("172.30.1.0/24"), Pods: netip.MustParsePrefix("10.77.1.0/24"),
		VPC: []netip.Prefix{netip.MustParsePrefix("10.77.0.0/16"), netip.MustParsePrefix("172.30.1.0/24")},
	}
}

func ask(t *testing.T, method, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	testInstance().Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), method, path, nil))
	return w
}

func TestHandlerAnswersAsEC2Does(t *testing.T) {
	const eni = "/latest/meta-data/network/interfaces/macs/02:42:ac:1e:01:0b/"
	for path, want := range map[string]string{
		"/latest/meta-data/mac":                      "02:42:ac:1e:01:0b",
		"/latest/meta-data/local-ipv4":               "172.30.1.11",
		"/latest/meta-data/network/interfaces/macs":  "02:42:ac:1e:01:0b/",
		"/latest/meta-data/network/interfaces/macs/": "02:42:ac:1e:01:0b/",
		"/latest/meta-data/placement":                "availability-zone",
		eni + "vpc-ipv4-cidr-blocks":                 "10.77.0.0/16\n172.30.1.0/24",
		eni + "interface-id":                         "eni-00000000000006e31",
	} {
		if w := ask(t, http.MethodGet, path); w.Code != http.StatusOK || w.Body.String() != want {
			t.Errorf("GET %s: %d %q, want %q", path, w.Code, w.Body, want)
		}
	}
	for _, path := range []string{eni + "ipv4-prefix", "/latest/meta-data/ipv6", "/latest/meta-data/ma"} {
		if w := ask(t, http.MethodGet, path); w.Code != http.StatusNotFound {
			t.Errorf("GET %s: %d %q, want 404", path, w.Code, w.Body)
		}
	}
	if w := ask(t, http.MethodPut, "/latest/api/token"); w.Code != http.StatusOK || w.Header().Get(ttl) == "" {
		t.Errorf("PUT token: %d, header %v: want %s", w.Code, w.Header(), ttl)
	}
}

func TestAddressesAreTheNodesAndAsManyAsAnInterfaceHas(t *testing.T) {
	got := strings.Fields(ask(t, http.MethodGet, "/latest/meta-data/network/interfaces/macs/02:42:ac:1e:01:0b/local-ipv4s").Body.String())
	if len(got) != 50 || got[0] != "172.30.1.11" || got[1] != "10.77.1.2" || got[49] != "10.77.1.50" {
		t.Errorf("addresses %q, want the node's and 49 of its pods'", got)
	}
	small := testInstance()
	small.Pods = netip.MustParsePrefix("10.77.1.0/29")
	if list := small.addresses(); len(list) != 7 || list[6] != "10.77.1.7" {
		t.Errorf("addresses %q, want no more than the network of pods has", list)
	}
}
