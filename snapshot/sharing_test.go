package snapshot_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/snapshot"
	"github.com/ashlar-go/ashlar/snapshot/snapshottest"
)

// share returns a file in which one list stands in a place twice.
func share(key string) []byte {
	var b bytes.Buffer
	p := snapshottest.NewPickler(&b, 4)
	p.Dict()
	p.Mark()
	switch key {
	case "device_traces":
		p.Key("device_traces")
		p.List()
		p.Mark()
		list := p.List()
		p.Mark()
		p.Dict()
		p.Mark()
		for _, k := range []string{"addr", "size", "stream"} {
			p.Key(k)
			p.Int(0)
		}
		p.Key("action")
		p.Key("alloc")
		p.SetItems()
		p.Appends()
		p.Get(list)
		p.Appends()
	case "segments", "blocks":
		p.Key("segments")
		p.List()
		p.Mark()
		var blocks uint32
		for i := range 2 {
			segment := p.Dict()
			p.Mark()
			p.Key("device")
			p.Int(0)
			p.Key("address")
			p.Int(0)
			p.Key("total_size")
			p.Int(512)
			p.Key("segment_type")
			p.Key("small")
			p.Key("blocks")
			if i == 1 {
				p.Get(blocks)
			} else {
				blocks = p.List()
				p.Dict()
				p.Mark()
				p.Key("size")
				p.Int(512)
				p.Key("state")
				p.Key("inactive")
				p.SetItems()
				p.Append()
			}
			p.SetItems()
			if key == "segments" {
				p.Get(segment)
				break
			}
		}
		p.Appends()
	}
	p.SetItems()
	if err := p.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func TestSharingCannotMultiply(t *testing.T) {
	for key, want := range map[string]string{
		"device_traces": "device 1: device_traces: the same list as that of an earlier device",
		"segments":      "segment 1: the same dict as an earlier segment",
		"blocks":        "device 0, segment 1: blocks: the same list as that of an earlier segment",
	} {
		_, err := snapshot.ReadBytes(share(key))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", key, err, want)
		}
	}
}
