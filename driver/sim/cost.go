package sim

import (
	"sort"
	"time"

	"github.com/ashlar-go/ashlar/driver"
)

// A CostModel says how long each call keeps its caller, in the driver and in waiting for work that the driver does at
// once. The zero model costs nothing. A model must not change while a device uses it.
//
// Curves are over bytes. Of Map the curve is for one page's mapping, and Access for giving the device access to it,
// which is by far the greater part; of Unmap it is for the first page.
type CostModel struct {
	Calls      [NumCalls]Curve
	Access     Curve         // Map: access to the first page, by the page's size
	AccessNext time.Duration // Map: access to each further page of the same call
	UnmapNext  time.Duration // Unmap: each further page of the same call
}

// A Curve is a cost by size: straight lines between its points, the first point's cost below them, and the slope of the
// last two points beyond them. Sizes ascend. No points cost nothing.
type Curve []Point

// A Point is what a call of one size costs.
type Point struct {
	Size int64 // bytes
	Cost time.Duration
}

// At returns the cost of a call of size bytes.
func (c Curve) At(size int64) time.Duration {
	i := sort.Search(len(c), func(i int) bool { return c[i].Size >= size })
	switch {
	case len(c) == 0:
		return 0
	case i == 0 || len(c) == 1:
		return c[0].Cost
	case i == len(c):
		i--
	}
	a, b := c[i-1], c[i]
	slope := float64(b.Cost-a.Cost) / float64(b.Size-a.Size)
	return a.Cost + time.Duration(slope*float64(size-a.Size))
}

// Map returns the cost of mapping pages of these sizes by one call, access included.
func (m *CostModel) Map(pages ...driver.Page) (sum time.Duration) {
	for i, h := range pages {
		sum += m.Calls[CallMap].At(h.Size)
		if i == 0 {
			sum += m.Access.At(h.Size)
		} else {
			sum += m.AccessNext
		}
	}
	return sum
}

// Unmap returns the cost of unmapping n pages of size bytes each by one call.
func (m *CostModel) Unmap(n int, size int64) time.Duration {
	if n <= 0 {
		return 0
	}
	return m.Calls[CallUnmap].At(size) + time.Duration(n-1)*m.UnmapNext
}

const (
	kib = 1 << 10
	mib = 1 << 20
	gib = 1 << 30
)

func always(cost time.Duration) Curve { return Curve{{0, cost}} }

// at returns a curve of a fixed cost and a rate in bytes a second.
func at(fixed time.Duration, rate float64) Curve {
	return Curve{{0, fixed}, {gib, fixed + time.Duration(gib/rate*1e9)}}
}

// H200 returns the cost of calls on an NVIDIA H200 under driver 580.159.04, the default model. All figures were
// measured on such cards, which were shared and noisy, in two campaigns: A timed pairs of memory calls, virtual memory
// and copies of 1 GiB; B timed calls one by one, with 51 repetitions and the median kept. Where B splits a pair of A,
// its ratio is used and A's sum kept.
// What a kernel itself would take is not modelled: a launch costs its queueing.
func H200() *CostModel {
	const us = 1000 // so that tenths of a microsecond can be written below
	m := &CostModel{
		// A: cuMemSetAccess on one handle 38, 39, 39, 84 us; over 512 handles of 2 MiB 12.65 ms.
		Access:     Curve{{2 * mib, 38 * us}, {20 * mib, 39 * us}, {256 * mib, 39 * us}, {2 * gib, 84 * us}},
		AccessNext: 24.7 * us,
		// A: cuMemUnmap over 512 handles of 2 MiB 7.6 ms.
		UnmapNext: 14.8 * us,
	}
	m.Calls = [NumCalls]Curve{
		// B: cuMemGetInfo.
		CallAvailable: always(3.4 * us),
		// A: cuMemAlloc + cuMemFree of 2 MiB, 20 MiB, 256 MiB, 2 GiB 55, 62, 137, 651 us, split by B: 53, 53, 30, 23 %
		// for the first. B: below 1 MiB they share a driver's page and cost little.
		CallAlloc: {
			{64 * kib, 0.9 * us},
			{mib, 26 * us},
			{2 * mib, 29 * us},
			{20 * mib, 33 * us},
			{256 * mib, 41 * us},
			{2 * gib, 150 * us},
		},
		CallFree: {
			{64 * kib, 0.95 * us},
			{mib, 23 * us},
			{2 * mib, 26 * us},
			{20 * mib, 29 * us},
			{256 * mib, 96 * us},
			{2 * gib, 501 * us},
		},
		// B: cuStreamCreate and cuStreamDestroy, not blocking with the default stream.
		CallNewStream:   always(0.95 * us),
		CallCloseStream: always(0.9 * us),
		// B: cuMemcpyDtoDAsync and cuMemsetD8Async of 512 B to queue; A: 1 GiB at 4.2 TB/s read and written, hence
		// 2.1 TB/s copied, and 4.6 TB/s set.
		CallCopy: at(3.5*us, 2.1e12),
		CallFill: at(0.75*us, 4.6e12),
		// B: from pageable memory 512 B; A: 1 GiB at 9.9 GB/s there and 18.3 GB/s back.
		CallCopyIn:  at(1.7*us, 9.9e9),
		CallCopyOut: at(6.7*us, 18.3e9),
		// A: cuEventRecord, cuEventQuery. (B: 0.15 and 0.14 in a tight loop.)
		CallMark:    always(0.42 * us),
		CallReached: always(0.39 * us),
		// B: cuStreamWaitEvent; cuStreamSynchronize with nothing to wait for; cuLaunchKernel of an empty kernel.
		CallWaitFor: always(0.13 * us),
		CallSync:    always(0.18 * us),
		CallLaunch:  always(3.1 * us),
		// A: cuMemAddressReserve of 64 GiB when first used; B: cuMemAddressFree.
		CallReserve: always(15 * us),
		CallRelease: always(1.2 * us),
		// A: cuMemCreate, cuMemRelease, cuMemMap and cuMemUnmap of one handle of 2 MiB, 20 MiB, 256 MiB, 2 GiB.
		CallCreate: {{2 * mib, 7.3 * us}, {20 * mib, 7.9 * us}, {256 * mib, 8.6 * us}, {2 * gib, 18.9 * us}},
		CallDrop:   {{2 * mib, 8.9 * us}, {20 * mib, 13.6 * us}, {256 * mib, 64 * us}, {2 * gib, 462 * us}},
		CallMap:    always(1.25 * us),
		CallUnmap:  {{2 * mib, 21 * us}, {20 * mib, 21 * us}, {256 * mib, 21 * us}, {2 * gib, 37 * us}},
	}
	return m
}
