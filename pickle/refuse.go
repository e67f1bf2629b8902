package pickle

import "strconv"

// longestName is the maximum length of a name in an error, in bytes.
const longestName = 200

const plainOnly = "only plain data is supported, and no code is run"

// refuseOpcode returns the error for m.op, an opcode that is not one of plain data. It reads the arguments for the
// message only.
func (m *machine) refuseOpcode() error {
	switch m.op {
	case opGlobal:
		return m.refuse("asks for %s: refused; %s", m.names(), plainOnly)
	case opInst:
		return m.refuse("asks for an instance of %s: refused; %s", m.names(), plainOnly)
	case opStackGlobal:
		return m.refuse("asks for %s: refused; %s", m.stackNames(), plainOnly)
	case opReduce:
		return m.refuse("calls a function: refused; %s", plainOnly)
	case opBuild:
		return m.refuse("sets the state of an object: refused; %s", plainOnly)
	case opObj, opNewObj, opNewObjEx:
		return m.refuse("makes an instance of a class: refused; %s", plainOnly)
	case opExt1, opExt2, opExt4:
		return m.refuse("asks for extension %s: refused; %s", m.extension(), plainOnly)
	case opPersID:
		return m.refuse("asks for the persistent object %s: refused; %s", m.quoted(m.in.line(longestName)), plainOnly)
	case opBinPersID:
		return m.refuse("asks for a persistent object: refused; %s", plainOnly)
	case opNextBuffer, opReadOnlyBuffer:
		return m.refuse("asks for a buffer outside the file: refused; %s", plainOnly)
	case opEmptySet, opAddItems, opFrozenSet:
		return m.refuse("makes a set: want dict, list, tuple, str, bytes, int, float, bool and None")
	case opInt, opLong, opFloat, opString, opUnicode, opGet, opPut:
		return m.refuse("is of protocol 0: want protocols 2 to 5; load the file in Python and dump it again")
	case opBinString, opShortBinString:
		return m.refuse("is a string of Python 2: this reads the pickles of Python 3; load the file in Python 3 " +
			"and dump it anew")
	}
	return m.corrupt("does not exist")
}

// names reads the two lines of GLOBAL and INST: a module and a name in it.
func (m *machine) names() string {
	module := m.in.line(longestName)
	shown := m.quoted(module)
	return shown + "." + m.quoted(m.in.line(longestName))
}

// stackNames returns the module and the name that STACK_GLOBAL takes from the stack.
func (m *machine) stackNames() string {
	top := m.stack[m.fence:]
	if len(top) < 2 {
		return "a name that is not there"
	}
	module, ok1 := m.doc.Str(top[len(top)-2])
	name, ok2 := m.doc.Str(top[len(top)-1])
	if !ok1 || !ok2 {
		return "a name that is not a str"
	}
	return m.quoted([]byte(module[:min(len(module), longestName)])) + "." +
		m.quoted([]byte(name[:min(len(name), longestName)]))
}

// extension returns the number in the argument of EXT1, EXT2 or EXT4.
func (m *machine) extension() string {
	width := 1
	switch m.op {
	case opExt2:
		width = 2
	case opExt4:
		width = 4
	}
	if m.in.buffered() < width {
		return "of a number that is not there"
	}
	return strconv.FormatUint(little(m.in.take(width)), 10)
}

// quoted returns a name from the file unchanged if it is printable, and otherwise quoted.
func (m *machine) quoted(name []byte) string {
	for _, c := range name {
		if c <= ' ' || c >= 0x7f || c == '"' {
			return strconv.Quote(string(name))
		}
	}
	if len(name) == 0 {
		return `""`
	}
	return string(name)
}
