package dropin

import (
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem"
)

// allocTagged allocates memory with a tag on stream 7 of the first device.
func allocTagged(t *testing.T, p *Process, tag string, size uint64) driver.Pointer {
	t.Helper()
	n, err := p.Tag(tag)
	testkit.Must(t, err)
	at, err := p.AllocTagged(0, 7, size, n)
	testkit.Must(t, err)
	return at
}

// reserved returns the bytes that the first device's allocator has.
func reserved(t *testing.T, p *Process) int64 {
	t.Helper()
	s, err := p.Stats(0)
	testkit.Must(t, err)
	return s.ReservedBytes.All.Current
}

// The memory of a tag is paused and resumed by itself: while it is paused other memory is used, also for new blocks.
func TestTagsArePausedByThemselves(t *testing.T) {
	p, dev := newProcess(t, "")
	other := alloc(t, p, 7, 3*mib)
	weights, cache := allocTagged(t, p, "weights", 20*mib), allocTagged(t, p, "cache", 6*mib)
	s := dev.streams[7]
	for at, value := range map[driver.Pointer]byte{other: 1, weights: 2, cache: 3} {
		testkit.Must(t, s.Fill(at, value, 3*mib))
	}
	all := reserved(t, p)
	testkit.Must(t, p.Pause(0, "weights", false))
	testkit.Must(t, p.Pause(0, "cache", true))
	if paused, host, err := p.PauseInfo(0); paused != 26*mib || host != 20*mib || err != nil {
		t.Errorf("%d bytes are paused with %d bytes of host memory, error %v", paused, host, err)
	}
	if got := reserved(t, p); got != all-26*mib {
		t.Errorf("reserved were %d bytes, now %d", all, got)
	}
	segments, err := p.Snapshot(0)
	testkit.Must(t, err)
	for _, seg := range segments {
		if seg.Paused {
			t.Errorf("the snapshot has a segment without memory: %+v", seg)
		}
	}
	testkit.Must(t, p.Free(alloc(t, p, 7, 8*mib)))
	n, _ := p.Tag("weights")
	if _, err := p.AllocTagged(0, 7, 1, n); !errors.Is(err, ErrInvalid) {
		t.Errorf("a request for paused memory: %v", err)
	}
	if err := p.Pause(0, "weights", false); !errors.Is(err, ErrInvalid) {
		t.Errorf("a second Pause: %v", err)
	}
	testkit.Must(t, p.Free(cache))
	testkit.Must(t, p.Resume(0, "weights", true))
	if _, host, _ := p.PauseInfo(0); host != 20*mib {
		t.Errorf("%d bytes of host memory are kept", host)
	}
	testkit.Must(t, p.Resume(0, "cache", false))
	if _, host, _ := p.PauseInfo(0); host != 0 {
		t.Errorf("%d bytes of host memory are left", host)
	}
	for at, value := range map[driver.Pointer]byte{other: 1, weights: 2} {
		got := make([]byte, 3*mib)
		testkit.Must(t, s.CopyOut(got, at))
		if n := strings.Count(string(got), string([]byte{value})); n != len(got) {
			t.Errorf("the block %#x: %d bytes of %d are %d", uint64(at), n, len(got), value)
		}
	}
	testkit.Must(t, errors.Join(p.Free(other), p.Free(weights), p.EmptyCache(0)))
	if got := reserved(t, p); got != 0 {
		t.Errorf("%d bytes are reserved at the end", got)
	}
}

// Without a tag, all memory is paused.
func TestAllMemoryIsPaused(t *testing.T) {
	p, dev := newProcess(t, "")
	other, weights := alloc(t, p, 7, 3*mib), allocTagged(t, p, "weights", 2*mib)
	testkit.Must(t, dev.streams[7].Fill(weights, 9, 2*mib))
	testkit.Must(t, p.Pause(0, "", false))
	if got := reserved(t, p); got != 0 {
		t.Errorf("%d bytes are reserved", got)
	}
	if _, err := p.Alloc(0, 7, 1); !errors.Is(err, ErrInvalid) {
		t.Errorf("a request: %v", err)
	}
	if err := p.Resume(0, "weights", false); !errors.Is(err, ErrInvalid) {
		t.Errorf("Resume of a part: %v", err)
	}
	testkit.Must(t, p.Resume(0, "", false))
	got := make([]byte, 1)
	testkit.Must(t, dev.streams[7].CopyOut(got, weights+mib))
	if got[0] != 9 {
		t.Errorf("a byte is %d after Resume", got[0])
	}
	testkit.Must(t, errors.Join(p.Free(other), p.Free(weights)))
}

// What cannot be paused is an error that says why.
func TestPausesThatAreRefused(t *testing.T) {
	p, _ := newProcess(t, "host:4MiB")
	at := allocTagged(t, p, "weights", 6*mib)
	testkit.Must(t, p.Pin(at))
	for name, c := range map[string]struct {
		err, match error
		part       string
	}{
		"a tag without memory": {p.Pause(0, "weight", false), ErrInvalid, `"weight"`},
		"a pinned block":       {p.Pause(0, "weights", false), ErrInvalid, "pinned"},
		"a device":             {p.Pause(7, "weights", false), ErrInvalid, "device 7"},
	} {
		if !errors.Is(c.err, c.match) || !strings.Contains(c.err.Error(), c.part) {
			t.Errorf("%s: %v", name, c.err)
		}
	}
	testkit.Must(t, p.Unpin(at))
	if err := p.Pause(0, "weights", false); !errors.Is(err, mem.ErrNoMemory) && !errors.Is(err, driver.ErrNoMemory) {
		t.Errorf("Pause beyond the limit of host memory: %v", err)
	}
	testkit.Must(t, p.Pause(0, "weights", true))
	testkit.Must(t, p.Pause(1, "weights", false))
	testkit.Must(t, p.Resume(0, "weights", false))
	testkit.Must(t, p.Free(at))
	if _, err := p.Tag(""); !errors.Is(err, ErrInvalid) {
		t.Errorf("a tag without a name: %v", err)
	}

	q, _ := newProcess(t, "backend:caching")
	n, err := q.Tag("weights")
	testkit.Must(t, err)
	if _, err := q.AllocTagged(0, 7, 1, n); !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), "paged") {
		t.Errorf("a tag with the backend caching: %v", err)
	}
}

// Cached memory of a tag makes room for other requests.
func TestCachedMemoryOfTagsServesOthers(t *testing.T) {
	p, _ := newProcess(t, "limit:64MiB")
	testkit.Must(t, p.Free(allocTagged(t, p, "weights", 50*mib)))
	testkit.Must(t, p.Free(alloc(t, p, 7, 60*mib)))
	testkit.Must(t, p.Free(allocTagged(t, p, "weights", 50*mib)))
}

// A process can be closed while memory is paused.
func TestCloseWhilePaused(t *testing.T) {
	for _, tag := range []string{"", "weights"} {
		p, _ := newProcess(t, "")
		at := allocTagged(t, p, "weights", 5*mib)
		testkit.Must(t, p.Pause(0, tag, false))
		testkit.Must(t, p.Free(at)) // Close is called at the end of the test
	}
}

// A pause does not use an external stream, which its owner may have destroyed.
func TestPausesDoNotUseExternalStreams(t *testing.T) {
	p, dev := newProcess(t, "")
	other, weights := alloc(t, p, 7, mib), allocTagged(t, p, "weights", 2*mib)
	testkit.Must(t, p.RecordStream(other, 9, true))
	testkit.Must(t, p.Free(other))
	dev.gone = 9
	for _, tag := range []string{"weights", ""} {
		testkit.Must(t, p.Pause(0, tag, false))
		testkit.Must(t, p.Resume(0, tag, false))
	}
	testkit.Must(t, p.Free(weights))
}

// The cached memory of one tag serves another one before a request fails.
func TestTagsGetCachedMemoryOfOthers(t *testing.T) {
	p, _ := newProcess(t, "")
	for _, tag := range []string{"weights", "cache"} {
		testkit.Must(t, p.Free(allocTagged(t, p, tag, 200*mib)))
	}
}
