package planned

import "testing"

// Steps that never occur again take a bounded amount of memory.
func TestStepsThatNeverRepeatAreForgotten(t *testing.T) {
	var r recorder
	size := int64(0)
	for range 2 * mostRemembered / maxRecorded {
		r.slots = r.slots[:0]
		for range maxRecorded {
			size++
			r.slots = append(r.slots, Slot{Size: size, End: open, Offset: -1})
		}
		if r.enterStep(0, maxRecorded) == nil {
			t.Error("a step is not entered although others occurred only once")
		}
		remembered := 0
		for _, s := range r.steps {
			remembered += len(s.slots)
		}
		if remembered > mostRemembered {
			t.Errorf("%d requests are remembered, want at most %d", remembered, mostRemembered)
		}
	}
}

// A step for which the placer has too few addresses is packed once.
func TestAStepThatIsTooLargeIsPackedOnce(t *testing.T) {
	l := &Learner{size: 1 << 20, packing: make(chan []*step, 1), follow: newFollower(nil)}
	l.rec.steps = []*step{{number: 1, seen: 2, slots: []Slot{{Size: 2 << 20, End: 1}}}}
	l.pack()
	l.use(<-l.packing)
	if l.pack(); len(l.packing) > 0 {
		t.Error("the step is packed again")
	}
	if l.Learned().Plans != 0 {
		t.Error("the step is planned")
	}
}
