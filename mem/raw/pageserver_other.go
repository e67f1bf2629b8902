//go:build !linux

package raw

import (
	"fmt"
	"runtime"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
)

// A pageServer sends pages to other processes, which needs Linux.
type pageServer struct{}

var serving pageServer

func (pageServer) keyOf(mem.Block) (name string, key []byte, err error) {
	return "", nil, fmt.Errorf("pages cannot be sent to other processes on %s: %w", runtime.GOOS,
		driver.ErrUnsupported)
}

func fetchPages(string, []byte) ([]driver.PageFile, error) {
	return nil, fmt.Errorf("pages cannot be received from other processes on %s: %w",
		runtime.GOOS, driver.ErrUnsupported)
}
