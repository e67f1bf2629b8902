package snapshot

import (
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/pickle"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// A file whose stacks have more than 2^32 frames in all is refused, because their numbers have 32 bits.
func TestStacksHaveAtMostSoManyFrames(t *testing.T) {
	type d = snapshottest.D
	frame := d{"name", "f", "filename", "x.py", "line", 1}
	file := snapshottest.Pickle(snapshottest.L{frame}, 4)
	for before, refused := range map[int]bool{0: false, math.MaxUint32 - 1: false, math.MaxUint32: true} {
		im := newImporter(Limits{}.withDefaults(), nil, readOptions{})
		doc, err := pickle.Read(strings.NewReader(string(file)), pickle.Options{Fold: im.foldDict})
		if err != nil {
			t.Fatal(err)
		}
		im.doc, im.stacks.refs = doc, before
		_, err = im.newStack(doc.Items(doc.Root()))
		var invalid *Error
		if errors.As(err, &invalid) != refused || !refused && err != nil {
			t.Errorf("after %d frames: %v", before, err)
		}
	}
}
