package replay_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

// The memory that a comparison allocates grows with the number of streams, and of pools, and no faster.
func TestMemoryIsLinearInStreamsAndPools(t *testing.T) {
	for where, each := range map[string]string{"on=s%d": "streams", "pool=%d,1": "pools"} {
		took := func(n int) uint64 {
			var text strings.Builder
			for i := range n {
				fmt.Fprintf(&text, "alloc b%d 512 "+where+"\n", i, i)
			}
			s, err := trace.ParseScript(text.String())
			testkit.Must(t, err)
			w, err := replay.ScriptWork(s)
			testkit.Must(t, err)
			before := testkit.Allocated()
			_, err = replay.Compare(w, replay.CompareOptions{})
			testkit.Must(t, err)
			return uint64(testkit.Allocated() - before)
		}
		took(10)
		if few, many := took(500), took(2000); many > 6*few {
			t.Errorf("500 %s take %d bytes, 2,000 take %d", each, few, many)
		}
	}
}
