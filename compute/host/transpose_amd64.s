#include "textflag.h"

// Rows of a source turned to columns of a tile. Registers: DI the tile, R8 from one of its rows to the next and R9 three
// times that; SI the source, R10 from one of its rows to the next and R11 three times that, R12, R13 and DX the rows 4, 8
// and 12 of the source; CX the columns that are left, and BX those of them that are in one line of the cache. The upper half
// of a register has the second half of the rows, so that each half is turned by itself. The lines that the next call reads
// are fetched at the same time: they are too far apart for the processor to guess.

#define ARGUMENTS \
	MOVQ tile+0(FP), DI   \
	MOVQ src+8(FP), SI    \
	MOVQ pitch+16(FP), R8 \
	MOVQ step+24(FP), R10 \
	MOVQ n+32(FP), CX     \
	LEAQ (R8)(R8*2), R9   \
	LEAQ (R10)(R10*2), R11

#define ROWS16 \
	LEAQ (SI)(R10*4), R12 \
	LEAQ (SI)(R10*8), R13 \
	LEAQ (R12)(R10*8), DX

// FETCH4 fetches a line of each of four rows.
#define FETCH4(BASE) \
	PREFETCHT1 (BASE)        \
	PREFETCHT1 (BASE)(R10*1) \
	PREFETCHT1 (BASE)(R10*2) \
	PREFETCHT1 (BASE)(R11*1)

#define FETCH8 \
	LEAQ (SI)(R10*8), AX \
	FETCH4(AX)           \
	LEAQ (AX)(R10*4), AX \
	FETCH4(AX)

#define FETCH16 \
	LEAQ (R13)(R10*8), AX \
	FETCH4(AX)            \
	LEAQ (AX)(R10*4), AX  \
	FETCH4(AX)            \
	LEAQ (AX)(R10*4), AX  \
	FETCH4(AX)            \
	LEAQ (AX)(R10*4), AX  \
	FETCH4(AX)

// LOAD16 loads 16 bytes of each of 16 rows.
#define LOAD16 \
	VMOVDQU     (SI), X0                   \
	VMOVDQU     (SI)(R10*1), X1            \
	VMOVDQU     (SI)(R10*2), X2            \
	VMOVDQU     (SI)(R11*1), X3            \
	VMOVDQU     (R12), X4                  \
	VMOVDQU     (R12)(R10*1), X5           \
	VMOVDQU     (R12)(R10*2), X6           \
	VMOVDQU     (R12)(R11*1), X7           \
	VINSERTI128 $1, (R13), Y0, Y0          \
	VINSERTI128 $1, (R13)(R10*1), Y1, Y1   \
	VINSERTI128 $1, (R13)(R10*2), Y2, Y2   \
	VINSERTI128 $1, (R13)(R11*1), Y3, Y3   \
	VINSERTI128 $1, (DX), Y4, Y4           \
	VINSERTI128 $1, (DX)(R10*1), Y5, Y5    \
	VINSERTI128 $1, (DX)(R10*2), Y6, Y6    \
	VINSERTI128 $1, (DX)(R11*1), Y7, Y7    \
	ADDQ        $16, SI                    \
	ADDQ        $16, R12                   \
	ADDQ        $16, R13                   \
	ADDQ        $16, DX

// STORE4 stores the rows of four columns.
#define STORE4(A, B, C, D) \
	VMOVDQU A, (DI)          \
	VMOVDQU B, (DI)(R8*1)    \
	VMOVDQU C, (DI)(R8*2)    \
	VMOVDQU D, (DI)(R9*1)    \
	LEAQ    (DI)(R8*4), DI

// HALVES stores two columns of 16 bytes, whose halves alternate.
#define HALVES(Y, X) \
	VPERMQ       $0xd8, Y, Y   \
	VMOVDQU      X, (DI)       \
	VEXTRACTI128 $1, Y, (DI)(R8*1) \
	LEAQ         (DI)(R8*2), DI

// func transpose1(tile, src unsafe.Pointer, pitch, step, n int)
TEXT ·transpose1(SB), NOSPLIT, $0-40
	ARGUMENTS
	ROWS16

line1:
	FETCH16
	MOVQ $4, BX

loop1:
	LOAD16
	VPUNPCKLBW Y1, Y0, Y8
	VPUNPCKHBW Y1, Y0, Y9
	VPUNPCKLBW Y3, Y2, Y10
	VPUNPCKHBW Y3, Y2, Y11
	VPUNPCKLBW Y5, Y4, Y12
	VPUNPCKHBW Y5, Y4, Y13
	VPUNPCKLBW Y7, Y6, Y14
	VPUNPCKHBW Y7, Y6, Y15
	VPUNPCKLWD Y10, Y8, Y0
	VPUNPCKHWD Y10, Y8, Y1
	VPUNPCKLWD Y11, Y9, Y2
	VPUNPCKHWD Y11, Y9, Y3
	VPUNPCKLWD Y14, Y12, Y4
	VPUNPCKHWD Y14, Y12, Y5
	VPUNPCKLWD Y15, Y13, Y6
	VPUNPCKHWD Y15, Y13, Y7
	VPUNPCKLDQ Y4, Y0, Y8
	VPUNPCKHDQ Y4, Y0, Y9
	VPUNPCKLDQ Y5, Y1, Y10
	VPUNPCKHDQ Y5, Y1, Y11
	VPUNPCKLDQ Y6, Y2, Y12
	VPUNPCKHDQ Y6, Y2, Y13
	VPUNPCKLDQ Y7, Y3, Y14
	VPUNPCKHDQ Y7, Y3, Y15
	HALVES(Y8, X8)
	HALVES(Y9, X9)
	HALVES(Y10, X10)
	HALVES(Y11, X11)
	HALVES(Y12, X12)
	HALVES(Y13, X13)
	HALVES(Y14, X14)
	HALVES(Y15, X15)
	DECQ BX
	JNE  loop1
	SUBQ $64, CX
	JNE  line1
	VZEROUPPER
	RET

// func transpose2(tile, src unsafe.Pointer, pitch, step, n int)
TEXT ·transpose2(SB), NOSPLIT, $0-40
	ARGUMENTS
	ROWS16

line2:
	FETCH16
	MOVQ $4, BX

loop2:
	LOAD16
	VPUNPCKLWD  Y1, Y0, Y8
	VPUNPCKHWD  Y1, Y0, Y9
	VPUNPCKLWD  Y3, Y2, Y10
	VPUNPCKHWD  Y3, Y2, Y11
	VPUNPCKLWD  Y5, Y4, Y12
	VPUNPCKHWD  Y5, Y4, Y13
	VPUNPCKLWD  Y7, Y6, Y14
	VPUNPCKHWD  Y7, Y6, Y15
	VPUNPCKLDQ  Y10, Y8, Y0
	VPUNPCKHDQ  Y10, Y8, Y1
	VPUNPCKLDQ  Y11, Y9, Y2
	VPUNPCKHDQ  Y11, Y9, Y3
	VPUNPCKLDQ  Y14, Y12, Y4
	VPUNPCKHDQ  Y14, Y12, Y5
	VPUNPCKLDQ  Y15, Y13, Y6
	VPUNPCKHDQ  Y15, Y13, Y7
	VPUNPCKLQDQ Y4, Y0, Y8
	VPUNPCKHQDQ Y4, Y0, Y9
	VPUNPCKLQDQ Y5, Y1, Y10
	VPUNPCKHQDQ Y5, Y1, Y11
	VPUNPCKLQDQ Y6, Y2, Y12
	VPUNPCKHQDQ Y6, Y2, Y13
	VPUNPCKLQDQ Y7, Y3, Y14
	VPUNPCKHQDQ Y7, Y3, Y15
	STORE4(Y8, Y9, Y10, Y11)
	STORE4(Y12, Y13, Y14, Y15)
	DECQ BX
	JNE  loop2
	SUBQ $32, CX
	JNE  line2
	VZEROUPPER
	RET

// func transpose4(tile, src unsafe.Pointer, pitch, step, n int)
TEXT ·transpose4(SB), NOSPLIT, $0-40
	ARGUMENTS
	LEAQ (SI)(R10*4), R12

line4:
	FETCH8
	MOVQ $4, BX

loop4:
	VMOVUPS     (SI), X0
	VMOVUPS     (SI)(R10*1), X1
	VMOVUPS     (SI)(R10*2), X2
	VMOVUPS     (SI)(R11*1), X3
	VINSERTF128 $1, (R12), Y0, Y0
	VINSERTF128 $1, (R12)(R10*1), Y1, Y1
	VINSERTF128 $1, (R12)(R10*2), Y2, Y2
	VINSERTF128 $1, (R12)(R11*1), Y3, Y3
	ADDQ        $16, SI
	ADDQ        $16, R12
	VUNPCKLPS   Y1, Y0, Y4
	VUNPCKHPS   Y1, Y0, Y5
	VUNPCKLPS   Y3, Y2, Y6
	VUNPCKHPS   Y3, Y2, Y7
	VUNPCKLPD   Y6, Y4, Y0
	VUNPCKHPD   Y6, Y4, Y1
	VUNPCKLPD   Y7, Y5, Y2
	VUNPCKHPD   Y7, Y5, Y3
	STORE4(Y0, Y1, Y2, Y3)
	DECQ BX
	JNE  loop4
	SUBQ $16, CX
	JNE  line4
	VZEROUPPER
	RET

// func transpose8(tile, src unsafe.Pointer, pitch, step, n int)
TEXT ·transpose8(SB), NOSPLIT, $0-40
	ARGUMENTS

line8:
	LEAQ (SI)(R10*4), AX
	FETCH4(AX)
	MOVQ $2, BX

loop8:
	VMOVUPD     (SI), X0
	VMOVUPD     (SI)(R10*1), X1
	VINSERTF128 $1, (SI)(R10*2), Y0, Y0
	VINSERTF128 $1, (SI)(R11*1), Y1, Y1
	VMOVUPD     16(SI), X2
	VMOVUPD     16(SI)(R10*1), X3
	VINSERTF128 $1, 16(SI)(R10*2), Y2, Y2
	VINSERTF128 $1, 16(SI)(R11*1), Y3, Y3
	ADDQ        $32, SI
	VUNPCKLPD   Y1, Y0, Y4
	VUNPCKHPD   Y1, Y0, Y5
	VUNPCKLPD   Y3, Y2, Y6
	VUNPCKHPD   Y3, Y2, Y7
	STORE4(Y4, Y5, Y6, Y7)
	DECQ BX
	JNE  loop8
	SUBQ $8, CX
	JNE  line8
	VZEROUPPER
	RET

// func streamRows(dst, tile unsafe.Pointer, step, pitch, size, rows int)
//
// DI dst and R8 from one of its rows to the next, SI and R10 likewise of the tile, DX the bytes of a row, CX the rows that
// are left, AX the bytes that are left of one.
TEXT ·streamRows(SB), NOSPLIT, $0-48
	MOVQ dst+0(FP), DI
	MOVQ tile+8(FP), SI
	MOVQ step+16(FP), R8
	MOVQ pitch+24(FP), R10
	MOVQ size+32(FP), DX
	MOVQ rows+40(FP), CX
	SUBQ DX, R8
	SUBQ DX, R10

row:
	MOVQ DX, AX

line:
	VMOVUPS  (SI), Y0
	VMOVUPS  32(SI), Y1
	VMOVNTPS Y0, (DI)
	VMOVNTPS Y1, 32(DI)
	ADDQ     $64, SI
	ADDQ     $64, DI
	SUBQ     $64, AX
	JNE      line
	ADDQ     R8, DI
	ADDQ     R10, SI
	DECQ     CX
	JNE      row
	SFENCE
	VZEROUPPER
	RET
