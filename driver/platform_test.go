package driver_test

import (
	"go/ast"
	"go/build"
	"go/parser"
	"go/token"
	"go/types"
	"strings"
	"testing"
)

// A build for a platform of 32 bits ends with one error, that it has 32 bits.
func TestDefect23_OnlySixtyFourBitPlatforms(t *testing.T) {
	for arch, small := range map[string]bool{
		"386": true, "arm": true, "mips": true, "mipsle": true,
		"amd64": false, "arm64": false, "loong64": false, "ppc64le": false, "riscv64": false, "s390x": false, "wasm": false,
	} {
		context := build.Default
		context.GOARCH = arch
		matches, err := context.MatchFile(".", "platform.go")
		if err != nil || matches != small {
			t.Errorf("%s: platform.go is part of the build: %v, %v; want %v", arch, matches, err, small)
		}
	}
	files := token.NewFileSet()
	file, err := parser.ParseFile(files, "platform.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var errors []string
	c := types.Config{Error: func(err error) { errors = append(errors, err.Error()) }}
	_, _ = c.Check("driver", files, []*ast.File{file}, nil)
	if len(errors) != 1 || !strings.Contains(errors[0], `"Ashlar needs a 64-bit platform, such as GOARCH=amd64 or arm64"`) {
		t.Errorf("the compiler says %q", errors)
	}
}
