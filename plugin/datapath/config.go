// SPDX-License-Identifier: Apache-2.0
// Copyright Authors of podweir

package datapath

import (
	"fmt"
	"net/netip"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/podweir/podweir/bpf/image"
	"github.com/podweir/podweir/plugin/datapath/bpfcall"
	"github.com/podweir/podweir/plugin/shaping"
)

// Names of the maps, as in bpf/lib/maps.h.
const (
	mapConfig   = "pw_config"
	mapActive   = "pw_active"
	mapState    = "pw_state"
	mapCounters = "pw_counters"
	mapSubnets  = "pw_subnets"
)

// ABIVersion is the layout of the maps, PW_ABI_VERSION in bpf/lib/abi.h.
const ABIVersion = 4

func (o *Objects) fill(p *shaping.Params, subnets []netip.Prefix, redirectIndex int) error {
	if m := o.maps[mapSubnets]; m != nil {
		if err := fillSubnets(m, subnets); err != nil {
			return err
		}
	}
	if o.maps[mapConfig] == nil {
		return nil
	}
	cfg := toConfig(&p.Datapath, redirectIndex)
	if err := randomKeys(cfg); err != nil {
		return err
	}
	return writeConfig(o.maps[mapConfig], o.maps[mapActive], cfg)
}

func fillSubnets(m *bpfcall.Map, subnets []netip.Prefix) error {
	for _, s := range subnets {
		bits := s.Bits()
		if s.Addr().Is4() {
			bits += 96
		}
		key := image.Subnet{PrefixBits: uint32(bits), Addr: s.Addr().As16()}
		if err := m.Update(bytesOf(&key), []byte{1}); err != nil {
			return fmt.Errorf("put subnet %v: %w", s, err)
		}
	}
	return nil
}

// bytesOf is the memory of a map's key or value; the types of package image are
// laid out as the programs have them.
func bytesOf[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// writeConfig fills the entry that is not in use and then points to it, so
// that no packet sees half of an old and half of a new configuration.
func writeConfig(config, active *bpfcall.Map, cfg *image.Config) error {
	var first, current uint32
	if err := active.Lookup(bytesOf(&first), bytesOf(&current)); err != nil {
		return fmt.Errorf("read map %s: %w", mapActive, err)
	}
	next := (current + 1) % config.MaxEntries()
	if err := config.Update(bytesOf(&next), bytesOf(cfg)); err != nil {
		return fmt.Errorf("write map %s: %w", mapConfig, err)
	}
	if err := active.Update(bytesOf(&first), bytesOf(&next)); err != nil {
		return fmt.Errorf("write map %s: %w", mapActive, err)
	}
	return nil
}

// readConfig reads the configuration in use. In one of another ABI version only
// the version, which comes first, means what it says.
func readConfig(config, active *bpfcall.Map) (*image.Config, error) {
	var first, current uint32
	if err := active.Lookup(bytesOf(&first), bytesOf(&current)); err != nil {
		return nil, fmt.Errorf("read map %s: %w", mapActive, err)
	}
	value := make([]byte, config.ValueBytes())
	if err := config.Lookup(bytesOf(&current), value); err != nil {
		return nil, fmt.Errorf("read map %s: %w", mapConfig, err)
	}
	var cfg image.Config
	copy(bytesOf(&cfg), value)
	return &cfg, nil
}

// toConfig fills the map value; the hash keys stay zero.
func toConfig(dp *shaping.Datapath, redirectIndex int) *image.Config {
	return &image.Config{
		AbiVersion: ABIVersion, Policy: uint8(dp.Policy), Direction: uint8(dp.Direction),
		L3Only: flag[uint8](dp.L3Only), SubnetsMode: uint8(dp.SubnetsMode),
		LightRate: toRate(dp.LightRate), LightTolerance: uint64(dp.LightTolerance),
		TotalRate: toRate(dp.TotalRate), TotalBurst: uint64(dp.TotalBurst), TotalHorizon: uint64(dp.TotalHorizon),
		SketchRate: toRate(dp.SketchRate),
		FairEach:   uint64(dp.FairEach), FairLeast: uint64(dp.FairLeast), FairMost: uint64(dp.FairMost),
		LightLeast: dp.LightLeast, LightMost: dp.LightMost, FrameEst: dp.FrameEstimate,
		HalfLifeShift: dp.HalfLifeShift, HoldTicks: dp.HoldTicks,
		CeilingRate: toRate(dp.CeilingRate), CeilingBurst: uint64(dp.CeilingBurst),
		RedirectIfindex: uint32(redirectIndex),
		LightPriority:   dp.LightPriority, HeavyPriority: dp.HeavyPriority, ExemptPriority: dp.ExemptPriority,
		LightClass: dp.LightClass, HeavyClass: dp.HeavyClass, ExemptClass: dp.ExemptClass,
	}
}

// fromConfig is the inverse of toConfig.
func fromConfig(c *image.Config) shaping.Datapath {
	return shaping.Datapath{
		Policy: shaping.Policy(c.Policy), Direction: shaping.Direction(c.Direction),
		L3Only: c.L3Only != 0, SubnetsMode: shaping.SubnetsMode(c.SubnetsMode),
		LightRate: fromRate(c.LightRate), LightTolerance: shaping.MeterTime(c.LightTolerance),
		TotalRate: fromRate(c.TotalRate), TotalBurst: shaping.MeterTime(c.TotalBurst),
		TotalHorizon: shaping.MeterTime(c.TotalHorizon),
		SketchRate:   fromRate(c.SketchRate),
		FairEach:     shaping.MeterTime(c.FairEach), FairLeast: shaping.MeterTime(c.FairLeast), FairMost: shaping.MeterTime(c.FairMost),
		LightLeast: c.LightLeast, LightMost: c.LightMost, FrameEstimate: c.FrameEst,
		HalfLifeShift: c.HalfLifeShift, HoldTicks: c.HoldTicks,
		CeilingRate: fromRate(c.CeilingRate), CeilingBurst: shaping.MeterTime(c.CeilingBurst),
		LightPriority: c.LightPriority, HeavyPriority: c.HeavyPriority, ExemptPriority: c.ExemptPriority,
		LightClass: c.LightClass, HeavyClass: c.HeavyClass, ExemptClass: c.ExemptClass,
	}
}

func toRate(r shaping.FixedRate) image.Rate {
	return image.Rate{Mult: r.Mult, Shift: r.Shift}
}

func fromRate(r image.Rate) shaping.FixedRate {
	return shaping.FixedRate{Mult: r.Mult, Shift: r.Shift}
}

func flag[T uint8 | uint32](b bool) T {
	if b {
		return 1
	}
	return 0
}

// ClockTick is the resolution of the clock that the programs read
// (bpf_ktime_get_coarse_ns): the kernel sets it at every timer interrupt.
func ClockTick() (time.Duration, error) {
	var ts unix.Timespec
	if err := unix.ClockGetres(unix.CLOCK_MONOTONIC_COARSE, &ts); err != nil {
		return 0, fmt.Errorf("read the resolution of the coarse clock: %w", err)
	}
	return time.Duration(ts.Nano()), nil
}
