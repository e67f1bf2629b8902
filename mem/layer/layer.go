// Package layer has allocators over allocators. Each wraps any [mem.Allocator], adds one thing, and passes the rest on:
//
//   - limits: [NewLimiter], [NewQuotas], [NewLimitedDevice];
//   - tenants that cannot read each other's bytes: [NewIsolatedQuotas], [NewTenantDevice];
//   - debugging: [NewLeakTracker], [NewGuard], [NewLogger], [NewZeroer];
//   - sizes: [NewAligner], [NewBinning], [NewSlabs], [NewSizeTracker];
//   - requests without room: [NewRetry], [NewFallback];
//   - figures: [NewCounter];
//   - lifetimes: [NewScope], [NewTyped], [NewPrefetcher].
//
// Layers stack in any order, and [mem.Find] finds each in the stack:
//
//	a = layer.NewLeakTracker(layer.NewLimiter(a, 4<<30), layer.LeakTrackerOptions{})
//
// A layer is as safe for concurrent use as the allocator below it. Blocks that a layer returns are freed through that
// layer.
package layer

// Locks: those of layers are leaves, not held while the allocator below is called. Guard holds its lock while it checks
// blocks on demand, and Logger holds its lock while its writer writes.
