package main

import (
	"reflect"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/replay/workloads"
	"github.com/ashlar-go/ashlar/trace"
)

func TestTheScriptIsTheProgram(t *testing.T) {
	var out strings.Builder
	if err := write([]string{"-seed", "7", "prefetch"}, &out); err != nil {
		t.Fatal(err)
	}
	script, err := trace.ParseScript(out.String())
	if err != nil {
		t.Fatal(err)
	}
	p, err := script.Program()
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(p.Ops, workloads.Prefetch(7).Ops) {
		t.Error("the script does not ask for what the program does")
	}
}

func TestUnknownWorkload(t *testing.T) {
	if err := write([]string{"nothing"}, new(strings.Builder)); err == nil || !strings.Contains(err.Error(), `"nothing"`) {
		t.Errorf("error %v, want one that names the workload", err)
	}
}
