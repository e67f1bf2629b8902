package driver_test

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/driver"
)

// Every driver in this repository is named with its import where a program lacks it.
func TestDefect23_UnknownDriversNameTheImport(t *testing.T) {
	files, err := filepath.Glob("*/*.go")
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`driver\.Register\("(\w+)"`).FindAllStringSubmatch(string(text), -1) {
			found++
			want := `add import _ "github.com/ashlar-go/ashlar/driver/` + filepath.Base(filepath.Dir(file)) + `"; this program has: `
			if _, err := driver.Open(m[1] + ":x"); !errors.Is(err, driver.ErrUnknown) || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q in it", m[1], err, want)
			}
		}
	}
	if found < 5 { // cuda registers itself in two files
		t.Errorf("%d drivers were looked for", found)
	}
	if _, err := driver.Open("nosuch"); err == nil || strings.Contains(err.Error(), "import") {
		t.Errorf("of an unknown driver: %v", err)
	}
}
