package main

import (
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
)

// What the program prints is the same on every device, but for the device's name.
func TestProgramPrintsTheProduct(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = w
	main()
	os.Stdout = stdout
	w.Close()
	printed, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	got := regexp.MustCompile(`, device='cuda:\d+'`).ReplaceAllString(string(printed), "")
	if want := "tensor([[14., 32.],\n        [32., 77.]])\n"; got != want {
		t.Errorf("printed\n%swant\n%s", got, want)
	}
}

// README.md shows the statements of main, to the letter.
func TestReadmeShowsThisProgram(t *testing.T) {
	program, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, body, _ := strings.Cut(string(program), "\tctx := context.Background()\n")
	body = strings.TrimSuffix(body, "}\n")
	shown := strings.ReplaceAll(strings.TrimPrefix(body, "\t"), "\n\t", "\n")
	if !strings.Contains(string(readme), "```go\n"+shown+"```\n") {
		t.Error("the Go code in README.md is not that of examples/quickstart/main.go")
	}
}
