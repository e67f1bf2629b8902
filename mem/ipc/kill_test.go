//go:build linux

package ipc_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
)

var (
	kills = flag.Int("kills", 12, "processes that TestImportersAreKilled and TestExportersAreKilled kill, each")
	seed  = flag.Uint64("seed", 1, "of the random tests")
)

// random is a generator whose seed is reported if the test fails.
func random(t *testing.T) *rand.Rand {
	t.Logf("-seed=%d", *seed)
	return rand.New(rand.NewPCG(*seed, 0))
}

// mappings counts the places at which this process has memory that can be shared.
func mappings(t *testing.T) int {
	t.Helper()
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(maps), "/memfd:ashlar-")
}

// Importers are killed at random points. The exporter loses no memory, and does not count dead importers.
func TestImportersAreKilled(t *testing.T) {
	rng := random(t)
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	files, mapped := len(openFiles()), mappings(t)
	pages, at := export(t, d, nil)
	handles, there := export(t, d, &ipc.Options{Handles: true})
	exporters := [2]*ipc.Exporter{pages, handles}
	type owned struct {
		mem.Block
		way int
	}
	var blocks []owned
	var children []*process
	change := func() { // one block comes, of those that are there one perhaps goes
		if len(blocks) > 8 || len(blocks) > 0 && rng.IntN(3) == 0 {
			n := rng.IntN(len(blocks))
			exporters[blocks[n].way].Free(blocks[n].Block)
			blocks = slices.Delete(blocks, n, n+1)
		}
		way := rng.IntN(2)
		b, err := exporters[way].Alloc(d.DefaultStream(), 1+rng.Int64N(100_000))
		if err != nil {
			t.Fatal(err)
		}
		blocks = append(blocks, owned{b, way})
		for _, c := range children {
			c.tell(t, fmt.Sprint(way, " ", exporters[way].Ticket(b)))
		}
	}
	for killed := 0; killed < *kills; {
		for len(children) < 3 {
			children = append(children, start(t, "churn", at, there, strconv.FormatUint(rng.Uint64(), 10)))
		}
		for range rng.IntN(30) {
			change()
			children[rng.IntN(len(children))].hear(t)
		}
		n := rng.IntN(len(children))
		children[n].kill(t)
		children = slices.Delete(children, n, n+1)
		killed++
	}
	for _, c := range children {
		c.kill(t)
	}
	for _, b := range blocks {
		if err := exporters[b.way].Wait(t.Context(), b.Block); err != nil {
			t.Error(err)
		}
		exporters[b.way].Free(b.Block)
	}
	if err := errors.Join(pages.Close(), handles.Close(), whole(d)); err != nil {
		t.Error(err)
	}
	if f, m := openFiles(), mappings(t); len(f) != files || m != mapped {
		t.Errorf("%d files open, %d before; %d mappings, %d before: %v", len(f), files, m, mapped, f)
	}
}

// churnRole opens and closes blocks of two exporters by the tickets it is given, and prints a line for each action.
func churnRole(args []string) error {
	d, err := driver.Open("host:total=64MiB")
	if err != nil {
		return err
	}
	var importers [2]*ipc.Importer
	for n := range importers {
		if importers[n], err = ipc.Dial(context.Background(), d, args[n]); err != nil {
			return err
		}
	}
	s, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(s, 0))
	type opened struct {
		mem.Block
		way int
	}
	var open []opened
	lines := bufio.NewScanner(os.Stdin)
	fmt.Println("ready")
	for lines.Scan() {
		way, ticket := int(lines.Text()[0]-'0'), lines.Text()[2:]
		t, err := ipc.ParseTicket(ticket)
		if err != nil {
			return err
		}
		for range 1 + rng.IntN(3) {
			b, err := importers[way].Open(context.Background(), t)
			switch {
			case err == nil:
				open = append(open, opened{b, way})
				if err := putNumber(d, b.Ptr, s); err != nil {
					return err
				}
			case errors.Is(err, ipc.ErrTicket), errors.Is(err, driver.ErrInvalid): // freed in between
			default:
				return err
			}
		}
		for len(open) > 0 && rng.IntN(3) > 0 {
			n := rng.IntN(len(open))
			if err := importers[open[n].way].Close(open[n].Block, d.DefaultStream()); err != nil {
				return err
			}
			open = slices.Delete(open, n, n+1)
		}
		fmt.Println("done")
	}
	return lines.Err()
}

// Exporters are killed at random points. Their importer learns of it and keeps the contents of its open blocks, and
// nothing remains of the exporters when it ends.
func TestExportersAreKilled(t *testing.T) {
	rng := random(t)
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	files, mapped := len(openFiles()), mappings(t)
	for n := range *kills {
		at, there := filepath.Join(t.TempDir(), "s"), filepath.Join(t.TempDir(), "s")
		source := start(t, "source", at, there, strconv.FormatUint(rng.Uint64(), 10))
		source.hear(t)
		importers := [2]*ipc.Importer{dial(t, d, at), dial(t, d, there)}
		open := map[mem.Block]ipc.Ticket{}
		way := map[mem.Block]int{}
		doomed := 5 + rng.IntN(40)
		for line := range doomed + 5 {
			text := ""
			if line < doomed {
				text = source.hear(t)
			} else if text, _ = source.out.ReadString('\n'); text == "" {
				break
			}
			if line == doomed {
				if err := source.cmd.Process.Kill(); err != nil { // and it goes on with what it said before
					t.Fatal(err)
				}
			}
			w := int(text[0] - '0')
			ticket, err := ipc.ParseTicket(strings.TrimSpace(text[2:]))
			if err != nil {
				t.Fatal(err)
			}
			b, err := importers[w].Open(context.Background(), ticket)
			switch {
			case err == nil:
				open[b], way[b] = ticket, w
			case errors.Is(err, ipc.ErrTicket), line >= doomed, errors.Is(err, driver.ErrInvalid):
			default:
				t.Fatal(err)
			}
			for b := range open {
				if rng.IntN(4) == 0 {
					if err := importers[way[b]].Close(b); err != nil {
						t.Fatal(err)
					}
					delete(open, b)
				}
			}
		}
		for _, i := range importers {
			<-i.Lost()
		}
		for b, ticket := range open {
			if got := get(t, d, b.Ptr, len(ticket)); got != string(ticket[:]) {
				t.Errorf("exporter %d: a block has %q in it, want %q", n, got, ticket[:])
			}
		}
		for _, i := range importers {
			if err := i.End(); err != nil {
				t.Error(err)
			}
		}
		if f, m := openFiles(), mappings(t); len(f) != files || m != mapped {
			t.Fatalf("exporter %d: %d files open, %d before; %d mappings, %d before: %v", n, len(f), files, m, mapped, f)
		}
	}
}

// sourceRole exports blocks that contain their tickets, prints the tickets, and frees the blocks some time later.
func sourceRole(args []string) error {
	d, err := driver.Open("host:total=64MiB")
	if err != nil {
		return err
	}
	var exporters [2]*ipc.Exporter
	for n := range exporters {
		l, err := ipc.Listen(args[n])
		if err != nil {
			return err
		}
		if exporters[n], err = ipc.NewExporter(d, l, &ipc.Options{Handles: n == 1}); err != nil {
			return err
		}
	}
	s, err := strconv.ParseUint(args[2], 10, 64)
	if err != nil {
		return err
	}
	rng := rand.New(rand.NewPCG(s, 0))
	type owned struct {
		mem.Block
		way int
	}
	var blocks []owned
	fmt.Println("ready")
	for {
		way := rng.IntN(2)
		b, err := exporters[way].Alloc(d.DefaultStream(), 1+rng.Int64N(100_000))
		if err != nil && !errors.Is(err, mem.ErrNoMemory) { // handles that are open there are memory here
			return err
		}
		if err == nil {
			ticket := exporters[way].Ticket(b)
			if err := errors.Join(d.DefaultStream().CopyIn(b.Ptr, ticket[:]), d.DefaultStream().Sync(context.Background())); err != nil {
				return err
			}
			blocks = append(blocks, owned{b, way})
			fmt.Println(way, ticket)
		}
		for len(blocks) > 6 || len(blocks) > 0 && err != nil {
			n := rng.IntN(len(blocks))
			exporters[blocks[n].way].Free(blocks[n].Block)
			blocks = slices.Delete(blocks, n, n+1)
		}
	}
}
