package workloads

import (
	"fmt"
	"hash/crc64"
	"testing"
)

// Figures are compared by a workload and its seed, so the programs stay the same from version to version. A change of a
// model changes the sums here, and figures of it are measured again.
func TestProgramsStayTheSame(t *testing.T) {
	sums := map[string]string{
		"checkpoint":     "a625bbdcf5340edf",
		"decode":         "a3b177b60510928d",
		"gnn":            "e5fc7e5240d05b33",
		"moe":            "ba4508a9fe3095c2",
		"prefetch":       "68fc14037ce4538d",
		"serving":        "2db45776967a7fd6",
		"serving-blocks": "9eabd1f55bbcfcb9",
		"sharded":        "5d118e5c99a344dc",
	}
	for _, w := range All() {
		t.Run(w.Name, func(t *testing.T) {
			sum := crc64.New(crc64.MakeTable(crc64.ECMA))
			for _, op := range w.Program(1).Ops {
				fmt.Fprintln(sum, op.Kind, op.Block, op.Stream, op.Size)
			}
			if got := fmt.Sprintf("%016x", sum.Sum64()); got != sums[w.Name] {
				t.Errorf("the program of seed 1 has the sum %s, want %s", got, sums[w.Name])
			}
		})
	}
}
