// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

// Package collide finds flows that share every cell of the sketch with another
// flow, for an attacker who knows the algorithm and believes to know the key.
package collide

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/podweir/podweir/bpf/model"
)

// Of the sketch, as in bpf/lib/abi.h: the rows take one after the other 9 bits
// of the first half of the flow hash. That a flow which was found shares all
// cells is asked of the model, in the tests.
const (
	rowsMask  = 1<<(3*9) - 1
	halfShift = 32
)

// Words of the flow hash that differ from one IPv4 flow to another.
const (
	wordSource = model.KeyConstant + 1
	wordDest   = model.KeyConstant + 2
	wordPorts  = model.KeyConstant + 3
)

// Protocols and EtherType as in the headers.
const (
	protocolTCP = 6
	protocolUDP = 17
	etherIPv4   = 0x0800
)

// Assumed is the key that the attacker believes in: digits of an
// implementation that has one for everybody. Under a key of zero every flow
// would collide with every other, and there would be nothing to find. They are
// the first outputs of SplitMix64 from 1.
func Assumed() model.Keys {
	var keys model.Keys
	state := uint64(1)
	for half := range 2 {
		for i := range keys {
			state += 0x9E3779B97F4A7C15
			z := state
			z = (z ^ z>>30) * 0xBF58476D1CE4E5B9
			z = (z ^ z>>27) * 0x94D049BB133111EB
			keys[i][half] = z ^ z>>31
		}
	}
	return keys
}

// TCP is the flow of one direction of a TCP connection over IPv4.
func TCP(from, to netip.AddrPort) model.Flow { return flow(protocolTCP, from, to) }

// UDP is the flow of UDP datagrams over IPv4.
func UDP(from, to netip.AddrPort) model.Flow { return flow(protocolUDP, from, to) }

func flow(protocol uint8, from, to netip.AddrPort) model.Flow {
	return model.Flow{
		Src: from.Addr().As16(), Dst: to.Addr().As16(), SrcPort: from.Port(), DstPort: to.Port(),
		Protocol: protocol, Kind: model.FlowPorts, EtherType: etherIPv4,
	}
}

// Search is what the attacker can choose from: UDP datagrams between a pod and
// the addresses of a prefix, from any port of a range.
type Search struct {
	// Victim is the flow to collide with.
	Victim model.Flow
	Keys   model.Keys
	// Pod is the address that does not change; Inwards says that it receives.
	Pod     netip.Addr
	Inwards bool
	Remote  netip.Prefix
	// FirstPort to LastPort are source ports, ToPort is the destination's.
	FirstPort, LastPort, ToPort uint16
	// Most is how many flows are enough.
	Most int
}

// Flow is the flow of a remote address and a source port.
func (s *Search) Flow(remote netip.AddrPort) model.Flow {
	if s.Inwards {
		return UDP(remote, netip.AddrPortFrom(s.Pod, s.ToPort))
	}
	return UDP(netip.AddrPortFrom(s.Pod, remote.Port()), netip.AddrPortFrom(remote.Addr(), s.ToPort))
}

// Run tries every address and port until enough are found, on all processors,
// and returns remote addresses and source ports. One in 2^27 collides in all
// rows. The addresses' order is that in which they were found.
func (s *Search) Run() []netip.AddrPort {
	target := uint32(s.Keys.Hash(&s.Victim)>>halfShift) & rowsMask
	a := s.Remote.Addr().As4()
	first, count := binary.BigEndian.Uint32(a[:]), int64(1)<<(32-s.Remote.Bits())
	var (
		next  atomic.Int64 // the network's own address is left out
		mu    sync.Mutex
		found []netip.AddrPort
		wg    sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for {
				n := next.Add(1)
				if n >= count {
					return
				}
				ports := s.ports(first+uint32(n), target)
				if len(ports) == 0 {
					continue
				}
				mu.Lock()
				found = append(found, ports...)
				enough := len(found) >= s.Most
				mu.Unlock()
				if enough {
					next.Store(count)
				}
			}
		})
	}
	wg.Wait()
	return found[:min(len(found), s.Most)]
}

// ports tries the ports of one address. The hash is linear in its words, so a
// port is one multiplication.
func (s *Search) ports(address, target uint32) []netip.AddrPort {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], address)
	remote := netip.AddrFrom4(b)
	zero := s.Flow(netip.AddrPortFrom(remote, 0))
	var sum uint64
	for i, w := range words(&zero) {
		sum += s.Keys[i][0] * uint64(w)
	}
	var out []netip.AddrPort
	for port := uint32(s.FirstPort); port <= uint32(s.LastPort); port++ {
		// In network byte order, as a little-endian processor reads it.
		swapped := port>>8 | port&0xff<<8
		if uint32((sum+s.Keys[wordPorts][0]*uint64(swapped))>>halfShift)&rowsMask == target {
			out = append(out, netip.AddrPortFrom(remote, uint16(port)))
		}
	}
	return out
}

// words are those of an IPv4 flow in the hash, as a little-endian processor
// reads them; the constant is a key times 1.
func words(f *model.Flow) (w [model.HashKeys]uint32) {
	swap := func(v uint16) uint32 { return uint32(v<<8 | v>>8) }
	w[model.KeyConstant] = 1
	w[wordSource] = binary.LittleEndian.Uint32(f.Src[12:])
	w[wordDest] = binary.LittleEndian.Uint32(f.Dst[12:])
	w[wordPorts] = swap(f.SrcPort) | swap(f.DstPort)<<16
	w[wordPorts+1] = uint32(f.Protocol) | uint32(f.Kind)<<8 | swap(f.EtherType)<<16
	return w
}
