//go:build !linux

package raw

import (
	"fmt"
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A pageServer would hand pages to other processes, which takes Linux.
type pageServer struct{}

var serving pageServer

func (pageServer) keyOf(mem.Block) (name string, key []byte, err error) {
	return "", nil, fmt.Errorf("pages cannot be handed to other processes on %s: %w", runtime.GOOS,
		driver.ErrUnsupported)
}

func fetchPages(string, []byte) ([]driver.PageFile, error) {
	return nil, fmt.Errorf("pages cannot be had from other processes on %s: %w", runtime.GOOS, driver.ErrUnsupported)
}
