package pickle

import "fmt"

// An Opcode is one instruction of a pickle.
type Opcode byte

// The opcodes of protocols 0 to 5, by the names that Python's pickletools gives them.
const (
	opMark           Opcode = '('
	opStop           Opcode = '.'
	opPop            Opcode = '0'
	opPopMark        Opcode = '1'
	opDup            Opcode = '2'
	opFloat          Opcode = 'F'
	opInt            Opcode = 'I'
	opBinInt         Opcode = 'J'
	opBinInt1        Opcode = 'K'
	opLong           Opcode = 'L'
	opBinInt2        Opcode = 'M'
	opNone           Opcode = 'N'
	opPersID         Opcode = 'P'
	opBinPersID      Opcode = 'Q'
	opReduce         Opcode = 'R'
	opString         Opcode = 'S'
	opBinString      Opcode = 'T'
	opShortBinString Opcode = 'U'
	opUnicode        Opcode = 'V'
	opBinUnicode     Opcode = 'X'
	opAppend         Opcode = 'a'
	opBuild          Opcode = 'b'
	opGlobal         Opcode = 'c'
	opDict           Opcode = 'd'
	opEmptyDict      Opcode = '}'
	opAppends        Opcode = 'e'
	opGet            Opcode = 'g'
	opBinGet         Opcode = 'h'
	opInst           Opcode = 'i'
	opLongBinGet     Opcode = 'j'
	opList           Opcode = 'l'
	opEmptyList      Opcode = ']'
	opObj            Opcode = 'o'
	opPut            Opcode = 'p'
	opBinPut         Opcode = 'q'
	opLongBinPut     Opcode = 'r'
	opSetItem        Opcode = 's'
	opTuple          Opcode = 't'
	opEmptyTuple     Opcode = ')'
	opSetItems       Opcode = 'u'
	opBinFloat       Opcode = 'G'

	opProto    Opcode = 0x80
	opNewObj   Opcode = 0x81
	opExt1     Opcode = 0x82
	opExt2     Opcode = 0x83
	opExt4     Opcode = 0x84
	opTuple1   Opcode = 0x85
	opTuple2   Opcode = 0x86
	opTuple3   Opcode = 0x87
	opNewTrue  Opcode = 0x88
	opNewFalse Opcode = 0x89
	opLong1    Opcode = 0x8a
	opLong4    Opcode = 0x8b

	opBinBytes      Opcode = 'B'
	opShortBinBytes Opcode = 'C'

	opShortBinUnicode Opcode = 0x8c
	opBinUnicode8     Opcode = 0x8d
	opBinBytes8       Opcode = 0x8e
	opEmptySet        Opcode = 0x8f
	opAddItems        Opcode = 0x90
	opFrozenSet       Opcode = 0x91
	opNewObjEx        Opcode = 0x92
	opStackGlobal     Opcode = 0x93
	opMemoize         Opcode = 0x94
	opFrame           Opcode = 0x95

	opByteArray8     Opcode = 0x96
	opNextBuffer     Opcode = 0x97
	opReadOnlyBuffer Opcode = 0x98
)

var opcodeNames = [256]string{
	opMark: "MARK", opStop: "STOP", opPop: "POP", opPopMark: "POP_MARK", opDup: "DUP", opFloat: "FLOAT", opInt: "INT",
	opBinInt: "BININT", opBinInt1: "BININT1", opLong: "LONG", opBinInt2: "BININT2", opNone: "NONE", opPersID: "PERSID",
	opBinPersID: "BINPERSID", opReduce: "REDUCE", opString: "STRING", opBinString: "BINSTRING",
	opShortBinString: "SHORT_BINSTRING", opUnicode: "UNICODE", opBinUnicode: "BINUNICODE", opAppend: "APPEND",
	opBuild: "BUILD", opGlobal: "GLOBAL", opDict: "DICT", opEmptyDict: "EMPTY_DICT", opAppends: "APPENDS", opGet: "GET",
	opBinGet: "BINGET", opInst: "INST", opLongBinGet: "LONG_BINGET", opList: "LIST", opEmptyList: "EMPTY_LIST",
	opObj: "OBJ", opPut: "PUT", opBinPut: "BINPUT", opLongBinPut: "LONG_BINPUT", opSetItem: "SETITEM", opTuple: "TUPLE",
	opEmptyTuple: "EMPTY_TUPLE", opSetItems: "SETITEMS", opBinFloat: "BINFLOAT", opProto: "PROTO", opNewObj: "NEWOBJ",
	opExt1: "EXT1", opExt2: "EXT2", opExt4: "EXT4", opTuple1: "TUPLE1", opTuple2: "TUPLE2", opTuple3: "TUPLE3",
	opNewTrue: "NEWTRUE", opNewFalse: "NEWFALSE", opLong1: "LONG1", opLong4: "LONG4", opBinBytes: "BINBYTES",
	opShortBinBytes: "SHORT_BINBYTES", opShortBinUnicode: "SHORT_BINUNICODE", opBinUnicode8: "BINUNICODE8",
	opBinBytes8: "BINBYTES8", opEmptySet: "EMPTY_SET", opAddItems: "ADDITEMS", opFrozenSet: "FROZENSET",
	opNewObjEx: "NEWOBJ_EX", opStackGlobal: "STACK_GLOBAL", opMemoize: "MEMOIZE", opFrame: "FRAME",
	opByteArray8: "BYTEARRAY8", opNextBuffer: "NEXT_BUFFER", opReadOnlyBuffer: "READONLY_BUFFER",
}

// String returns the name that Python's pickletools gives the opcode, or its number if it has none.
func (o Opcode) String() string {
	if name := opcodeNames[o]; name != "" {
		return name
	}
	return fmt.Sprintf("opcode 0x%02x", byte(o))
}
