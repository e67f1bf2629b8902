package verify_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/replay/verify"
	"github.com/ashlar-go/ashlar/snapshot"
)

// The limits under which the files of testdata/traces were recorded; see its README.
var recordedLimits = map[string]string{"gpt2.oom": "18.2GiB", "unet.gc6": "9.5GiB"}

// Every real recording must be followed to the byte: each address, each segment event, the peaks, the out-of-memory
// event, and the final state block by block.
func TestVerifyIsExactOnRealTraces(t *testing.T) {
	files, err := filepath.Glob("../../testdata/traces/*.pickle.zst")
	if err != nil || len(files) != 13 {
		t.Fatalf("found %d traces, want 13: %v", len(files), err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".pickle.zst")
		s, err := snapshot.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		limits := []string{"0"}
		if l := recordedLimits[name]; l != "" {
			limits = append(limits, l) // with the limit given, and found from the recording
		}
		for _, l := range limits {
			t.Run(name+"/limit="+l, func(t *testing.T) {
				limit, err := bytesize.Parse(l)
				if err != nil {
					t.Fatal(err)
				}
				v, err := verify.Verify(s, verify.Options{Limit: limit})
				if err != nil {
					t.Fatal(err)
				}
				if !v.Exact {
					t.Errorf("not exact: %v\n%+v", v.Difference, v)
				}
			})
		}
	}
}
