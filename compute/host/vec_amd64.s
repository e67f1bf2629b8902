#include "textflag.h"

// Elementwise functions of two operands, 32 bytes at a time and 128 where there are as many.
// Registers: DX dst, SI x, DI y, CX the bytes, a multiple of 32. Y8 to Y11 are for the operation.

// The arithmetic instructions, as operations on registers: X = X op Y.
#define ADDPS(X, Y) VADDPS Y, X, X
#define SUBPS(X, Y) VSUBPS Y, X, X
#define MULPS(X, Y) VMULPS Y, X, X
#define DIVPS(X, Y) VDIVPS Y, X, X
#define ADDPD(X, Y) VADDPD Y, X, X
#define SUBPD(X, Y) VSUBPD Y, X, X
#define MULPD(X, Y) VMULPD Y, X, X
#define DIVPD(X, Y) VDIVPD Y, X, X

// VMAXPS and its like return the second of two zeros, and of two numbers if one is NaN. So both orders are taken: they
// differ for zeros of different signs, which AND (for the greatest) or OR (for the least) settles, and for NaNs, which
// x+y replaces: that is NaN too.
#define EXTREME(OP, SETTLE, CMP, ADD, BLEND, X, Y) \
	OP     Y, X, Y8        \
	OP     X, Y, Y9        \
	SETTLE Y8, Y9, Y8      \
	CMP    $3, X, Y, Y10   \
	ADD    X, Y, Y11       \
	BLEND  Y10, Y11, Y8, X

#define MAXPS(X, Y) EXTREME(VMAXPS, VANDPS, VCMPPS, VADDPS, VBLENDVPS, X, Y)
#define MINPS(X, Y) EXTREME(VMINPS, VORPS, VCMPPS, VADDPS, VBLENDVPS, X, Y)
#define MAXPD(X, Y) EXTREME(VMAXPD, VANDPD, VCMPPD, VADDPD, VBLENDVPD, X, Y)
#define MINPD(X, Y) EXTREME(VMINPD, VORPD, VCMPPD, VADDPD, VBLENDVPD, X, Y)

#define GROUP(OP, STORE) \
	VMOVUPS (SI), Y0   \
	VMOVUPS 32(SI), Y1 \
	VMOVUPS 64(SI), Y2 \
	VMOVUPS 96(SI), Y3 \
	VMOVUPS (DI), Y4   \
	VMOVUPS 32(DI), Y5 \
	VMOVUPS 64(DI), Y6 \
	VMOVUPS 96(DI), Y7 \
	OP(Y0, Y4)         \
	OP(Y1, Y5)         \
	OP(Y2, Y6)         \
	OP(Y3, Y7)         \
	STORE Y0, (DX)     \
	STORE Y1, 32(DX)   \
	STORE Y2, 64(DX)   \
	STORE Y3, 96(DX)   \
	ADDQ  $128, SI     \
	ADDQ  $128, DI     \
	ADDQ  $128, DX

#define BINARY(OP) \
	MOVQ    dst+0(FP), DX        \
	MOVQ    x+8(FP), SI          \
	MOVQ    y+16(FP), DI         \
	MOVQ    size+24(FP), CX      \
	MOVBLZX streaming+32(FP), AX \
	SUBQ    $128, CX             \
	JLT     rest                 \
	TESTL   AX, AX               \
	JNE     streamed             \
loop:                            \
	GROUP(OP, VMOVUPS)           \
	SUBQ    $128, CX             \
	JGE     loop                 \
rest:                            \
	ADDQ    $128, CX             \
	JEQ     done                 \
last:                            \
	VMOVUPS (SI), Y0             \
	VMOVUPS (DI), Y4             \
	OP(Y0, Y4)                   \
	VMOVUPS Y0, (DX)             \
	ADDQ    $32, SI              \
	ADDQ    $32, DI              \
	ADDQ    $32, DX              \
	SUBQ    $32, CX              \
	JNE     last                 \
done:                            \
	VZEROUPPER                   \
	RET                          \
streamed:                        \
	GROUP(OP, VMOVNTPS)          \
	SUBQ    $128, CX             \
	JGE     streamed             \
	SFENCE                       \
	JMP     rest

// func addF32(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·addF32(SB), NOSPLIT, $0-33
	BINARY(ADDPS)

// func subF32(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·subF32(SB), NOSPLIT, $0-33
	BINARY(SUBPS)

// func mulF32(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·mulF32(SB), NOSPLIT, $0-33
	BINARY(MULPS)

// func divF32(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·divF32(SB), NOSPLIT, $0-33
	BINARY(DIVPS)

// func maxF32(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·maxF32(SB), NOSPLIT, $0-33
	BINARY(MAXPS)

// func minF32(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·minF32(SB), NOSPLIT, $0-33
	BINARY(MINPS)

// func addF64(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·addF64(SB), NOSPLIT, $0-33
	BINARY(ADDPD)

// func subF64(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·subF64(SB), NOSPLIT, $0-33
	BINARY(SUBPD)

// func mulF64(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·mulF64(SB), NOSPLIT, $0-33
	BINARY(MULPD)

// func divF64(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·divF64(SB), NOSPLIT, $0-33
	BINARY(DIVPD)

// func maxF64(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·maxF64(SB), NOSPLIT, $0-33
	BINARY(MAXPD)

// func minF64(dst, x, y unsafe.Pointer, size int, streaming bool)
TEXT ·minF64(SB), NOSPLIT, $0-33
	BINARY(MINPD)
