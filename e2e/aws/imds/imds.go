// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package imds is the part of EC2's instance metadata service (version 2) that
// the VPC CNI, its init program and the Network Policy Agent ask for. Nothing
// else stands in for EC2: with ENABLE_IMDS_ONLY_MODE and without provisioning, ipamd
// calls no AWS API in an IPv4 cluster. In an IPv6 cluster it makes one call, which the
// service answers, too.
package imds

import (
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Listen is where AWS's programs look for the service, in the node's network
// namespace.
const Listen = "169.254.169.254:80"

// instanceType is one that ipamd knows: it has two network cards. Each network interface has
// perInterface addresses, of which the first is the node's own.
const (
	instanceType = "m6in.32xlarge"
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
	// Interfaces are the node's network interfaces, each on a card of its own. The
	// first is the primary one.
	Interfaces []Interface
	// VPC are the networks that traffic reaches without address translation, VPCIPv6
	// the one for IPv6.
	VPC     []netip.Prefix
	VPCIPv6 netip.Prefix
}

// Interface is a network interface.
type Interface struct {
	// Address is the node's address on the interface, and Subnet the network of the nodes.
	MAC     string
	Address netip.Addr
	Subnet  netip.Prefix
	// Pods is where the addresses for pods come from, 49 of them.
	Pods netip.Prefix
	// IPv6 is the node's address with the length of its subnet, and PodsIPv6, a /80,
	// where the addresses for pods come from in an IPv6 cluster.
	IPv6, PodsIPv6 netip.Prefix
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
			region, i.id("i", 0), instanceType, i.Interfaces[0].Address))
	})
	// EC2's API, AWS_EC2_ENDPOINT: ipamd asks it for the prefix of the primary interface.
	mux.HandleFunc("POST /{$}", func(w http.ResponseWriter, _ *http.Request) {
		reply(w, `<DescribeNetworkInterfacesResponse><networkInterfaceSet><item><ipv6PrefixSet><item><ipv6Prefix>`+
			i.Interfaces[0].PodsIPv6.String()+`</ipv6Prefix></item></ipv6PrefixSet></item></networkInterfaceSet></DescribeNetworkInterfacesResponse>`)
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
	first := &i.Interfaces[0]
	data := map[string]string{
		"placement/availability-zone": zone,
		"instance-id":                 i.id("i", 0),
		"instance-type":               instanceType,
		"local-ipv4":                  first.Address.String(),
		"mac":                         first.MAC,
	}
	if first.IPv6.IsValid() {
		data["ipv6"] = first.IPv6.Addr().String()
	}
	for card := range i.Interfaces {
		n := &i.Interfaces[card]
		eni := "network/interfaces/macs/" + n.MAC + "/"
		maps.Copy(data, map[string]string{
			eni + "device-number":          "0",
			eni + "network-card":           strconv.Itoa(card),
			eni + "interface-id":           i.id("eni", card),
			eni + "local-ipv4s":            strings.Join(n.addresses(), "\n"),
			eni + "security-group-ids":     "sg-0",
			eni + "subnet-id":              "subnet-0",
			eni + "subnet-ipv4-cidr-block": n.Subnet.String(),
			eni + "vpc-id":                 "vpc-0",
			eni + "vpc-ipv4-cidr-block":    i.VPC[0].String(),
			eni + "vpc-ipv4-cidr-blocks":   strings.Join(texts(i.VPC), "\n"),
		})
		if n.IPv6.IsValid() {
			maps.Copy(data, map[string]string{
				eni + "ipv6s":                   n.IPv6.Addr().String(),
				eni + "subnet-ipv6-cidr-blocks": n.IPv6.Masked().String(),
				eni + "vpc-ipv6-cidr-blocks":    i.VPCIPv6.String(),
			})
		}
	}
	return data
}

// id is an identifier of EC2's shape.
func (i *Instance) id(kind string, n int) string { return fmt.Sprintf("%s-%016x%d", kind, i.Name, n) }

// addresses are the node's own and, as secondary ones, those for pods: from the
// second on, as a subnet's first is the router's.
func (n *Interface) addresses() []string {
	list := []string{n.Address.String()}
	for a := n.Pods.Masked().Addr().Next().Next(); len(list) < perInterface && n.Pods.Contains(a); a = a.Next() {
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
