package safetensors

import (
	"testing"

	"github.com/ashlar-go/ashlar/tensor/internal/transfer"
)

// Many small tensors are brought into memory together, large ones each by itself, and all in their order.
func TestDefect26_SmallTensorsAreReadTogether(t *testing.T) {
	pieces := make([]piece, 0, 300_100)
	for range 300_000 {
		pieces = append(pieces, piece{n: 4})
	}
	for range 100 {
		pieces = append(pieces, piece{n: transfer.Piece})
	}
	for i := range pieces {
		pieces[i].at = int64(i)
	}
	work := batches(pieces)
	if most := 300_000/batchPieces + 1 + 100; len(work) > most {
		t.Errorf("%d batches: want at most %d", len(work), most)
	}
	next := int64(0)
	for _, b := range work {
		var bytes int64
		for i := range b {
			if b[i].at != next {
				t.Fatalf("piece %d comes where %d should", b[i].at, next)
			}
			next++
			bytes += b[i].n
		}
		if bytes > transfer.Piece || len(b) == 0 {
			t.Errorf("a batch of %d pieces and %d bytes", len(b), bytes)
		}
	}
	if int(next) != len(pieces) || batches(nil) != nil {
		t.Errorf("%d pieces of %d; of none: %v", next, len(pieces), batches(nil))
	}
}
