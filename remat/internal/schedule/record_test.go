package schedule

import "testing"

// Storages that exist when a recording begins take memory from its beginning, wherever the program names them first.
func TestRecordedConstantsComeFirst(t *testing.T) {
	e := New(Config{}, printless{})
	early, err := e.Constant(100)
	if err != nil {
		t.Fatal(err)
	}
	e.Record()
	late, err := e.Constant(1)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []Value{late, early} {
		if _, _, err := e.Call(Call{Name: "f", Inputs: []Value{v}, Outputs: []Output{{Size: 10, Alias: -1}}}); err != nil {
			t.Fatal(err)
		}
	}
	p := e.Recorded()
	if len(p.Events) != 4 || p.Events[0].Size != 100 || p.Events[1].Size != 1 {
		t.Errorf("the recording begins with %+v, want the constant that was there", p.Events[:2])
	}
	if err := p.Run(New(Config{}, printless{})); err != nil {
		t.Error(err)
	}
}
