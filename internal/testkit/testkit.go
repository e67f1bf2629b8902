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

// PanicText returns the text that f panics with, or "" if f returns.
func PanicText(f func()) (text string) {
	defer func() {
		if r := recover(); r != nil {
			text = fmt.Sprint(r)
		}
	}()
	f()
	return ""
}

// Panic returns the text that f panics with. It ends the test if f returns.
func Panic(t testing.TB, f func()) string {
	t.Helper()
	text := PanicText(f)
	if text == "" {
		t.Fatal("no panic")
	}
	return text
}

// WantPanic marks the test as failed, with the words for what f does, unless f panics with a text that begins with
// prefix.
func WantPanic(t testing.TB, what, prefix string, f func()) {
	t.Helper()
	if text := PanicText(f); text == "" || !strings.HasPrefix(text, prefix) {
		t.Errorf("%s: panic %q, want one that begins with %q", what, text, prefix)
	}
}

// Equal marks the test as failed unless got is want.
func Equal[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
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
