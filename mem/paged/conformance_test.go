package paged_test

import (
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem/memtest"
	"github.com/ashlar-go/ashlar/mem/paged"
)

func TestConformance(t *testing.T) {
	memtest.RunAll(t, memtest.Config{
		Sim:   sim.Options{Granularity: 1 << 20},
		Waits: true, Alignment: 512, Ops: 700, Seeds: 3, FaultOps: 30,
	}, paged.New, map[string]paged.Config{
		"defaults":  {},
		"limit":     {Limit: 160 << 20},
		"small":     {Page: 1 << 20, Keep: 8 << 20},
		"large":     {Page: 16 << 20},
		"returning": {Keep: paged.KeepNone},
		"plain":     {NoAliases: true},
	})
}
