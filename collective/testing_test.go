package collective

import (
	"context"
	crand "crypto/rand"
	"encoding/hex"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/compute/host"
	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/tensor"
	"github.com/ashlar-go/ashlar/tensor/tensortest"
)

// bound is longer than any test here takes: a test that reaches it hangs.
const bound = 30 * time.Second

// open is tensortest.Open for places whose streams may have failed on purpose: only leaks count.
func open(t testing.TB, spec string) *tensor.Place {
	t.Helper()
	dev, err := driver.Open(spec)
	if err != nil {
		t.Fatal(err)
	}
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		t.Fatal(err)
	}
	b := host.New(dev, host.Options{})
	p := tensor.NewPlace(tensor.Config{Device: dev, Allocator: a, Backend: b, Sites: true})
	t.Cleanup(func() {
		if leaks := p.Leaks(); leaks.Count > 0 {
			t.Error(leaks)
		}
		p.Close()
		b.Close()
		a.Close()
		dev.Close()
	})
	return p
}

// meetingPoint is the configuration of a meeting that no other test or program takes part in.
func meetingPoint(t testing.TB, size int) Config {
	t.Helper()
	id := make([]byte, 8)
	if _, err := crand.Read(id); err != nil {
		t.Fatal(err)
	}
	address := net.JoinHostPort("127.0.0.1", strconv.Itoa(testkit.Ports(t, portSpan)))
	return Config{Size: size, Address: address, Ports: portSpan, ID: t.Name() + hex.EncodeToString(id), Timeout: bound}
}

// joined brings size ranks on the host together over TCP. They are closed at the end of the test.
func joined(t testing.TB, size int) []*Communicator {
	t.Helper()
	noLeaks(t)
	cfg := meetingPoint(t, size)
	comms, errs := make([]*Communicator, size), make([]error, size)
	places := make([]*tensor.Place, size)
	for i := range places {
		places[i] = open(t, "host")
	}
	each(size, func(rank int) {
		c := cfg
		c.Rank = rank
		comms[rank], errs[rank] = Join(context.Background(), places[rank], c)
	})
	t.Cleanup(func() { closeAll(t, comms) })
	for _, err := range errs {
		if err != nil {
			t.Fatal(err)
		}
	}
	return comms
}

// local returns the communicators of ranks on devices of their own in this process.
func local(t testing.TB, spec string, size int) []*Communicator {
	t.Helper()
	noLeaks(t)
	places := make([]*tensor.Place, size)
	for i := range places {
		places[i] = tensortest.Open(t, spec)
	}
	comms, err := Local(places...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeAll(t, comms) })
	return comms
}

// closeAll closes all, as ranks do: at the same time. A communicator that has failed says so again.
func closeAll(t testing.TB, comms []*Communicator) {
	each(len(comms), func(rank int) {
		if c := comms[rank]; c != nil {
			failed := c.Err()
			if err := c.Close(); err != nil && failed == nil {
				t.Errorf("rank %d: Close: %v", rank, err)
			}
		}
	})
}

// each runs f for every rank at the same time.
func each(size int, f func(rank int)) {
	var ranks sync.WaitGroup
	for rank := range size {
		ranks.Go(func() { f(rank) })
	}
	ranks.Wait()
}

// on is each for communicators; an error of any rank fails the test.
func on(t testing.TB, comms []*Communicator, f func(c *Communicator) error) {
	t.Helper()
	each(len(comms), func(rank int) {
		if err := f(comms[rank]); err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	})
	if t.Failed() {
		t.FailNow()
	}
}

// noLeaks checks, when everything else is cleaned up, that no goroutine of these packages is left.
func noLeaks(t testing.TB) {
	t.Cleanup(func() {
		if text := goroutinesLeft(); text != "" {
			t.Errorf("goroutines are left:\n%s", text)
		}
	})
}

// goroutinesLeft waits until no goroutine of these packages is left but those of tests and main. It returns the stacks
// of those that do not end.
func goroutinesLeft() string {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	stacks := make([]byte, 1<<20)
	for {
		text := string(stacks[:runtime.Stack(stacks, true)])
		count := 0
		for g := range strings.SplitSeq(text, "\n\n") {
			if strings.Contains(g, "ashlar/collective") && !strings.Contains(g, "testing.") && !strings.Contains(g, "main.main") {
				count++
			}
		}
		if count == 0 {
			return ""
		}
		if ctx.Err() != nil {
			return text
		}
		runtime.Gosched() // those that end are about to
	}
}
