package main

import (
	"os"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/internal/testkit"
)

// The picture in docs is drawn from the table beside it; "make chart" draws it again.
func TestThePictureShowsTheTable(t *testing.T) {
	table, err := os.Open("../../docs/policies.md")
	testkit.Must(t, err)
	defer table.Close()
	want, err := os.ReadFile("../../docs/reserved.svg")
	testkit.Must(t, err)
	var got strings.Builder
	testkit.Must(t, chart(table, &got))
	if got.String() != string(want) {
		t.Error("docs/reserved.svg is not the picture of docs/policies.md: run make chart")
	}
}

func TestTablesThatLackWhatIsDrawn(t *testing.T) {
	const header = "| trace | settings | bound | reserved | smallest limit |\n| --- | --- | --- | --- | --- |\n"
	for table, want := range map[string]string{
		"| trace | settings |\n":                     `no column "bound"`,
		header + "| gpt2 | arena |\n":                "a short row: | gpt2 | arena |",
		header + "| gpt2 | arena | 1 | much | 2 |\n": "whose reserved memory is no size",
		header + "| gpt2 | arena | big | 1 | 2 |\n":  "whose bound is no size",
		header: "no row for gpt2, as recorded",
	} {
		if err := chart(strings.NewReader(table), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}
