// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"fmt"

	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
)

// verdictNext is "next" on a shared hook: TC_ACT_UNSPEC and TCX_NEXT of
// linux/pkt_cls.h and linux/bpf.h.
const verdictNext = -1

// sharedPrograms are those that run on hooks which others can use, too.
var sharedPrograms = []string{
	"pw_band", "pw_band_x", "pw_edt", "pw_edt_x", "pw_police", "pw_police_x", GuardProgram, RedirectProgram,
	ceilingProgram, ceilingSubnets,
}

// Verdict is what a copy of one shared-hook program answered.
type Verdict struct {
	Program string
	// Tag is the kernel's digest of the instructions; an attached program with
	// the same tag is the one that was tested.
	Tag [8]byte
	// Wrong is "" if every packet was answered with next (-1), else what
	// happened instead.
	Wrong string
}

// TestVerdicts loads a copy of each program that runs on shared hooks, with
// maps of its own, and sends it packets that it has to let pass, on to the next
// program. It touches no pod and nothing stays; it takes some 30 ms. An error
// means that a copy could not be loaded or run, which says nothing about the
// verdict.
func TestVerdicts() ([]Verdict, error) {
	all := make([]Verdict, 0, len(sharedPrograms))
	for _, name := range sharedPrograms {
		v, err := testVerdict(name)
		if err != nil {
			return all, fmt.Errorf("verdict self-test of %s: %w", name, err)
		}
		all = append(all, *v)
	}
	return all, nil
}

func testVerdict(name string) (*Verdict, error) {
	objs := &Objects{maps: make(map[string]*bpfcall.Map)}
	defer objs.Close()
	if err := objs.load([]string{name}, 0); err != nil {
		return nil, err
	}
	// Rates of zero cost nothing, so that the limits admit every packet; the
	// redirect has nowhere to go.
	params := &shaping.Params{Datapath: shaping.Datapath{Policy: shaping.PolicyStrict}}
	if err := objs.fill(params, nil, 0); err != nil {
		return nil, err
	}
	prog := objs.Program
	switch name {
	case GuardProgram:
		prog = objs.Guard
	case RedirectProgram:
		prog = objs.Redirect
	case ceilingProgram, ceilingSubnets:
		prog = objs.Ceiling
	}
	info, err := prog.Info()
	if err != nil {
		return nil, err
	}
	v := &Verdict{Program: name, Tag: info.Tag}
	for _, p := range testPackets() {
		got, err := prog.Run(p.data)
		if err != nil {
			return nil, fmt.Errorf("%s packet: %w", p.name, err)
		}
		if got != verdictNext {
			v.Wrong = fmt.Sprintf("answered %d to a packet of %s, want %d (next)", got, p.name, verdictNext)
		}
	}
	return v, nil
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

// ProgramTag returns the kernel's digest of the instructions of the program
// with an ID.
func ProgramTag(id uint32) ([8]byte, error) {
	p, err := bpfcall.ProgramByID(id)
	if err != nil {
		return [8]byte{}, err
	}
	defer func() { _ = p.Close() }()
	info, err := p.Info()
	return info.Tag, err
}
