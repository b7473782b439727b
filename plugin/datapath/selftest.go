// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"fmt"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/terms"
)

// verdictNext is "next" on a shared hook: TC_ACT_UNSPEC and TCX_NEXT of
// linux/pkt_cls.h and linux/bpf.h.
const verdictNext = -1

// sharedPrograms are those that run on hooks which others can use, too.
var sharedPrograms = []string{
	"pw_band", "pw_police", GuardProgram, RedirectProgram, CeilingProgram,
}

// TestVerdicts loads a copy of each program that runs on shared hooks, with
// maps of its own, and sends it packets that it has to let pass, on to the next
// program. It touches no pod and nothing stays; it takes some 50 ms. An error
// means that a copy could not be loaded or run, which says nothing about the
// verdict.
func TestVerdicts() ([]terms.Verdict, error) {
	all := make([]terms.Verdict, 0, len(sharedPrograms))
	for _, name := range sharedPrograms {
		v, err := testVerdict(name)
		if err != nil {
			return all, fmt.Errorf("verdict self-test of %s: %w", name, err)
		}
		all = append(all, *v)
	}
	return all, nil
}

func testVerdict(name string) (*terms.Verdict, error) {
	// Rates of zero cost nothing, so that the limits admit every packet; the
	// redirect has nowhere to go.
	copied, err := loadCopy(name, terms.PolicyStrict, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = copied.Close() }()
	v := &terms.Verdict{Program: name}
	for _, p := range testPackets() {
		got, err := copied.Run(p.data)
		if err != nil {
			return nil, fmt.Errorf("%s packet: %w", p.name, err)
		}
		if got != verdictNext {
			v.Wrong = fmt.Sprintf("answered %d to a packet of %s, want %d (next)", got, p.name, verdictNext)
		}
	}
	return v, nil
}

// LoadRedirect loads a copy of the redirect that sends to the device with this
// ifindex, for a self-test.
func LoadRedirect(ifindex int) (*bpfcall.Program, error) {
	// Any policy will do, but a configuration without one is not valid.
	return loadCopy(RedirectProgram, terms.PolicyFlat, ifindex)
}

// loadCopy loads a program for one slot of a slab of its own, which stays as long as
// the program.
func loadCopy(name string, policy terms.Policy, redirectIndex int) (*bpfcall.Program, error) {
	p, err := image.ProgramByName(name)
	if err != nil {
		return nil, err
	}
	maps := make(map[string]*bpfcall.Map)
	defer func() {
		for _, m := range maps {
			_ = m.Close()
		}
	}()
	for _, name := range append([]string{mapChunk}, shared...) {
		if maps[name], err = makeMap(name); err != nil {
			delete(maps, name)
			return nil, err
		}
	}
	number, fd := uint32(image.FirstSlot)/chunkSlots(), uint32(maps[mapChunk].FD())
	if err := maps[mapSlab].Update(bytesOf(&number), bytesOf(&fd)); err != nil {
		return nil, fmt.Errorf("put a slot into the slab: %w", err)
	}
	one, first := image.Slot{}, uint32(image.FirstSlot)%chunkSlots()
	one.Config[0] = Config(&image.Config{Policy: uint8(policy)}, redirectIndex)
	if err := maps[mapChunk].Update(bytesOf(&first), bytesOf(&one)); err != nil {
		return nil, fmt.Errorf("write a slot: %w", err)
	}
	return load(&p, image.FirstSlot, maps)
}

type testPacket struct {
	name string
	data []byte
}

// testPackets are one of each kind that the parser tells apart, from and to
// addresses for documentation (RFC 5737, RFC 3849).
func testPackets() []testPacket {
	const ethernet, ipv4, ipv6, transport = 14, 20, 40, 20
	tcp4 := make([]byte, ethernet+ipv4+transport)
	tcp4[12] = 0x08
	copy(tcp4[ethernet:], []byte{0x45, 0, 0, ipv4 + transport, 0, 0, 0, 0, 64, 6, 0, 0, 192, 0, 2, 1, 198, 51, 100, 1})
	udp6 := make([]byte, ethernet+ipv6+transport)
	udp6[12], udp6[13] = 0x86, 0xdd
	copy(udp6[ethernet:], []byte{0x60, 0, 0, 0, 0, transport, 17, 64, 0x20, 1, 0x0d, 0xb8})
	copy(udp6[ethernet+24:], []byte{0x20, 1, 0x0d, 0xb8})
	arp := make([]byte, 60)
	arp[12], arp[13] = 0x08, 0x06
	return []testPacket{{"TCP over IPv4", tcp4}, {"UDP over IPv6", udp6}, {"ARP", arp}}
}
