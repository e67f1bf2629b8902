package caching_test

import (
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
)

// The surest way to a pool's memory is the pool, which is an allocator: no scope is needed, and no other requests
// are caught.
func ExamplePool() {
	dev := sim.New(sim.Options{Total: 1 << 30})
	defer dev.Close()
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		log.Fatal(err)
	}
	weights := a.NewPool(caching.PoolOptions{})
	b, err := weights.Alloc(dev.DefaultStream(), 300<<20)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("the pool has", mem.FormatSize(weights.Reserved().All.Current))
	weights.Free(b)
	if err := weights.Close(); err != nil { // which gives all of it back, and nothing else that is cached
		log.Fatal(err)
	}
	fmt.Println("reserved in all:", a.Stats().ReservedBytes.All.Current)
	if err := a.Close(); err != nil {
		log.Fatal(err)
	}
	// Output:
	// the pool has 300.00 MiB
	// reserved in all: 0
}

// A scope is for code that knows only the allocator. It redirects requests by their streams, from any goroutine: unlike
// PyTorch's threads, cannot be told apart. So one that has a stream of its own is left alone by a scope whose filter
// names another stream; without a filter its requests, too, would go to the pool.
func ExamplePool_Use() {
	dev := sim.New(sim.Options{Total: 1 << 30})
	defer dev.Close()
	a, err := caching.New(dev, caching.Default())
	if err != nil {
		log.Fatal(err)
	}
	mine := dev.DefaultStream()
	others, err := dev.NewStream(driver.StreamOptions{})
	if err != nil {
		log.Fatal(err)
	}
	request := func(s driver.Stream) {
		if _, err := a.Alloc(s, 2<<20); err != nil {
			log.Fatal(err)
		}
	}
	other := func() { // another goroutine allocates
		done := make(chan struct{})
		go func() {
			defer close(done)
			request(others)
		}()
		<-done
	}
	for _, filter := range []func(driver.Stream) bool{
		func(s driver.Stream) bool { return s == mine },
		nil, // every stream
	} {
		pool := a.NewPool(caching.PoolOptions{})
		pool.Use(filter, func() {
			request(mine)
			other()
		})
		fmt.Println("streams with segments in the pool:", len(pool.Snapshot()))
	}
	// Output:
	// streams with segments in the pool: 1
	// streams with segments in the pool: 2
}
