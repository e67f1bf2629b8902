//go:build linux && gpu

package ipc_test

import (
	"context"
	"path/filepath"
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/driver/drivertest"
	"github.com/ashlar-go/ashlar/mem/ipc"
)

// Blocks of a real GPU between processes, in both ways of sharing, with an importer and with the exporter killed.
func TestGPUProcesses(t *testing.T) {
	const device = "device=cuda:0"
	for _, way := range []string{"pages", "handles"} {
		t.Run(way, func(t *testing.T) {
			d := drivertest.OpenDevice(t, "cuda:0")
			e, path := export(t, d, &ipc.Options{Handles: way == "handles"})
			b, err := e.Alloc(d.DefaultStream(), 1000)
			if err != nil {
				t.Fatal(err)
			}
			crashAnImporter(t, d, e, b, path, device)

			there := filepath.Join(t.TempDir(), "there")
			exporter := start(t, "export", there, way, device)
			ticket, err := ipc.ParseTicket(exporter.hear(t))
			if err != nil {
				t.Fatal(err)
			}
			i := dial(t, d, there)
			c, err := i.Open(context.Background(), ticket)
			if err != nil {
				t.Fatal(err)
			}
			if got := get(t, d, c.Ptr, 11); got != "left behind" {
				t.Errorf("the importer reads %q", got)
			}
			exporter.kill(t)
			<-i.Lost()
			if way == "pages" { // CUDA promises nothing of handles
				if got := get(t, d, c.Ptr, 11); got != "left behind" {
					t.Errorf("after the exporter's death the importer reads %q", got)
				}
			}
			if err := i.Close(c); err != nil {
				t.Error(err)
			}
		})
	}
}
