package dropin

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/driver/fault"
	"github.com/ashlar-go/ashlar/driver/intercept"
	"github.com/ashlar-go/ashlar/driver/sim"
	"github.com/ashlar-go/ashlar/internal/testkit"
)

// sharingTests are those of memory that other processes can open, where they can.
var sharingTests map[string]func(*testing.T)

// Planned memory is paged memory to all calls.
func TestPlannedMemoryDoesWhatPagedMemoryDoes(t *testing.T) {
	backendOfTests = "backend:planned"
	defer func() { backendOfTests = "" }()
	for name, test := range sharingTests {
		t.Run(name, test)
	}
	for name, test := range map[string]func(*testing.T){
		"blocks":     TestBlocksAreFoundByAddress,
		"arguments":  TestArgumentsThatAreNoneAreErrors,
		"pins":       TestPinnedBlocksStayAfterTheirFree,
		"external":   TestExternalStreamsAreNotTouchedAfterTheFree,
		"events":     TestEventsNameDevicesAndHandles,
		"tags":       TestTagsArePausedByThemselves,
		"pause":      TestAllMemoryIsPaused,
		"refusals":   TestPausesThatAreRefused,
		"tags cache": TestCachedMemoryOfTagsServesOthers,
		"closing":    TestCloseWhilePaused,
		"pools":      TestPoolsOfThePaged,
		"threads":    TestPoolsBesideOtherThreads,
	} {
		t.Run(name, test)
	}
}

// A training run is planned: after some steps its memory is what it requests.
type training struct {
	t         *testing.T
	p         *Process
	weights   []driver.Pointer
	live, top int64
	sizes     map[driver.Pointer]int64
}

func newTraining(t *testing.T, settings string) *training {
	t.Helper()
	p, err := New(1, settings, func(int) (driver.Device, error) {
		return sim.New(sim.Options{Total: 140 << 30, Unchecked: true}), nil
	})
	testkit.Must(t, err)
	return train(t, p)
}

func train(t *testing.T, p *Process) *training {
	t.Helper()
	r := &training{t: t, p: p, sizes: map[driver.Pointer]int64{}}
	for i := range int64(40) {
		r.weights = append(r.weights, r.alloc(40*mib+i*512))
	}
	return r
}

func (r *training) alloc(size int64) driver.Pointer {
	at := alloc(r.t, r.p, 0, uint64(size))
	r.sizes[at] = size
	r.live += size
	r.top = max(r.top, r.live)
	return at
}

func (r *training) free(all ...driver.Pointer) {
	for _, at := range all {
		r.live -= r.sizes[at]
		testkit.Must(r.t, r.p.Free(at))
	}
}

func (r *training) step(rows int64) {
	var kept, gradients []driver.Pointer
	for i := range int64(40) {
		kept = append(kept, r.alloc(rows*(300_000+i*10_000)))
		r.free(r.alloc(rows * 700_000))
	}
	for i := len(kept) - 1; i >= 0; i-- {
		gradients = append(gradients, r.alloc(40*mib+int64(i)*512))
		r.free(kept[i])
	}
	r.free(gradients...)
}

// untilPlanned trains until all steps are planned, and have been for some time.
func (r *training) untilPlanned(rows ...int64) {
	for left := 10; left > 0; {
		for _, n := range rows {
			r.step(n)
		}
		if strings.Contains(r.p.PlanInfo(), fmt.Sprintf("plan of device 0: steps=%d ", len(rows))) {
			left--
		}
	}
}

func (r *training) end() {
	r.free(r.weights...)
	testkit.Must(r.t, r.p.Close())
}

func TestStepsArePlannedAndSavedForTheNextRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "train.plan")
	settings := "backend:planned,plan:" + file
	first := newTraining(t, settings)
	first.untilPlanned(400, 300, 200)
	first.end()

	next := newTraining(t, settings)
	for i := range int64(3) {
		next.step(400 - i*100)
	}
	over := float64(reserved(t, next.p)) / float64(next.top)
	info := next.p.PlanInfo()
	if !strings.Contains(info, "steps=3 plans=1 planned=360 ") || over > 1.002 {
		t.Errorf("%.5f of the requested peak is reserved, %q: want 1.002, and every request of the steps planned", over, info)
	}
	next.end()
}

// A device that failed to open, and opened later, has its plan saved.
func TestPlansAreSavedAfterAFailure(t *testing.T) {
	file := filepath.Join(t.TempDir(), "train.plan")
	rules := []fault.Rule{{Kind: intercept.Reserve, Nth: 2}}
	p, err := New(1, "backend:planned,plan:"+file, func(int) (driver.Device, error) {
		return fault.Wrap(sim.New(sim.Options{Total: 140 << 30, Unchecked: true}), rules...), nil
	})
	testkit.Must(t, err)
	if _, err := p.Alloc(0, 0, mib); err == nil {
		t.Fatal("the device has no addresses, and opened")
	}
	rules = nil
	r := train(t, p)
	r.untilPlanned(100)
	r.end()
	if _, err := os.Stat(file); err != nil {
		t.Error(err)
	}
}

func TestFilesThatAreNoPlansAreRefused(t *testing.T) {
	file := filepath.Join(t.TempDir(), "train.plan")
	testkit.Must(t, os.WriteFile(file, []byte("no plan"), 0o600))
	for _, path := range []string{file, filepath.Dir(file)} {
		_, err := New(1, "backend:planned,plan:"+path, nil)
		if !errors.Is(err, ErrInvalid) || !strings.Contains(fmt.Sprint(err), "plan") {
			t.Errorf("%s: error %v", path, err)
		}
	}
}

// A plan that cannot be saved does no harm, and says why.
func TestAPlanThatCannotBeSaved(t *testing.T) {
	r := newTraining(t, "backend:planned,plan:"+filepath.Join(t.TempDir(), "missing", "train.plan"))
	r.untilPlanned(100)
	r.end()
	if info := r.p.PlanInfo(); !strings.Contains(info, "plan was not saved: ") {
		t.Errorf("%q: want the reason", info)
	}
}
