package replay_test

import (
	"errors"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/golden"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/layer"
	"github.com/ashlar-go/ashlar/replay"
	"github.com/ashlar-go/ashlar/trace"
)

func newScriptRun() *replay.ScriptRun {
	var opened *device
	return replay.NewScriptRun(replay.ScriptOptions{
		OpenDevice: func(spec string) (driver.Device, error) {
			if spec != "fake:total=64KiB" {
				return nil, &driver.Error{Call: "Open", Code: driver.ErrUnknown, Detail: spec}
			}
			opened = newDevice(1 << 16)
			return opened, nil
		},
		NewAllocator: func(_ driver.Device, name, settings string) (mem.Allocator, error) {
			a := newAllocator(opened)
			if name == "limited" {
				return layer.NewLimiter(plain{a}, 1024), nil
			}
			return a, nil
		},
	})
}

// plain hides an allocator's optional methods.
type plain struct{ mem.Allocator }

// The files in testdata are scripts with the output that each must give.
func TestScripts(t *testing.T) {
	golden.Run(t, "testdata/*.script", func(t *testing.T, c *golden.Case) string {
		s, err := trace.ParseScript(c.Input)
		if err != nil {
			return err.Error()
		}
		r := newScriptRun()
		out, err := r.Run(s)
		if err != nil {
			out += err.Error() + "\n"
		}
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		return out
	})
}

func TestScriptRunKeepsItsStateBetweenScripts(t *testing.T) {
	r := newScriptRun()
	for _, step := range []struct{ in, want string }{
		{"device fake total=64KiB\nalloc a 512", "a = 0x000+512\n"},
		{"alloc b 512\nfree a", "b = 0x200+512\n"},
		{"alloc c 512", "c = 0x000+512\n"},
		{"device fake total=64KiB\nalloc b 512", "b = 0x000+512\n"},
	} {
		s, err := trace.ParseScript(step.in)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Run(s); got != step.want || err != nil {
			t.Errorf("%q: %q, %v; want %q", step.in, got, err, step.want)
		}
	}
	if err := errors.Join(r.Close(), r.Close()); err != nil {
		t.Error(err)
	}
}
