package trace

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/internal/bytesize"
	"github.com/ashlar-go/ashlar/mem"
)

// A Script is the text form of a run: commands, one on each line, and after a line of four dashes their expected
// output.
//
//	# A block freed on s0 is not given to s1.
//	device sim total=1MiB
//	alloc a 512 on=s0
//	free a
//	alloc b 512 on=s1
//	----
//	a = 0x000+512
//	b = 0x200+512
//
// The commands, with options in brackets, in any order after the operands:
//
//	device NAME [OPTION]...              the device: NAME and the options are driver.Open's spec
//	allocator NAME [SETTINGS]            the allocator, with settings in its own syntax
//	alloc BLOCK SIZE [on=S] [pool=A,B]   allocate; the defaults are on=s0 and the default pool
//	try SIZE [on=S] [pool=A,B]           allocate, and free the block at once if that succeeds
//	free BLOCK [used=S,S...]             free; the streams in used may still touch the block
//	free BLOCK pending                   free, while an unnamed stream uses it, until:
//	complete BLOCK                       that stream no longer uses it
//	work S                               queue work on S that completes at a sync
//	sync S                               complete all work queued on S, and all work that it waits for
//	wait S S                             later work on the first stream starts after the queued work of the second
//	empty_cache                          free cached memory
//	limit SIZE                           limit the allocator from now on
//	stats [KEY...]                       print statistics by the keys of mem.Stats.Map (default: all that are not 0)
//	segments                             print the segments
//	snapshot                             print the segments and their blocks
//
// Blocks are named with letters, digits, "_", "." and "-", beginning with a letter or "_"; the name of a freed block
// may be used again. Streams are s0, the default stream, s1, s2 and so on; pools are A,B as in mem.PoolID. Sizes are as
// package bytesize reads them.
//
// A # at the start of a word begins a comment that extends to the end of the line. Printing preserves comments, blank
// lines and the expected output, but not the spacing of a line, the order of its options or the notation of a size.
type Script struct {
	Commands    []Command // one for each line: Commands[i] is on line i+1
	HasExpected bool      // the script has the line of dashes
	Expected    string    // the text after that line
}

// A Command is one line of a Script.
type Command struct {
	Verb    Verb
	Name    string     // the block, or the name of the device or allocator
	Args    []string   // words of device, allocator and stats; nil if none
	Size    int64      // of alloc, try and limit
	Stream  uint32     // of alloc, try, work, sync and wait: s0 is 0
	Other   uint32     // of wait: the stream that is waited for
	Used    []uint32   // of free; nil if none
	Pending bool       // of free
	Pool    mem.PoolID // of alloc and try
	Comment string     // with its #, without surrounding space
}

// A Verb is the first word of a command.
type Verb uint8

const (
	VerbNone Verb = iota // a blank line or only a comment
	VerbDevice
	VerbAllocator
	VerbAlloc
	VerbTry
	VerbFree
	VerbComplete
	VerbWork
	VerbSync
	VerbWait
	VerbEmptyCache
	VerbLimit
	VerbStats
	VerbSegments
	VerbSnapshot
	numVerbs
)

var verbNames = [numVerbs]string{
	"", "device", "allocator", "alloc", "try", "free", "complete", "work", "sync", "wait", "empty_cache", "limit",
	"stats", "segments", "snapshot",
}

// String returns the word; that of VerbNone is empty.
func (v Verb) String() string {
	if v < numVerbs {
		return verbNames[v]
	}
	return fmt.Sprintf("Verb(%d)", uint8(v))
}

// MaxScriptStream is the highest stream number in a script: sN means that N+1 streams exist.
const MaxScriptStream = 4095

const scriptSeparator = "----"

// A ScriptError reports an error in a script, with its position.
type ScriptError struct {
	Line, Column int // from 1; columns count bytes
	What         string
}

func (e *ScriptError) Error() string {
	return fmt.Sprintf("script:%d:%d: %s", e.Line, e.Column, e.What)
}

// DeviceSpec returns the spec of a device command for driver.Open: "sim:total=1MiB,seed=7".
func (c *Command) DeviceSpec() string {
	if len(c.Args) == 0 {
		return c.Name
	}
	return c.Name + ":" + strings.Join(c.Args, ",")
}

// Settings returns the settings of an allocator command: its words, with one space between them.
func (c *Command) Settings() string { return strings.Join(c.Args, " ") }

// String returns the script as text, each command on a line of its own.
func (s *Script) String() string {
	var b []byte
	for i := range s.Commands {
		b = append(s.Commands[i].appendTo(b), '\n')
	}
	if s.HasExpected {
		b = append(b, scriptSeparator+"\n"...)
		b = append(b, s.Expected...)
	}
	return string(b)
}

// String returns the command as its line of text, without a newline.
func (c *Command) String() string { return string(c.appendTo(nil)) }

func (c *Command) appendTo(b []byte) []byte {
	word := func(words ...string) {
		b = append(b, ' ')
		for _, w := range words {
			b = append(b, w...)
		}
	}
	b = append(b, c.Verb.String()...)
	switch c.Verb {
	case VerbDevice, VerbAllocator:
		word(c.Name)
	case VerbAlloc, VerbFree, VerbComplete:
		word(c.Name)
	case VerbWork, VerbSync:
		word(streamName(c.Stream))
	case VerbWait:
		word(streamName(c.Stream))
		word(streamName(c.Other))
	}
	switch c.Verb {
	case VerbAlloc, VerbTry, VerbLimit:
		word(bytesize.Exact(c.Size))
	}
	for _, a := range c.Args {
		word(a)
	}
	switch c.Verb {
	case VerbAlloc, VerbTry:
		word("on=", streamName(c.Stream))
		if c.Pool != (mem.PoolID{}) {
			word(fmt.Sprintf("pool=%d,%d", c.Pool[0], c.Pool[1]))
		}
	case VerbFree:
		for i, s := range c.Used {
			if i == 0 {
				word("used=", streamName(s))
			} else {
				b = append(append(b, ','), streamName(s)...)
			}
		}
		if c.Pending {
			word("pending")
		}
	}
	if c.Comment != "" {
		if len(b) > 0 && c.Verb != VerbNone {
			b = append(b, ' ')
		}
		b = append(b, c.Comment...)
	}
	return b
}

func streamName(n uint32) string { return "s" + strconv.FormatUint(uint64(n), 10) }
