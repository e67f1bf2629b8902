package main

import (
	"os"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/golden"
)

// The pictures in the documentation are those that "make pictures" draws.
func TestPicturesOfTheDocs(t *testing.T) {
	makefile, err := os.ReadFile("../../Makefile")
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir("../..")
	drawn := 0
	for line := range strings.Lines(string(makefile)) {
		command, found := strings.CutPrefix(strings.TrimSpace(line), "go run ./cmd/ashlar plot --force -o ")
		if !found {
			continue
		}
		drawn++
		args := strings.Fields(command)
		golden.File(t, args[0], ok(t, append([]string{"plot", "-o", "-"}, args[1:]...)...))
	}
	if drawn < 3 {
		t.Errorf("the Makefile draws %d pictures", drawn)
	}
}
