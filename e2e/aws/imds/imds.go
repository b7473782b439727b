// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package imds is the part of EC2's instance metadata service (version 2) that
// the VPC CNI, its init program and the Network Policy Agent ask for. It stands in
// for EC2, and is all that stands in for it: with ENABLE_IMDS_ONLY_MODE and without
// provisioning, ipamd calls no AWS API.
package imds

import (
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// Listen is where AWS's programs look for the service, in the node's network
// namespace.
const Listen = "169.254.169.254:80"

// instanceType is one that ipamd knows; this one has perInterface addresses on
// each network interface, of which the first is the node's own.
const (
	instanceType = "m5.24xlarge"
	perInterface = 50
)

const (
	region  = "xx-none-1" // no region of AWS's
	zone    = region + "a"
	tokenIs = "no secret"
	ttl     = "X-Aws-Ec2-Metadata-Token-Ttl-Seconds"
)

// Instance is a node as EC2 would describe it.
type Instance struct {
	// Name tells nodes apart: their identifiers are made of it.
	Name string
	// MAC and Address are those of the node's one network interface.
	MAC     string
	Address netip.Addr
	// Subnet is the network of the nodes.
	Subnet netip.Prefix
	// Pods is where the addresses for pods come from, 49 of them.
	Pods netip.Prefix
	// VPC are the networks that traffic reaches without address translation.
	VPC []netip.Prefix
}

// Handler answers as the metadata service of an instance does: 404 for what the
// instance does not have.
func (i *Instance) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /latest/api/token", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set(ttl, "21600")
		reply(w, tokenIs)
	})
	mux.HandleFunc("GET /latest/dynamic/instance-identity/document", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, fmt.Sprintf(`{"region":%q,"instanceId":%q,"instanceType":%q,"privateIp":%q}`,
			region, i.id("i"), instanceType, i.Address))
	})
	data := i.data()
	mux.HandleFunc("GET /latest/meta-data/{key...}", func(w http.ResponseWriter, r *http.Request) {
		key := strings.TrimSuffix(r.PathValue("key"), "/")
		if value, ok := data[key]; ok {
			reply(w, value)
		} else if list := children(data, key); list != nil {
			reply(w, strings.Join(list, "\n"))
		} else {
			http.NotFound(w, r)
		}
	})
	return mux
}

// data has the value of each key below meta-data.
func (i *Instance) data() map[string]string {
	eni := "network/interfaces/macs/" + i.MAC + "/"
	return map[string]string{
		"placement/availability-zone": zone,
		"instance-id":                 i.id("i"),
		"instance-type":               instanceType,
		"local-ipv4":                  i.Address.String(),
		"mac":                         i.MAC,

		eni + "device-number":          "0",
		eni + "network-card":           "0",
		eni + "interface-id":           i.id("eni"),
		eni + "local-ipv4s":            strings.Join(i.addresses(), "\n"),
		eni + "security-group-ids":     "sg-0",
		eni + "subnet-id":              "subnet-0",
		eni + "subnet-ipv4-cidr-block": i.Subnet.String(),
		eni + "vpc-id":                 "vpc-0",
		eni + "vpc-ipv4-cidr-block":    i.VPC[0].String(),
		eni + "vpc-ipv4-cidr-blocks":   strings.Join(texts(i.VPC), "\n"),
	}
}

// id is an identifier of EC2's shape.
func (i *Instance) id(kind string) string { return fmt.Sprintf("%s-%017x", kind, i.Name) }

// addresses are the node's own and, as secondary ones, those for pods: from the
// second on, as a subnet's first is the router's.
func (i *Instance) addresses() []string {
	list := []string{i.Address.String()}
	for a := i.Pods.Masked().Addr().Next().Next(); len(list) < perInterface && i.Pods.Contains(a); a = a.Next() {
		list = append(list, a.String())
	}
	return list
}

func texts(prefixes []netip.Prefix) []string {
	var list []string
	for _, p := range prefixes {
		list = append(list, p.String())
	}
	return list
}

// children are what a directory has, those that are directories themselves with a
// slash behind them; nil if nothing is below.
func children(data map[string]string, dir string) []string {
	if dir != "" {
		dir += "/"
	}
	var list []string
	for key := range data {
		rest, below := strings.CutPrefix(key, dir)
		if !below {
			continue
		}
		if name, _, deeper := strings.Cut(rest, "/"); deeper {
			rest = name + "/"
		}
		list = append(list, rest)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

func reply(w http.ResponseWriter, text string) { _, _ = io.WriteString(w, text) }
