package safetensors

import (
	"encoding/binary"
	"os"
	"path/filepath"
	"testing"

	_ "github.com/ashlar-go/ashlar/driver/host"
	_ "github.com/ashlar-go/ashlar/driver/sim"
)

func put(t testing.TB, dir, name string, b []byte) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, b, 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// raw returns a file with exactly this header and these bytes.
func raw(header string, data []byte) []byte {
	b := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(b, header...), data...)
}
