package pickle

import (
	"encoding/binary"
	"fmt"
	"strings"
)

// A hostile input is a pickle that no honest writer produces, with the expected error.
type hostile struct {
	name string
	data string
	code error
	text string // a part of the error
}

const p2, p4 = "\x80\x02", "\x80\x04"

func le32(n uint32) string { return string(binary.LittleEndian.AppendUint32(nil, n)) }
func le64(n uint64) string { return string(binary.LittleEndian.AppendUint64(nil, n)) }

// hostileInputs are the inputs for the default Limits.
func hostileInputs() []hostile {
	var all []hostile
	add := func(name, data string, code error, text string) {
		all = append(all, hostile{name, data, code, text})
	}

	// Execution of code, in every form in which a pickle can request it.
	for _, name := range [][2]string{
		{"os", "system"},
		{"posix", "system"},
		{"nt", "system"},
		{"builtins", "eval"},
		{"builtins", "exec"},
		{"__builtin__", "eval"},
		{"subprocess", "Popen"},
		{"torch._utils", "_rebuild_tensor_v2"},
	} {
		dotted := name[0] + "." + name[1]
		add("GLOBAL "+dotted, p2+"c"+name[0]+"\n"+name[1]+"\n(X\x02\x00\x00\x00idtR.",
			ErrRefused, "GLOBAL asks for "+dotted+":")
		add("INST "+dotted, p2+"(X\x02\x00\x00\x00idi"+name[0]+"\n"+name[1]+"\n.", ErrRefused, "an instance of "+dotted+":")
		add("STACK_GLOBAL "+dotted,
			p4+"\x8c"+string(rune(len(name[0])))+name[0]+"\x8c"+string(rune(len(name[1])))+name[1]+"\x93.",
			ErrRefused, "STACK_GLOBAL asks for "+dotted+":")
		add("GLOBAL deep "+dotted, p2+"}(K\x01](c"+name[0]+"\n"+name[1]+"\neu.", ErrRefused, "asks for "+dotted+":")
	}
	add("GLOBAL after DUP", p2+"N2cos\nsystem\n.", ErrRefused, "offset 4: GLOBAL asks for os.system")
	add("GLOBAL without names", p2+"c", ErrRefused, `asks for ""."":`)
	add("GLOBAL without a newline", p2+"cos", ErrRefused, `asks for os."":`)
	add("GLOBAL of an endless name", p2+"c"+strings.Repeat("a", 1<<20), ErrRefused, "asks for aaaa")
	add("GLOBAL of control characters", p2+"c\x1b[2Jos\nsystem\n.", ErrRefused, `"\x1b[2Jos".system`)
	add("STACK_GLOBAL of ints", p4+"K\x01K\x02\x93.", ErrRefused, "a name that is not a str")
	add("STACK_GLOBAL of nothing", p4+"\x93.", ErrRefused, "a name that is not there")
	add("STACK_GLOBAL below a mark", p4+"\x8c\x02os\x8c\x06system(\x93.", ErrRefused, "a name that is not there")
	add("STACK_GLOBAL from the memo", p4+"\x8c\x02os\x94\x8c\x06system\x940h\x00h\x01\x93.",
		ErrRefused, "asks for os.system")
	for _, c := range []struct{ name, data, text string }{
		{"REDUCE", "N)R", "calls a function"},
		{"BUILD", "N}b", "sets the state"},
		{"OBJ", "(No", "an instance of a class"},
		{"NEWOBJ", "N)\x81", "an instance of a class"},
		{"NEWOBJ_EX", "N)}\x92", "an instance of a class"},
		{"EXT1", "\x82\x07", "extension 7"},
		{"EXT2", "\x83\x07\x01", "extension 263"},
		{"EXT4", "\x84\x07\x00\x00\x01", "extension 16777223"},
		{"EXT4 cut", "\x84\x07", "not there"},
		{"PERSID", "Pfoo\n", "persistent object foo"},
		{"BINPERSID", "NQ", "a persistent object"},
		{"NEXT_BUFFER", "\x97", "a buffer outside"},
		{"READONLY_BUFFER", "N\x98", "a buffer outside"},
		{"EMPTY_SET", "\x8f", "makes a set"},
		{"ADDITEMS", "\x8f(K\x01\x90", "makes a set"},
		{"FROZENSET", "(K\x01\x91", "makes a set"},
		{"INT", "I1\n", "protocol 0"},
		{"INT true", "I01\n", "protocol 0"},
		{"LONG", "L1L\n", "protocol 0"},
		{"FLOAT", "F1.0\n", "protocol 0"},
		{"STRING", "S'a'\n", "protocol 0"},
		{"UNICODE", "Va\n", "protocol 0"},
		{"GET", "g0\n", "protocol 0"},
		{"PUT", "Np0\n", "protocol 0"},
		{"BINSTRING", "T\x01\x00\x00\x00a", "Python 2"},
		{"SHORT_BINSTRING", "U\x01a", "Python 2"},
	} {
		add(c.name, p4+c.data+".", ErrRefused, c.text)
	}

	// Lengths that lie.
	for _, c := range []struct {
		name, opcode string
		width        int
	}{
		{"BINUNICODE", "X", 4},
		{"BINUNICODE8", "\x8d", 8},
		{"BINBYTES", "B", 4},
		{"BINBYTES8", "\x8e", 8},
		{"BYTEARRAY8", "\x96", 8},
	} {
		for _, n := range []uint64{1<<31 - 1, 1<<32 - 1, 1 << 40, 1 << 63, 1<<64 - 1} {
			if c.width == 4 && n >= 1<<32 {
				continue
			}
			add(fmt.Sprintf("%s of %d bytes", c.name, n), p4+c.opcode+le64(n)[:c.width]+"abc.", ErrLimit, "declares a length")
		}
		add(c.name+" of 2^29 bytes", p4+c.opcode+le64(1 << 29)[:c.width]+"abc.", ErrTruncated, "inside its argument")
		add(c.name+" without a length", p4+c.opcode, ErrTruncated, "inside its argument")
	}
	add("SHORT_BINUNICODE too long", p4+"\x8c\xffabc.", ErrTruncated, "inside its argument")
	add("SHORT_BINBYTES too long", p4+"C\xffabc.", ErrTruncated, "inside its argument")
	add("LONG1 too long", p4+"\x8a\xffabc.", ErrTruncated, "inside its argument")
	add("LONG4 too long", p4+"\x8b"+le32(1000)+"abc.", ErrTruncated, "inside its argument")
	add("LONG4 of 2 GiB", p4+"\x8b"+le32(1<<31-1)+"abc.", ErrRange, "has an integer of 2147483647 bytes")
	add("LONG4 of negative length", p4+"\x8b"+le32(1<<31)+"abc.", ErrCorrupt, "negative length")
	add("LONG1 of 2^64", p4+"\x8a\x09"+le64(0)+"\x01.", ErrRange, "above the largest")
	add("LONG1 below -2^63", p4+"\x8a\x09"+le64(0)+"\xff.", ErrRange, "below the smallest")
	add("LONG1 of 255 bytes", p4+"\x8a\xff"+strings.Repeat("\x77", 255)+".", ErrRange, "an integer of 255 bytes")
	add("FRAME of 2^63 bytes", p4+"\x95"+le64(1<<63)+"N.", ErrLimit, "declares a frame")
	add("FRAME too long", p4+"\x95"+le64(100)+"N.", ErrCorrupt, "98 bytes before the end of its frame")
	add("FRAME too short", p4+"\x95"+le64(2)+"M\x01\x02.", ErrCorrupt, "crossed the end of its frame")
	add("FRAME in a frame", p4+"\x95"+le64(11)+"\x95"+le64(2)+"N.", ErrCorrupt, "inside the frame")
	add("FRAME cut", p4+"\x95\x01\x02", ErrTruncated, "inside its argument")

	// The memo.
	add("BINGET of nothing", p2+"h\x05.", ErrCorrupt, "memo entry 5, which does not exist")
	add("LONG_BINGET of nothing", p2+"j"+le32(1<<32-1)+".", ErrCorrupt, "memo entry 4294967295")
	add("LONG_BINPUT far away", p2+"Nr"+le32(1<<32-1)+".", ErrLimit, "puts memo entry 4294967295")
	add("MEMOIZE of nothing", p4+"\x94.", ErrCorrupt, "too few values")
	add("BINPUT of nothing", p2+"q\x00.", ErrCorrupt, "too few values")
	add("BINPUT of a mark", p2+"(q\x00.", ErrCorrupt, "too few values above the last mark")
	add("BINGET between entries", p2+"Nr"+le32(1000)+"h\x05.", ErrCorrupt, "memo entry 5")
	add("a gap per entry", p2+"N"+far(5000)+"h\x01.", ErrCorrupt, "memo entry 1,")

	// The stack.
	add("STOP on nothing", p2+".", ErrCorrupt, "finds 0 values")
	add("STOP on two values", p2+"NN.", ErrCorrupt, "finds 2 values")
	add("STOP on an open mark", p2+"N(.", ErrCorrupt, "leaves 1 marks open")
	add("POP of nothing", p2+"0.", ErrCorrupt, "no open mark")
	add("POP_MARK of nothing", p2+"1.", ErrCorrupt, "no open mark")
	add("DUP of nothing", p2+"2.", ErrCorrupt, "too few values")
	add("DUP of a mark", p2+"N(2.", ErrCorrupt, "too few values above the last mark")
	for _, c := range []struct{ name, data, text string }{
		{"APPEND to nothing", "Na", "too few"},
		{"APPEND of nothing", "a", "too few"},
		{"APPEND to None", "NNa", "adds to a None"},
		{"APPEND to a tuple", ")Na", "adds to a tuple"},
		{"APPEND over a mark", "](Na", "too few"},
		{"APPENDS without a mark", "]Ne", "no open mark"},
		{"APPENDS to nothing", "(Ne", "too few"},
		{"APPENDS to a dict", "}(Ne", "adds to a dict"},
		{"SETITEM of one value", "}Ns", "too few"},
		{"SETITEM of a list", "]NNs", "items of a list"},
		{"SETITEMS of an odd count", "}(NNNu", "a key without a value"},
		{"SETITEMS of an int", "K\x01(NNu", "items of a int"},
		{"SETITEMS without a mark", "}NNu", "no open mark"},
		{"SETITEMS over marks", "}((NNu", "too few"},
		{"a list as a key", "}]Ns", "a list as a key"},
		{"a dict as a key", "}(}Nu", "a dict as a key"},
		{"DICT of an odd count", "(Nd", "a key without a value"},
		{"DICT with a list as a key", "(]Nd", "a list as a key"},
		{"DICT without a mark", "d", "no open mark"},
		{"LIST without a mark", "l", "no open mark"},
		{"TUPLE without a mark", "t", "no open mark"},
		{"TUPLE1 of nothing", "\x85", "too few"},
		{"TUPLE2 of one", "N\x86", "too few"},
		{"TUPLE3 of two", "NN\x87", "too few"},
		{"TUPLE2 over a mark", "N(N\x86", "too few"},
	} {
		add(c.name, p2+c.data+".", ErrCorrupt, c.text)
	}

	// Values that contain themselves.
	add("a list in itself", p2+"]q\x00h\x00a.", ErrRefused, "a list that contains itself")
	add("a dict in itself", p2+"}q\x00Nh\x00s.", ErrRefused, "a dict that contains itself")
	add("a tuple in its list", p2+"]q\x00h\x00\x85a.", ErrRefused, "contains itself")
	add("two lists in each other", p2+"]q\x00]q\x01h\x00aa.", ErrRefused, "contains itself")
	add("a list in itself, deep", p2+"]q\x00"+strings.Repeat("]", 500)+"h\x00"+strings.Repeat("a", 501)+".",
		ErrRefused, "contains itself")

	// Depth.
	for _, n := range []int{1001, 100_000, 1_000_000} {
		add(fmt.Sprintf("%d lists deep", n), p2+strings.Repeat("]", n)+strings.Repeat("a", n-1)+".", ErrLimit, "deep")
		add(fmt.Sprintf("%d tuples deep", n), p2+")"+strings.Repeat("\x85", n-1)+".", ErrLimit, "deep")
		add(fmt.Sprintf("%d dicts deep", n), p2+strings.Repeat("}N", n)+"N"+strings.Repeat("s", n)+".", ErrLimit, "deep")
		add(fmt.Sprintf("%d marks", n), p2+strings.Repeat("(", n), ErrLimit, "marks")
	}
	add("a million open lists", p2+strings.Repeat("]", 1_000_000)+".", ErrCorrupt, "finds 1000000 values")

	// Inputs that are not pickles.
	for _, c := range []struct{ name, data, text string }{
		{"text", "hello world", "0x68"},
		{"zeros", "\x00\x00\x00\x00", "0x00"},
		{"JSON", `{"segments": []}`, "0x7b"},
		{"a zip archive", "PK\x03\x04", "0x50"},
		{"gzip", "\x1f\x8b\x08\x00", "0x1f"},
		{"ELF", "\x7fELF", "0x7f"},
	} {
		add(c.name, c.data, ErrCorrupt, c.text)
	}
	add("protocol 0 said", "\x80\x00N.", ErrRefused, "declares protocol 0")
	add("protocol 1 said", "\x80\x01N.", ErrRefused, "declares protocol 1")
	add("protocol 6", "\x80\x06N.", ErrRefused, "declares protocol 6")
	add("protocol 255", "\x80\xffN.", ErrRefused, "declares protocol 255")
	add("PROTO twice", p2+p2+"N.", ErrCorrupt, "in the middle")
	add("nothing", "", ErrTruncated, "where a pickle starts")
	add("one byte", "\x80", ErrTruncated, "where a pickle starts")
	add("no opcodes", p2, ErrTruncated, "before STOP")
	add("no STOP", p2+"N", ErrTruncated, "before STOP")
	for _, op := range []byte{0x00, 0x01, 0x7f, 0x99, 0xff, 'A', '\n', ' '} {
		add(fmt.Sprintf("opcode 0x%02x", op), p2+string([]byte{op})+".", ErrCorrupt, "does not exist")
	}
	return all
}

// far puts n memo entries, each far from the last.
func far(n int) string {
	var b strings.Builder
	for i := range n {
		b.WriteString("r" + le32(uint32(1_000_000+i*90_000)))
	}
	return b.String()
}
