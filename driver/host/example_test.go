package host_test

import (
	"context"
	"fmt"
	"log"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/host"
)

func Example() {
	dev, err := driver.Open("host:total=64MiB")
	if err != nil {
		log.Fatal(err)
	}
	defer dev.Close()
	p, err := dev.Alloc(4)
	if err != nil {
		log.Fatal(err)
	}
	s := dev.DefaultStream()
	if err := s.CopyIn(p, []byte{1, 2, 3, 4}); err != nil { // queued
		log.Fatal(err)
	}
	if err := s.Fill(p, 9, 2); err != nil {
		log.Fatal(err)
	}
	out := make([]byte, 4)
	if err := s.CopyOut(out, p); err != nil { // waits for the stream
		log.Fatal(err)
	}
	fmt.Println(out, s.Sync(context.Background()), dev.Free(p))
	// Output: [9 9 3 4] <nil> <nil>
}
