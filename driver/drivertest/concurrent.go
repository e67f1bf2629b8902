package drivertest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// testConcurrent uses the device from many goroutines, each with its own streams and memory.
func testConcurrent(t *testing.T, open openFunc) {
	d := open(t)
	parallel(t, 8, func(g int) error {
		for round := range 8 {
			if err := errors.Join(workAlone(d, byte(16*g+round)), pageAlone(d, byte(16*g+round))); err != nil {
				return err
			}
		}
		return nil
	})
}

// workAlone allocates memory, works on it with two streams of its own, and gives everything back.
func workAlone(d driver.Device, pattern byte) (err error) {
	a, err := d.NewStream(driver.StreamOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	b, err := d.NewStream(driver.StreamOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	const size = 20_000
	p, err := d.Alloc(2 * size)
	if err != nil {
		return err
	}
	if err := a.Fill(p, pattern, size); err != nil {
		return err
	}
	m, err := a.Mark()
	if err != nil {
		return err
	}
	if _, err := a.Reached(m); err != nil {
		return err
	}
	got := make([]byte, size)
	err = errors.Join(b.WaitFor(a, m), b.Copy(p+size, p, size), b.CopyOut(got, p+size), b.Sync(context.Background()))
	if err == nil && !bytes.Equal(got, bytes.Repeat([]byte{pattern}, size)) {
		err = fmt.Errorf("pattern %#02x: other bytes came back", pattern)
	}
	if _, _, e := d.Available(); e != nil {
		err = errors.Join(err, e)
	}
	return errors.Join(err, d.Free(p))
}

// pageAlone makes a page, maps it, works on it and gives everything back.
func pageAlone(d driver.Device, pattern byte) error {
	vm, size := d.VirtualMemory(), d.Info().Granularity
	if vm == nil {
		return nil
	}
	page, err := vm.Create(size)
	if err != nil {
		return err
	}
	p, err := vm.Reserve(2 * size)
	if err != nil {
		return err
	}
	s, err := d.NewStream(driver.StreamOptions{})
	if err != nil {
		return err
	}
	got := make([]byte, 1000)
	err = errors.Join(vm.Map(p, page), s.Fill(p, pattern, 1000), s.CopyOut(got, p), s.Close(),
		vm.Unmap(p, size), vm.Drop(page), vm.Release(p, 2*size))
	if err == nil && !bytes.Equal(got, bytes.Repeat([]byte{pattern}, 1000)) {
		err = fmt.Errorf("pattern %#02x: other bytes came back from a page", pattern)
	}
	return err
}

// testConcurrentStream uses one stream from many goroutines.
func testConcurrentStream(t *testing.T, open openFunc) {
	d := open(t)
	s := NewStream(t, d)
	const goroutines, size = 8, 4096
	p := Alloc(t, d, goroutines*size)
	parallel(t, goroutines, func(g int) error {
		mine := p + driver.Pointer(g*size)
		for round := range 20 {
			want := Noise(uint64(g*100+round+1), size)
			got := make([]byte, size)
			if err := errors.Join(s.CopyIn(mine, want), s.CopyOut(got, mine)); err != nil {
				return err
			}
			if !bytes.Equal(got, want) {
				return fmt.Errorf("goroutine %d, round %d: other bytes came back", g, round)
			}
			m, err := s.Mark()
			if err != nil {
				return err
			}
			if err := s.Sync(context.Background()); err != nil {
				return err
			}
			if ok, err := s.Reached(m); !ok || err != nil {
				return fmt.Errorf("goroutine %d: after Sync: reached %v, %v", g, ok, err)
			}
		}
		return nil
	})
	testkit.Must(t, d.Free(p))
}

// parallel runs f(0) to f(n-1) at once and fails the test with their errors.
func parallel(t *testing.T, n int, f func(g int) error) {
	t.Helper()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for g := range n {
		wg.Go(func() { errs[g] = f(g) })
	}
	wg.Wait()
	testkit.Must(t, errors.Join(errs...))
}
