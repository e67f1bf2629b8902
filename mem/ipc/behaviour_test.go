//go:build linux

package ipc_test

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
)

var hands = flag.Int("hands", 2000, "blocks that TestBehaviour66 passes from process to process")

// The behaviours that PyTorch's tests of sharing between processes assert, under their numbers in docs/behaviours.md.

// putNumber and getNumber are a block's contents in these tests.
func putNumber(d driver.Device, p driver.Pointer, n uint64) error {
	s := d.DefaultStream()
	return errors.Join(s.CopyIn(p, binary.LittleEndian.AppendUint64(nil, n)), s.Sync(context.Background()))
}

func getNumber(d driver.Device, p driver.Pointer) (uint64, error) {
	var b [8]byte
	err := d.DefaultStream().CopyOut(b[:], p)
	return binary.LittleEndian.Uint64(b[:]), err
}

// each opens the blocks of the tickets that it reads from standard input, one per line, until the input ends.
func each(d driver.Device, path string, do func(p driver.Pointer) error) error {
	i, err := ipc.Dial(context.Background(), d, path)
	if err != nil {
		return err
	}
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		ticket, err := ipc.ParseTicket(lines.Text())
		if err != nil {
			return err
		}
		b, err := i.Open(context.Background(), ticket)
		if err != nil {
			return err
		}
		if err := errors.Join(do(b.Ptr), i.Close(b, d.DefaultStream())); err != nil {
			return err
		}
	}
	return errors.Join(lines.Err(), i.End())
}

// relayRole copies each block that it receives to a block of its own, exported at another path, and prints its ticket.
func relayRole(args []string) error {
	d, err := driver.Open("host:total=64MiB")
	if err != nil {
		return err
	}
	l, err := ipc.Listen(args[1])
	if err != nil {
		return err
	}
	e, err := ipc.NewExporter(d, l, nil)
	if err != nil {
		return err
	}
	fmt.Println("ready")
	var before mem.Block // the next process is done with it when this one is asked for the one after the next
	var last mem.Block
	return each(d, args[0], func(p driver.Pointer) error {
		n, err := getNumber(d, p)
		if err != nil {
			return err
		}
		e.Free(before)
		before = last
		if last, err = e.Alloc(d.DefaultStream(), 8); err != nil {
			return err
		}
		if err := putNumber(d, last.Ptr, n); err != nil {
			return err
		}
		fmt.Println(e.Ticket(last))
		return nil
	})
}

// sumRole prints the sum of the blocks so far after each one.
func sumRole(args []string) error {
	d, err := driver.Open("host:total=64MiB")
	if err != nil {
		return err
	}
	sum := uint64(0)
	return each(d, args[0], func(p driver.Pointer) error {
		n, err := getNumber(d, p)
		sum += n
		fmt.Println(sum)
		return err
	})
}

// Behaviour 66, and 67: each process waits for the one before it and hands over before it takes the next, so a lock-up
// would stop it.
func TestBehaviour66_ManyBlocksPassThroughThreeProcesses(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	second := filepath.Join(t.TempDir(), "second")
	relay := start(t, "relay", path, second)
	if relay.hear(t) != "ready" {
		t.Fatal("the relay did not start")
	}
	sum := start(t, "sum", second)
	total := uint64(0)
	for n := range *hands {
		b, err := e.Alloc(d.DefaultStream(), 8)
		if err != nil {
			t.Fatal(err)
		}
		if err := putNumber(d, b.Ptr, uint64(n)); err != nil {
			t.Fatal(err)
		}
		relay.tell(t, e.Ticket(b).String())
		sum.tell(t, relay.hear(t))
		total += uint64(n)
		if got := sum.hear(t); got != strconv.FormatUint(total, 10) {
			t.Fatalf("after block %d the last process has %s, want %d", n, got, total)
		}
		if err := e.Wait(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		e.Free(b)
	}
	if free, all, err := d.Available(); err != nil || free != all {
		t.Errorf("%d of %d bytes free in the end, %v", free, all, err)
	}
}

func TestBehaviour67_ProcessesThatExchangeBlocksDoNotLockUp(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	there := filepath.Join(t.TempDir(), "there")
	relay := start(t, "relay", path, there)
	relay.hear(t)
	i := dial(t, d, there)
	tickets := make(chan string, 4) // bounded: both ends fill and drain it
	go func() {
		for range 100 {
			b, err := e.Alloc(d.DefaultStream(), 8)
			if err != nil {
				t.Error(err)
				break
			}
			tickets <- e.Ticket(b).String()
		}
		close(tickets)
	}()
	n := 0
	for ticket := range tickets {
		relay.tell(t, ticket)
		back, err := ipc.ParseTicket(relay.hear(t))
		if err != nil {
			t.Fatal(err)
		}
		b, err := i.Open(context.Background(), back)
		if err != nil {
			t.Fatal(err)
		}
		if err := i.Close(b); err != nil {
			t.Fatal(err)
		}
		n++
	}
	if n != 100 {
		t.Errorf("%d blocks were exchanged", n)
	}
}

func TestBehaviour69_EmptyBlocksCanBeShared(t *testing.T) {
	d := drivertest.OpenDevice(t, "host:total=256MiB")
	e, path := export(t, d, nil)
	i := dial(t, d, path)
	empty, err := e.Alloc(d.DefaultStream(), 0)
	if err != nil {
		t.Fatal(err)
	}
	b, err := i.Open(context.Background(), e.Ticket(empty))
	if err != nil || b != (mem.Block{}) || e.Users(empty) != 0 {
		t.Errorf("the empty block is opened as %+v, with %d users: %v", b, e.Users(empty), err)
	}
	if err := errors.Join(i.Close(b), e.Wait(t.Context(), empty)); err != nil {
		t.Error(err)
	}
	e.Free(empty)
}
