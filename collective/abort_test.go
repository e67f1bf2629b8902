package collective

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/tensor"
)

// When a rank aborts, the others stop waiting; their errors name the rank, and its error names the cause.
func TestAbort(t *testing.T) {
	for name, make := range makers {
		t.Run(name, func(t *testing.T) {
			const gives = 1
			comms := make(t, 3)
			on(t, comms, operations)
			cause := errors.New("this rank has lost its way")
			each(len(comms), func(rank int) {
				c := comms[rank]
				if rank != gives {
					mourn(t, c, gives)
					return
				}
				x := tensor.Must(tensor.Zeros(c.place, dtype.Float32, 8))
				defer x.Release()
				c.Abort(cause)
				c.Abort(errors.New("another cause"))
				for call, err := range map[string]error{
					"Wait": c.Wait(context.Background(), nil), "Err": c.Err(), "Send": c.Send(nil, x, 0), "Close": c.Close(),
				} {
					if !errors.Is(err, cause) {
						t.Errorf("%s of the rank that aborted: %v, want the cause", call, err)
					}
				}
				c.Abort(cause) // of a communicator that is closed
			})
		})
	}
}

func TestAbortWithoutACause(t *testing.T) {
	comms, err := Local(open(t, "host"), open(t, "host"))
	testkit.Must(t, err)
	comms[0].Abort(nil)
	if err := comms[0].Close(); err == nil || !strings.Contains(err.Error(), "Abort without a cause") {
		t.Errorf("Close of the rank that aborted: %v", err)
	}
	mourn(t, comms[1], 0)
}

// Only NCCL's communicators have handles.
func TestHandleOfTheHostBackend(t *testing.T) {
	comms, err := Local(open(t, "host"))
	testkit.Must(t, err)
	h, err := comms[0].Handle()
	if h != 0 || !errors.Is(err, driver.ErrUnsupported) || !strings.Contains(err.Error(), `backend "host" has no handles; "nccl" has`) {
		t.Errorf("%#x, %v", h, err)
	}
	testkit.Must(t, comms[0].Close())
}
