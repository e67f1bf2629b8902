//go:build linux && gpu

package ipc_test

import (
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
			put(t, d, b.Ptr, "hello")
			orderly := start(t, "import", path, e.Ticket(b).String(), device)
			crashes := start(t, "import", path, e.Ticket(b).String(), device)
			if one, two := orderly.hear(t), crashes.hear(t); one != "hello" || two != "hello" {
				t.Errorf("the importers read %q and %q", one, two)
			}
			if n := e.Users(b); n != 2 {
				t.Errorf("%d users", n)
			}
			crashes.kill(t)
			orderly.tell(t, "close")
			if orderly.hear(t) != "closed" {
				t.Error("the other importer did not close")
			}
			if err := e.Wait(t.Context(), b); err != nil {
				t.Error(err)
			}
			if got := get(t, d, b.Ptr+8, 5); got != "reply" {
				t.Errorf("the exporter reads %q", got)
			}
			e.Free(b)

			there := filepath.Join(t.TempDir(), "there")
			exporter := start(t, "export", there, way, device)
			ticket, err := ipc.ParseTicket(exporter.hear(t))
			if err != nil {
				t.Fatal(err)
			}
			i := dial(t, d, there)
			c, err := i.Open(ticket)
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
