// Package zeroed lets layers that reuse memory refuse an allocator that zeroes its blocks, for each request or for each
// tenant: above it, requests would get memory of earlier ones, with the contents.
package zeroed

import "errors"

// By is implemented by allocators that zero their blocks: see mem.Find.
type By interface{ ZeroesBlocks() }

// Err is the reason to refuse one.
var Err = errors.New("above a layer.Zeroer or a layer.TenantRouter, memory would be reused with the contents of " +
	"earlier blocks: put that on top")
