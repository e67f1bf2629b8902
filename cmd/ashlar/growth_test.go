package main

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
)

// A countingWriter counts the writes that a system would be called for.
type countingWriter struct {
	bytes.Buffer
	writes int
}

func (w *countingWriter) Write(b []byte) (int, error) {
	w.writes++
	return w.Buffer.Write(b)
}

// tensorsFileOf is a safetensors file with so many scalars and keys of metadata.
func tensorsFileOf(t *testing.T, tensors, keys int) string {
	t.Helper()
	var header strings.Builder
	header.WriteString(`{"__metadata__":{`)
	for i := range keys {
		fmt.Fprintf(&header, `%s"key %d":"value"`, comma(i), i)
	}
	header.WriteString("}")
	for i := range tensors {
		fmt.Fprintf(&header, `,"t%d":{"dtype":"F32","shape":[],"data_offsets":[%d,%d]}`, i, 4*i, 4*i+4)
	}
	header.WriteString("}")
	length := string(binary.LittleEndian.AppendUint64(nil, uint64(header.Len())))
	return file(t, "many.safetensors", length+header.String()+strings.Repeat("\x00", 4*tensors))
}

func comma(i int) string {
	if i == 0 {
		return ""
	}
	return ","
}

// A long list is not written line by line: a million lines would take a system a minute.
func TestDefect26_LinesAreWrittenTogether(t *testing.T) {
	path := tensorsFileOf(t, 20_000, 20_000)
	var out, err countingWriter
	if code := run([]string{"tensors", path}, nil, &out, &err); code != exitOK || err.Len() > 0 {
		t.Fatalf("exit code %d: %s", code, err.String())
	}
	if n := strings.Count(out.String(), "\n"); n < 40_000 {
		t.Errorf("%d lines", n)
	}
	if most := out.Len()/(pageBuffer/2) + 2; out.writes > most {
		t.Errorf("%d writes of %d bytes: want at most %d", out.writes, out.Len(), most)
	}
}

// An error stands after what was printed before it, and before what comes later, also where both go to one place.
func TestErrorsComeInTheirOrder(t *testing.T) {
	path := tensorsFileOf(t, 1, 0)
	var both bytes.Buffer
	if code := run([]string{"tensors", path, path + ".none", path}, nil, &both, &both); code != exitInput {
		t.Errorf("exit code %d", code)
	}
	first, rest, found := strings.Cut(both.String(), "ashlar: ")
	if !found || strings.Count(first, "many.safetensors: safetensors, 1 tensor") != 1 ||
		strings.Count(rest, "many.safetensors: safetensors, 1 tensor") != 1 {
		t.Errorf("the output is\n%s", both.String())
	}
}
