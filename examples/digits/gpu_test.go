//go:build gpu

package main

import (
	"errors"
	"io"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

const twoGPUs = "cuda:0,cuda:1"

func TestGPUReadsDigits(t *testing.T) { readsDigits(t, "cuda:0") }

func TestGPULearnsWhatTheHostDoes(t *testing.T) { learnAlike(t, "host", "cuda:0") }

func TestGPULimit(t *testing.T) { meetsLimit(t, "cuda:0") }

// Where there is one GPU, the program says that there is no second.
func TestGPUTwoLearnWhatOneDoes(t *testing.T) {
	gpus, err := driver.Lookup("cuda").Devices()
	if err != nil {
		t.Fatal(err)
	}
	if len(gpus) < 2 {
		if _, err := run(t.Context(), io.Discard, with(t, "-devices "+twoGPUs)); !errors.Is(err, driver.ErrAbsent) {
			t.Errorf("on %d GPU the error is %v, want one that matches driver.ErrAbsent", len(gpus), err)
		}
		return
	}
	readsDigits(t, twoGPUs)
	learnAlike(t, "cuda:0", twoGPUs)
	meetsLimit(t, twoGPUs)
}
