package collective

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
)

// joins lets the given ranks join with their configurations, and returns each one's result.
func joins(t *testing.T, ctx context.Context, configs ...Config) []error {
	t.Helper()
	noLeaks(t)
	errs := make([]error, len(configs))
	comms := make([]*Communicator, len(configs))
	each(len(configs), func(i int) { comms[i], errs[i] = Join(ctx, open(t, "host"), configs[i]) })
	closeAll(t, comms)
	return errs
}

// as returns cfg as another rank, with a limit that is to pass.
func (c Config) as(rank int, limit time.Duration) Config {
	c.Rank, c.Timeout = rank, limit
	return c
}

// Every rank that joined gets the missing ranks, whichever rank is the first that waits no longer.
func TestMissingRanks(t *testing.T) {
	for name, first := range map[string]int{"rank 0 first": 0, "another first": 2} {
		t.Run(name, func(t *testing.T) {
			noLeaks(t)
			cfg, present := meetingPoint(t, 6), []int{0, 2, 5}
			cause := errors.New("out of patience")
			patience, cancel := context.WithCancelCause(t.Context())
			errs := make([]error, len(present))
			var ranks sync.WaitGroup
			for i, rank := range present {
				ranks.Go(func() {
					ctx := t.Context()
					if rank == first {
						ctx = patience
					}
					_, errs[i] = Join(ctx, open(t, "host"), cfg.as(rank, bound))
				})
			}
			untilAccepted(t, len(present)-1)
			cancel(cause)
			ranks.Wait()
			for i, err := range errs {
				var e *JoinError
				if !errors.As(err, &e) || !errors.Is(err, ErrJoin) || !slices.Equal(e.Missing, []int{1, 3, 4}) {
					t.Errorf("rank %d: %v", present[i], err)
					continue
				}
				if text := err.Error(); !strings.Contains(text, cause.Error()) || !strings.HasSuffix(text, "missing: ranks 1, 3, 4") {
					t.Errorf("rank %d: %v", present[i], err)
				}
			}
		})
	}
}

// untilAccepted returns when rank 0 has accepted n ranks and they wait for the others.
func untilAccepted(t *testing.T, n int) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bound)
	defer cancel()
	stacks := make([]byte, 1<<20)
	for bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("rendezvous.awaitStart(")) < n {
		if ctx.Err() != nil {
			t.Error("hung")
			return
		}
		runtime.Gosched()
	}
}

func TestNoRankZero(t *testing.T) {
	cfg := meetingPoint(t, 2)
	var e *JoinError
	err := joins(t, context.Background(), cfg.as(1, 50*time.Millisecond))[0]
	if !errors.As(err, &e) || !slices.Equal(e.Missing, []int{0}) || !strings.Contains(err.Error(), "the 2 ranks were not together within 50ms") {
		t.Errorf("got %v", err)
	}
}

// Mismatched configurations are reported at once, to all ranks.
func TestJoinDoesNotFit(t *testing.T) {
	cfg := meetingPoint(t, 2)
	gpu := cfg.as(0, bound)
	gpu.Backend = NCCL
	other := cfg.as(1, bound)
	other.Backend = Host
	for i, err := range joins(t, context.Background(), gpu, other) {
		if !errors.Is(err, ErrJoin) || !strings.Contains(err.Error(), `was told to use backend "host", and rank 0 "nccl"`) {
			t.Errorf("join %d: %v", i, err)
		}
	}
	other.Backend = NCCL
	for i, err := range joins(t, context.Background(), gpu, other) {
		if !errors.Is(err, ErrJoin) || !strings.Contains(err.Error(), `backend "nccl" wants every rank on a CUDA device: rank 0 on `) {
			t.Errorf("join %d: %v", i, err)
		}
	}
}

func TestDecide(t *testing.T) {
	gpu := func(rank int, uuid, library string) rendezvous.Peer {
		return rendezvous.Peer{Rank: rank, Host: fmt.Sprint("node", rank/2), Driver: cuda, Device: "H200", UUID: uuid, Library: library, Lacks: "tried libnccl.so.2"}
	}
	for name, test := range map[string]struct {
		peers []rendezvous.Peer
		text  string
	}{
		"one GPU":  {[]rendezvous.Peer{gpu(0, "GPU-1", "2.28.9"), gpu(1, "GPU-2", "2.28.9"), gpu(2, "GPU-1", "2.28.9")}, "ranks 0 and 2 are both on H200 (GPU-1) of node1: want a GPU for each"},
		"versions": {[]rendezvous.Peer{gpu(0, "GPU-1", "2.28.9"), gpu(1, "GPU-2", "2.27.3")}, "rank 1 on node0 has NCCL 2.27.3, and rank 0 on node0 2.28.9: want one version"},
		"no NCCL":  {[]rendezvous.Peer{gpu(0, "GPU-1", "2.28.9"), gpu(1, "GPU-2", "")}, `NCCL is missing; backend "host" works without it, with copies through the host: rank 1 on node0: tried libnccl.so.2`},
	} {
		if _, err := decide(Config{}, test.peers); err == nil || err.Error() != test.text {
			t.Errorf("%s: %v", name, err)
		}
	}
	mixed := []rendezvous.Peer{gpu(0, "GPU-1", "2.28.9"), {Rank: 1, Driver: "host"}}
	if d, err := decide(Config{}, mixed); err != nil || string(d) != `{"Backend":"host","ID":null}` {
		t.Errorf("a GPU and a host: %s, %v", d, err)
	}
}

func TestConfigRefused(t *testing.T) {
	good := Config{Size: 2, Address: "localhost:29500"}
	for want, change := range map[string]func(*Config){
		"a size of 0 ranks":                       func(c *Config) { c.Size = 0 },
		"rank 2 of 2":                             func(c *Config) { c.Rank = 2 },
		"a timeout of -1ns":                       func(c *Config) { c.Timeout = -1 },
		"an ID of 300 bytes":                      func(c *Config) { c.ID = strings.Repeat("x", 300) },
		`backend "gloo"`:                          func(c *Config) { c.Backend = "gloo" },
		`address "localhost"`:                     func(c *Config) { c.Address = "localhost" },
		`address ":29500" with 0 ports`:           func(c *Config) { c.Address = ":29500" },
		`address "localhost:65535" with 2 ports`:  func(c *Config) { c.Address, c.Ports = "localhost:65535", 2 },
		`address "localhost:29500" with -1 ports`: func(c *Config) { c.Ports = -1 },
	} {
		c := good
		change(&c)
		if _, err := Join(context.Background(), open(t, "host"), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

// The error of a failed meeting lists what is known, and nothing else.
func TestJoinErrorText(t *testing.T) {
	late := errors.New("too late")
	for want, e := range map[string]*JoinError{
		"collective: join: too late":                         {Err: late},
		"collective: join at a:1: too late; missing: rank 3": {Address: "a:1", Missing: []int{3}, Err: late},
		"collective: join: too late; missing: ranks 3, 5":    {Missing: []int{5, 3}, Err: late},
		"collective: join: too late; turned away: x":         {Refused: []string{"x"}, Err: late},
		"collective: join: too late; missing: rank 3; turned away: x; y": {
			Missing: []int{3}, Refused: []string{"x", "y"}, Err: late,
		},
	} {
		if got := e.Error(); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestRanksText(t *testing.T) {
	for want, list := range map[string][]int{
		"rank 3": {3}, "ranks 1, 2": {2, 1}, "ranks 0 to 2, 4, 6 to 9": {0, 1, 2, 4, 6, 7, 8, 9},
	} {
		if got := ranks(list); got != want {
			t.Errorf("%v: %q, want %q", list, got, want)
		}
	}
}
