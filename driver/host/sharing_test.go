package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/drivertest/multiprocess"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// The first argument makes this program another process of a test: of the suite for sharing, of TestForgedHandles, or
// of what other files add.
const (
	serveSharing = "serve-sharing"
	exportBlock  = "export-block"
)

var roles = map[string]func() error{
	serveSharing: func() error {
		return multiprocess.ServeSharing(func() (driver.Device, error) { return Open(Options{Total: 64 << 20}) })
	},
	exportBlock: exportAndWait,
}

func TestMain(m *testing.M) {
	if len(os.Args) < 2 || roles[os.Args[1]] == nil {
		os.Exit(m.Run())
	}
	if err := roles[os.Args[1]](); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// exportAndWait exports a block and writes the handle to its output. At the first byte of its input it frees the block
// and says so with a byte; it ends with its input.
func exportAndWait() error {
	d, err := Open(Options{Total: 1 << 20})
	if err != nil {
		return err
	}
	p, err := d.Alloc(5)
	if err != nil {
		return err
	}
	if err := errors.Join(d.DefaultStream().Fill(p, 7, 5), d.DefaultStream().Sync(context.Background())); err != nil {
		return err
	}
	handle, err := d.Sharing().Export(p)
	if err != nil {
		return err
	}
	if _, err := os.Stdout.Write(handle); err != nil {
		return err
	}
	if _, err := io.ReadFull(os.Stdin, make([]byte, 1)); err != nil {
		return err
	}
	if err := d.Free(p); err != nil {
		return err
	}
	if _, err := os.Stdout.Write([]byte{1}); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	return d.Close()
}

func TestSharing(t *testing.T) {
	program, err := os.Executable()
	testkit.Must(t, err)
	multiprocess.RunSharing(t, func(t testing.TB) driver.Device {
		d, err := Open(Options{Total: 64 << 20})
		testkit.Must(t, err)
		return d
	}, func() *exec.Cmd { return exec.Command(program, serveSharing) })
}
