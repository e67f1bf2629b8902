package main

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Lines and scripts of a file, which is read twice, are those of standard input, which is read whole: of recordings with
// and without failures, contradictory entries and unknown actions.
func TestExportsOfStreams(t *testing.T) {
	paths, err := filepath.Glob(traces + "*.pickle.zst")
	if err != nil || len(paths) == 0 {
		t.Fatal(err)
	}
	bad := append(smallHistory(), entry("free_completed", base, 4*mib, 6), entry("weird", 0, 0, 6))
	noFrees := smallHistory()[:2]
	paths = append(paths, smallSnapshot(t, "", bad), smallSnapshot(t, "", noFrees), smallSnapshot(t, "", nil))
	for _, path := range paths {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, to := range []string{"script", "jsonl"} {
			if to == "jsonl" && len(b) > 1<<20 {
				continue // their lines are long
			}
			streamed, whole := ashlar(t, nil, "export", "--to", to, path), ashlar(t, b, "export", "--to", to, "-")
			if streamed.out != whole.out || streamed.code != whole.code {
				t.Errorf("%s to %s: exit code %d and %d bytes, want %d and %d", path, to, streamed.code,
					len(streamed.out), whole.code, len(whole.out))
			}
		}
	}
}

// Exported lines and scripts keep no events of a recording of one device.
func TestExportReadsStreams(t *testing.T) {
	for _, to := range []string{"jsonl", "script"} {
		p := newProgress(io.Discard, "")
		c := exportCmd{To: to, Snapshot: sample("gpt2"), Ordinal: -1}
		in, err := c.readStreamed(c.Snapshot, nil, p)
		p.end()
		if err != nil || in.streamed == nil || in.streamed.Events == 0 || in.snapshot.Traces[0].Len() != 0 {
			t.Errorf("%s: %v: %+v", to, err, in.streamed)
		}
	}
}

// A file that changes between the readings is an error, and so is an output that takes no more.
func TestStreamedExportsFail(t *testing.T) {
	for _, to := range []string{"jsonl", "script"} {
		path := smallSnapshot(t, "", smallHistory())
		p := newProgress(io.Discard, "")
		c := exportCmd{To: to, Snapshot: path, Ordinal: -1}
		in, err := c.readStreamed(path, nil, p)
		if err != nil {
			t.Fatal(err)
		}
		if err := in.streamed.write(&brokenWriter{err: io.ErrClosedPipe}, p); !errors.Is(err, io.ErrClosedPipe) {
			t.Errorf("%s to a closed pipe: %v", to, err)
		}
		history := append(smallHistory(), entry("alloc", base+8*mib, mib, 9))
		in.streamed.path = smallSnapshot(t, "", history)
		var out bytes.Buffer
		if err := in.streamed.write(&out, p); err == nil || !strings.Contains(err.Error(), "changed") {
			t.Errorf("%s of a file that changed: %v", to, err)
		}
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		in.streamed.path = path
		if err := in.streamed.write(&out, p); !errors.Is(err, os.ErrNotExist) && (err == nil || !strings.Contains(err.Error(), "no such file")) {
			t.Errorf("%s of a file that is gone: %v", to, err)
		}
		p.end()
	}
}

// A hyphen is standard input, also beside a file with that name.
func TestStandardInputIsNoFile(t *testing.T) {
	b, err := os.ReadFile(smallSnapshot(t, "", smallHistory()))
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(t.TempDir())
	if err := os.WriteFile("-", []byte("no trace"), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"info"}, {"export", "--to", "jsonl"}, {"export", "--to", "script"}} {
		if r := ashlar(t, b, append(args, "-")...); r.code != exitOK {
			t.Errorf("%v: exit code %d, %s", args, r.code, r.err)
		}
	}
}

// A file that is gone, or that cannot be opened, when it is read is an error.
func TestStreamedFileCannotBeOpened(t *testing.T) {
	p := newProgress(io.Discard, "")
	defer p.end()
	c := exportCmd{To: "jsonl", Snapshot: smallSnapshot(t, "", smallHistory()), Ordinal: -1}
	if _, err := c.readStreamed(filepath.Join(t.TempDir(), "gone"), nil, p); err == nil {
		t.Error("a file that is gone is read")
	}
}
