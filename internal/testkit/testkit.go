// Package testkit holds what the tests of many packages share.
package testkit

import (
	"fmt"
	"strings"
	"testing"
)

// Must ends the test if err is not nil.
func Must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Panic returns the text that f panics with. It ends the test if f returns.
func Panic(t testing.TB, f func()) (text string) {
	t.Helper()
	defer func() {
		r := recover()
		if r == nil {
			t.Fatal("no panic")
		}
		text = fmt.Sprint(r)
	}()
	f()
	return ""
}

// Contains marks the test as failed for each part that is not in text.
func Contains(t testing.TB, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%q is missing from:\n%s", part, text)
		}
	}
}
