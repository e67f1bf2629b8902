package pinned_test

import (
	"fmt"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
	"github.com/ashlar-go/ashlar/mem/pinned"
)

// A block is freed as soon as the copy of it is queued. It is allocated again once the copy is done.
func Example() {
	dev, err := driver.Open("host")
	if err != nil {
		panic(err)
	}
	defer dev.Close()
	a, err := pinned.New(dev, pinned.Config{})
	if err != nil {
		panic(err)
	}
	defer a.Close()
	s := dev.DefaultStream()
	to, err := dev.Alloc(5)
	if err != nil {
		panic(err)
	}

	b, err := a.Alloc(5)
	if err != nil {
		panic(err)
	}
	copy(a.Bytes(b), "hello")
	if err := dev.Pinned().CopyInAsync(s, to, a.Bytes(b)); err != nil {
		panic(err)
	}
	if err := a.RecordStream(b, s); err != nil {
		panic(err)
	}
	a.Free(b)

	got := make([]byte, 5)
	if err := s.CopyOut(got, to); err != nil {
		panic(err)
	}
	fmt.Printf("%s, from a block of %d bytes\n", got, b.Size)
	// Output: hello, from a block of 8 bytes
}
