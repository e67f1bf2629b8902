// Package layer has allocators over allocators. Each wraps any [mem.Allocator], adds one thing, and passes the rest on:
//
//   - limits: [Limit], [NewQuotas], [LimitDevice];
//   - debugging: [Track], [Guard], [Log], [Zero];
//   - sizes: [Align], [Binning], [Slab], [NewTracked];
//   - requests without room: [NewRetry], [FallingBack];
//   - figures: [Measure];
//   - lifetimes: [Scope], [Typed], [Prefetch].
//
// Layers stack in any order, and [mem.Find] finds each in the stack:
//
//	a = layer.Track(layer.Limit(a, 4<<30), layer.TrackOptions{})
//
// A layer is as safe for concurrent use as the allocator below it. Blocks that a layer returns are freed through that
// layer.
package layer
