package caching_test

import (
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// A capture that fails loses nothing that waited in it, joined or not.
func TestReuseInACaptureThatFails(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.reuse()
		main, side, id := b.s[0], b.s[1], mem.PoolID{1, 0}
		for range 3 {
			b.BeginAllocateToPool(id, func(s driver.Stream) bool { return s == main })
			b.ok(b.dev.Graphs().Begin(main))
			joined, unjoined := b.alloc(main, mib), b.alloc(main, mib)
			b.follow(side, main)
			b.ok(side.Fill(joined.Ptr, 1, mib))
			b.Free(joined, side)
			b.follow(main, side)
			again := b.alloc(main, mib)
			testkit.Equal(t, "the block of the stream that joined", again.Ptr, joined.Ptr)
			b.ok(side.Fill(unjoined.Ptr, 1, mib))
			b.Free(unjoined, side)
			b.Free(again, side)
			if _, err := b.dev.Graphs().End(main); err == nil {
				t.Error("a capture whose streams did not join succeeded")
			}
			testkit.Equal(t, "active blocks", b.Stats().Active.All.Current, 2)
			b.endsEmpty(id)
		}
		b.finish(nil, nil)
	})
}

// A question that the device does not answer keeps the block until the capture's end.
func TestEveryFailedQuestionOfReuse(t *testing.T) {
	onGraphDevices(t, func(b *graphBench) {
		b.reuse()
		b.size = 4096
		main, id := b.s[0], mem.PoolID{1, 0}
		reused := 0
		for _, kind := range []intercept.Kind{intercept.Capturing, intercept.Mark, intercept.Ordered} {
			for nth := int64(1); ; nth++ {
				var used, after mem.Block
				var failed int64
				g := b.capture(id, main, func() {
					used = b.alloc(main, b.size)
					for _, s := range b.s[1:] {
						b.follow(s, main)
					}
					b.dev.SetRules(fault.Rule{Kind: kind, Nth: nth})
					b.Free(used, b.s[1:]...)
					failed = b.dev.Failed()
					b.dev.SetRules()
					for _, s := range b.s[1:] {
						b.follow(main, s)
					}
					b.dev.SetRules(fault.Rule{Kind: kind, Nth: nth})
					after = b.alloc(main, b.size)
					failed += b.dev.Failed()
					b.dev.SetRules()
				})
				if failed == 0 {
					reused++
					testkit.Equal(t, "without a failure: the address", after.Ptr, used.Ptr)
				}
				b.Free(after)
				b.ProcessPending()
				testkit.Equal(t, "active blocks", b.Stats().Active.All.Current, 0)
				b.ok(b.Check())
				b.ok(g.Close())
				b.ReleasePool(id)
				b.ok(b.EmptyCache())
				if failed == 0 {
					break
				}
			}
		}
		testkit.Equal(t, "kinds", reused, 3)
		b.finish(nil, nil)
	})
}
