//go:build linux && (amd64 || arm64) && !nocuda

// Command memcheck is a test program for compute-sanitizer:
//
//	go build -o memcheck ./mem/nvtx/testdata/memcheck
//	compute-sanitizer --tool memcheck --nvtx yes --force-blocking-launches --error-exitcode 9 ./memcheck out
//
// It allocates two blocks of 512 bytes from mem/caching on cuda:0, observed by mem/nvtx, and a kernel writes one word.
// The first argument selects the address, and so the expected report of memcheck:
//
//	in          the last word of the second block: nothing
//	out         the first word after it, in the same segment: Invalid __global__ write of size 4 bytes
//	tail        after the end of a block of 500 bytes, in what rounding added: Invalid __global__ write
//	freed       a block that was freed: Invalid __global__ write
//	neighbour   past the first block, which is in the second: not detectable
//	early       in a block that is freed while the kernel waits for another: nothing, if launches block
//	thread      in a block taken on a thread that never used CUDA: nothing
//	again       in a block of a segment that was given back and taken anew: nothing
//
// The second argument, if any, is a configuration of mem/caching, such as expandable_segments:True. The third is the
// path of the tool's library, in place of NVTX_INJECTION64_PATH.
//
// It ends with 0 if CUDA reported nothing, 1 if it did (memcheck ends the context of a kernel that it finds wrong) and
// 2 if something was missing.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"

	"github.com/ashlar-go/ashlar/driver"
	_ "github.com/ashlar-go/ashlar/driver/cuda"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/caching"
	"github.com/ashlar-go/ashlar/mem/nvtx"
	"github.com/ebitengine/purego"
)

// ptx has two kernels: poke writes a word to p, spin stays for so many clock cycles.
const ptx = `
.version 6.4
.target sm_75
.address_size 64

.visible .entry poke(.param .u64 p, .param .u32 v)
{
	.reg .b32 %r<2>;
	.reg .b64 %rd<2>;
	ld.param.u64 %rd1, [p];
	ld.param.u32 %r1, [v];
	cvta.to.global.u64 %rd1, %rd1;
	st.global.u32 [%rd1], %r1;
	ret;
}

.visible .entry spin(.param .u64 cycles)
{
	.reg .pred %p<2>;
	.reg .b64 %rd<5>;
	ld.param.u64 %rd1, [cycles];
	mov.u64 %rd2, %clock64;
again:
	mov.u64 %rd3, %clock64;
	sub.u64 %rd4, %rd3, %rd2;
	setp.lt.u64 %p1, %rd4, %rd1;
	@%p1 bra again;
	ret;
}
`

func main() {
	args := append(os.Args[1:], "", "", "")
	mode, settings, path := args[0], args[1], args[2]
	switch mode {
	case "in", "out", "tail", "freed", "neighbour", "early", "thread", "again":
	default:
		fmt.Fprintln(os.Stderr, "usage: memcheck in|out|tail|freed|neighbour|early|thread|again [SETTINGS [LIBRARY]]")
		os.Exit(2)
	}
	p := &program{}
	p.dev = must(driver.Open("cuda:0")) // the tool wants CUDA to be there first
	tool := findTool(path)
	cfg, _, err := caching.ParseConfig(settings)
	check(err)
	p.alloc = must(caching.New(p.dev, cfg))
	if tool != nil {
		p.alloc.Observe(tool.Observer())
	}
	p.stream = must(p.dev.NewStream(driver.StreamOptions{}))
	p.module = must(p.dev.Kernels().Load([]byte(ptx)))

	err = p.run(mode)
	if tool != nil {
		fmt.Printf("segments refused by the tool: %d\n", tool.Refused())
	}
	if err != nil {
		fmt.Println("CUDA:", err)
		os.Exit(1)
	}
	fmt.Println("CUDA reported nothing")
}

type program struct {
	dev    driver.Device
	alloc  *caching.Allocator
	stream driver.Stream
	module driver.Module
}

// run does what mode says and returns what CUDA said of it.
func (p *program) run(mode string) error {
	first, second := p.block(512), p.block(512)
	fmt.Printf("blocks of 512 bytes at %#x and %#x\n", first.Ptr, second.Ptr)
	switch mode {
	case "in":
		return p.poke(second.Ptr + 508)
	case "out":
		return p.poke(second.Ptr + 512)
	case "tail":
		return p.poke(p.block(500).Ptr + 500)
	case "freed":
		p.alloc.Free(second)
		return p.poke(second.Ptr)
	case "neighbour":
		return p.poke(first.Ptr + 512)
	case "early":
		check(p.launch("spin", driver.Uint64Arg(500_000_000)))
		check(p.launch("poke", driver.PointerArg(second.Ptr), driver.Uint32Arg(1)))
		p.alloc.Free(second)
		return p.stream.Sync(context.Background())
	case "thread":
		taken := make(chan mem.Block)
		go func() {
			runtime.LockOSThread() // not unlocked: the thread ends with the goroutine
			taken <- p.block(512)
		}()
		return p.poke((<-taken).Ptr)
	case "again":
		p.alloc.Free(first)
		p.alloc.Free(second)
		check(p.alloc.EmptyCache())
		third := p.block(512)
		fmt.Printf("a block of a new segment at %#x\n", third.Ptr)
		return p.poke(third.Ptr + 508)
	}
	panic(mode)
}

func (p *program) block(size int64) mem.Block { return must(p.alloc.Alloc(p.stream, size)) }

// poke writes a word to ptr and waits for it.
func (p *program) poke(ptr driver.Pointer) error {
	fmt.Printf("a kernel writes 4 bytes at %#x\n", ptr)
	if err := p.launch("poke", driver.PointerArg(ptr), driver.Uint32Arg(1)); err != nil {
		return err
	}
	return p.stream.Sync(context.Background())
}

func (p *program) launch(name string, args ...driver.Arg) error {
	return p.dev.Kernels().Launch(p.stream, driver.Kernel{Name: name, Code: must(p.module.Function(name)), Args: args})
}

// findTool opens the tool at path or, if it is empty, where NVTX looks for it. It says what it tries.
func findTool(path string) *nvtx.Tool {
	const variable = "NVTX_INJECTION64_PATH"
	fmt.Printf("%s: %q, in the C library %q\n", variable, os.Getenv(variable), cGetenv(variable))
	var candidates []string
	for _, c := range append([]string{path, os.Getenv(variable), cGetenv(variable)}, loadedByTool()...) {
		if c != "" {
			candidates = append(candidates, c)
		}
	}
	for _, c := range candidates {
		tool, err := nvtx.Open(c)
		if err == nil {
			fmt.Println("tool:", c)
			return tool
		}
		fmt.Println(err)
	}
	fmt.Println("tool: none")
	return nil
}

// cGetenv reads the environment of the C library. A tool that was loaded into the process may have written there after
// Go's runtime had copied it.
func cGetenv(name string) string {
	libc := must(purego.Dlopen("libc.so.6", purego.RTLD_NOW))
	var getenv func(string) string
	purego.RegisterFunc(&getenv, must(purego.Dlsym(libc, "getenv")))
	return getenv(name)
}

// loadedByTool lists the libraries in this process that look like a sanitizer's: one may be the tool though no variable
// says so.
func loadedByTool() []string {
	maps := must(os.Open("/proc/self/maps"))
	defer maps.Close()
	var found []string
	for lines := bufio.NewScanner(maps); lines.Scan(); {
		_, path, _ := strings.Cut(lines.Text(), "/")
		path = "/" + path
		if (strings.Contains(path, "sanitizer") || strings.Contains(path, "njection")) &&
			strings.Contains(path, ".so") &&
			(len(found) == 0 || found[len(found)-1] != path) {
			found = append(found, path)
		}
	}
	return found
}

func must[T any](v T, err error) T {
	check(err)
	return v
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "memcheck:", err)
		os.Exit(2)
	}
}
