package planned

import (
	"bufio"
	"errors"
	"fmt"
	"hash"
	"hash/crc64"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/ashlar-go/ashlar/internal/countio"
)

// The format is text, one item on each line:
//
//	ashlar plan 2                             1 without lines "start"
//	trace "gpt2"
//	device "NVIDIA H200" 150109880320 512     name, bytes, alignment; "" and 0 do not matter
//	room 0
//	start 3145728 24 24 48                    size, and Start.Runs
//	lane 0,2 loop - size 19210855936          its streams, and then its slots: size, offset or -, end or -, and, with
//	                                          several streams, the index of the slot's
//	step                                      before a slot with which a step begins
//	154389504 0 - 0
//	3145728 154389504 412 1
//	sum 5f0c1f2ad37c6a10                      CRC-64 (ISO) of all before this line
const (
	header      = "ashlar plan 1"
	startHeader = "ashlar plan 2"
)

const maxLine = 4096 // bytes

var sumTable = crc64.MakeTable(crc64.ISO)

// A FileError reports an invalid file of a plan.
type FileError struct {
	Line int // from 1; 0 if the lines contradict each other
	What string
}

func (e *FileError) Error() string {
	if e.Line == 0 {
		return "planned: a plan that cannot be used: " + e.What
	}
	return fmt.Sprintf("planned: line %d of a plan: %s", e.Line, e.What)
}

// WriteTo implements io.WriterTo, in the format of Read. Errors are those of w.
func (p *Plan) WriteTo(w io.Writer) (n int64, err error) {
	sum := crc64.New(sumTable)
	counted := &countio.Writer{W: w}
	out := bufio.NewWriter(counted)
	both := io.MultiWriter(out, sum)
	first := header
	if len(p.Start) > 0 {
		first = startHeader
	}
	fmt.Fprintf(both, "%s\ntrace %q\ndevice %q %d %d\nroom %d\n", first, p.Trace, p.Device.Name, p.Device.TotalMemory,
		p.Device.Alignment, p.Room)
	for _, s := range p.Start {
		fmt.Fprintln(both, "start", s.Size, strings.Trim(fmt.Sprint(s.Runs), "[]"))
	}
	var line []byte
	for i := range p.Streams {
		l := &p.Streams[i]
		fmt.Fprintf(both, "lane %s loop %s size %d\n", strings.Join(l.names(), ","),
			orDash(int64(l.Loop), l.Loop != -1), l.Size)
		steps := l.Steps
		for k, s := range l.Slots {
			if len(steps) > 0 && steps[0] == k {
				steps = steps[1:]
				io.WriteString(both, "step\n")
			}
			line = strconv.AppendInt(line[:0], s.Size, 10)
			line = append(append(line, ' '), orDash(s.Offset, s.Offset != -1)...)
			line = append(append(line, ' '), orDash(int64(s.End), s.End != Forever)...)
			if len(l.Shared) > 0 {
				line = strconv.AppendInt(append(line, ' '), int64(s.Stream), 10)
			}
			both.Write(append(line, '\n'))
		}
	}
	fmt.Fprintf(out, "sum %016x\n", sum.Sum64())
	err = out.Flush() // also the error of earlier writes
	return counted.N, err
}

// names returns the numbers of the streams as text.
func (l *StreamPlan) names() (names []string) {
	for _, n := range l.Numbers() {
		names = append(names, strconv.Itoa(n))
	}
	return names
}

func orDash(n int64, known bool) string {
	if !known {
		return "-"
	}
	return strconv.FormatInt(n, 10)
}

// Read reads a plan. The error is that of r, or a *FileError, also for a plan in which two blocks would share memory.
// Memory use is proportional to the bytes read.
func Read(r io.Reader) (*Plan, error) {
	f := &reader{in: bufio.NewReaderSize(r, maxLine), sum: crc64.New(sumTable)}
	p, err := f.plan()
	if err == nil {
		if wrong := p.Check(); wrong != nil {
			err = &FileError{What: strings.TrimPrefix(wrong.Error(), "planned: ")}
		}
	}
	if err != nil {
		return nil, err
	}
	return p, nil
}

type reader struct {
	in   *bufio.Reader
	sum  hash.Hash64 // of the lines before this one
	line []byte
	n    int
}

// next reads a line. The line is added to the sum when the next one is read.
func (f *reader) next() (string, error) {
	f.sum.Write(f.line)
	f.n++
	line, err := f.in.ReadSlice('\n')
	f.line = append(f.line[:0], line...)
	switch {
	case errors.Is(err, bufio.ErrBufferFull) && f.n == 1:
		return "", f.wrong("%.60q, want %q: this is no plan", line, header)
	case errors.Is(err, bufio.ErrBufferFull):
		return "", f.wrong("it has more than %d bytes", maxLine)
	case errors.Is(err, io.EOF):
		return "", f.wrong("the file ends early")
	case err != nil:
		return "", err
	}
	return string(line[:len(line)-1]), nil
}

func (f *reader) wrong(format string, args ...any) error {
	return &FileError{f.n, fmt.Sprintf(format, args...)}
}

func (f *reader) plan() (*Plan, error) {
	p := &Plan{}
	line, err := f.next()
	if err == nil && line != header && line != startHeader {
		err = f.wrong("%.60q, want %q or %q: not a plan, or one of another version", line, header, startHeader)
	}
	if err == nil {
		err = f.fields("trace %q", &p.Trace)
	}
	if err == nil {
		err = f.fields("device %q %d %d", &p.Device.Name, &p.Device.TotalMemory, &p.Device.Alignment)
	}
	if err == nil {
		err = f.fields("room %d", &p.Room)
	}
	for err == nil {
		if line, err = f.next(); err != nil {
			break
		}
		if text, ok := strings.CutPrefix(line, "sum "); ok {
			return p, f.end(text)
		}
		if text, ok := strings.CutPrefix(line, "start "); ok && len(p.Streams) == 0 {
			err = f.start(p, text)
			continue
		}
		if strings.HasPrefix(line, "lane ") {
			err = f.stream(p, line)
			continue
		}
		if line == "step" && len(p.Streams) > 0 {
			l := &p.Streams[len(p.Streams)-1]
			l.Steps = append(l.Steps, len(l.Slots))
			continue
		}
		err = f.slot(p, line)
	}
	return nil, err
}

// fields reads a line of a fixed form.
func (f *reader) fields(format string, into ...any) error {
	line, err := f.next()
	if err != nil {
		return err
	}
	if n, err := fmt.Sscanf(line+"\n", format+"\n", into...); err != nil || n != len(into) {
		return f.wrong("%.60q, want %s", line, format)
	}
	return nil
}

func (f *reader) stream(p *Plan, line string) error {
	l := StreamPlan{Loop: -1}
	words := strings.Fields(line)
	if len(words) != 6 || words[2] != "loop" || words[4] != "size" {
		return f.wrong("%.60q, want lane NUMBERS loop POSITION size BYTES", line)
	}
	err := l.setNumbers(strings.Split(words[1], ","))
	if err == nil && words[3] != "-" {
		l.Loop, err = strconv.Atoi(words[3])
	}
	if err == nil {
		l.Size, err = strconv.ParseInt(words[5], 10, 64)
	}
	switch {
	case err != nil || words[3] != "-" && l.Loop < 0:
		return f.wrong("%.60q, want whole numbers from 0 to %d", line, int64(math.MaxInt64))
	case len(p.Streams) == maxStreams:
		return f.wrong("more than %d lanes: want no more", maxStreams)
	}
	p.Streams = append(p.Streams, l)
	return nil
}

func (f *reader) start(p *Plan, text string) error {
	numbers := make([]int, 0, 8)
	for word := range strings.FieldsSeq(text) {
		n, err := strconv.Atoi(word)
		if err != nil {
			return f.wrong("start %.60q, want start SIZE BLOCKS...", text)
		}
		numbers = append(numbers, n)
	}
	if len(numbers) == 0 {
		return f.wrong("an empty start, want start SIZE BLOCKS...")
	}
	p.Start = append(p.Start, Start{int64(numbers[0]), numbers[1:]})
	return nil
}

// setNumbers sets the streams by their numbers as text.
func (l *StreamPlan) setNumbers(names []string) (err error) {
	if l.Stream, err = strconv.Atoi(names[0]); err != nil {
		return err
	}
	for _, name := range names[1:] {
		n, err := strconv.Atoi(name)
		if err != nil {
			return err
		}
		l.Shared = append(l.Shared, n)
	}
	return nil
}

func (f *reader) slot(p *Plan, line string) error {
	if len(p.Streams) == 0 {
		return f.wrong("%.60q, want a lane", line)
	}
	l := &p.Streams[len(p.Streams)-1]
	s := Slot{Offset: -1, End: Forever}
	size, rest, _ := strings.Cut(line, " ")
	offset, end, ok := strings.Cut(rest, " ")
	var errs [4]error
	want := "SIZE OFFSET END"
	if len(l.Shared) > 0 {
		var stream string
		want += " STREAM"
		end, stream, _ = strings.Cut(end, " ")
		s.Stream, errs[3] = strconv.Atoi(stream)
	}
	s.Size, errs[0] = strconv.ParseInt(size, 10, 64)
	if offset != "-" {
		s.Offset, errs[1] = strconv.ParseInt(offset, 10, 64)
	}
	if end != "-" {
		s.End, errs[2] = strconv.Atoi(end)
	}
	switch {
	case !ok || errors.Join(errs[:]...) != nil || s.End >= Forever && end != "-" || s.Offset < 0 && offset != "-":
		return f.wrong("%.60q, want %s", line, want)
	case len(l.Slots) == maxSlots:
		return f.wrong("more than %d slots", maxSlots)
	}
	l.Slots = append(l.Slots, s)
	return nil
}

// end checks the sum, and that nothing follows.
func (f *reader) end(text string) error {
	if want := fmt.Sprintf("%016x", f.sum.Sum64()); text != want {
		return f.wrong("sum %.20q, want %q: the file was changed, or copied wrongly", text, want)
	}
	if _, err := f.in.ReadByte(); !errors.Is(err, io.EOF) {
		if err != nil {
			return err
		}
		return f.wrong("something follows")
	}
	return nil
}
