//go:build gpu && linux && (amd64 || arm64) && !nocuda

package cuda_test

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"testing"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest/multiprocess"
)

var (
	exits    = flag.Int("exits", 100, "processes that TestGPUExits starts")
	exitSeed = flag.Uint64("exits.seed", 1, "seed of the first of them")
	parallel = flag.Int("exits.parallel", 8, "how many run at a time")
)

// serveExit is the first argument of a process of TestGPUExits; the second is its seed.
const serveExit = "serve-exit"

func init() {
	if len(os.Args) != 3 || os.Args[1] != serveExit {
		return
	}
	seed, err := strconv.ParseUint(os.Args[2], 10, 64)
	if err == nil {
		err = multiprocess.ServeExit(func() (driver.Device, error) { return driver.Open("cuda:0") }, seed, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Processes that open the device, work and die in random states: none hangs, none crashes. The limit stops what hangs.
func TestGPUExits(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Duration(*exits)*5*time.Second)
	defer cancel()
	multiprocess.RunExits(ctx, t, *exits, *parallel, *exitSeed, func(ctx context.Context, seed uint64) *exec.Cmd {
		return exec.CommandContext(ctx, os.Args[0], serveExit, strconv.FormatUint(seed, 10))
	})
}
