package raw_test

import (
	"bytes"
	"context"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/internal/testkit"
	"github.com/ashlar-go/ashlar/mem/raw"
)

// Copies within a device and between two, with and without the link.
func TestCopy(t *testing.T) {
	one, other := newHost(t), newHost(t)
	src, near, far := alloc(t, one, mib), alloc(t, one, mib), alloc(t, other, mib)
	s := one.DefaultStream()
	want := bytes.Repeat([]byte("address "), mib/8)
	testkit.Must(t, s.CopyIn(src, want))
	holds := func(what string, got []byte, err error) {
		t.Helper()
		if err != nil || !bytes.Equal(got, want) {
			t.Errorf("%s: other bytes, %v", what, err)
		}
	}
	got := make([]byte, mib)
	testkit.Must(t, raw.Copy(s, near, one, src, one, mib))
	holds("within the device", got, s.CopyOut(got, near))

	testkit.Must(t, raw.Copy(s, far, other, src, one, mib))
	testkit.Must(t, s.Sync(context.Background()))
	holds("to the other", got, other.DefaultStream().CopyOut(got, far))

	if err := s.Copy(far, src, mib); err == nil {
		t.Error("work used another device's memory without permission")
	}
	testkit.Must(t, raw.EnablePeer(one, other))
	testkit.Must(t, s.Fill(far, 0, mib))
	testkit.Must(t, raw.Copy(s, far, other, src, one, mib))
	holds("to a peer", got, s.CopyOut(got, far))
	for _, p := range []driver.Pointer{src, near, far} {
		raw.Delete(p)
	}
}
