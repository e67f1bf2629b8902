#include "textflag.h"

// Conversions between float32 and the types of 16 bits, 16 elements at a time. Every NaN becomes the quiet one with the
// same sign, as package dtype has it: the instructions would keep what else a NaN says.
// Registers: DX dst, SI src, CX the number of elements, a multiple of 16. Y14 is the bit of the sign, Y15 the quiet NaN.

#define BROADCAST(VALUE, X, Y) \
	MOVL         $VALUE, AX \
	VMOVD        AX, X      \
	VPBROADCASTD X, Y

#define BEGIN \
	MOVQ dst+0(FP), DX              \
	MOVQ src+8(FP), SI              \
	MOVQ n+16(FP), CX               \
	BROADCAST(0x80000000, X14, Y14) \
	BROADCAST(0x7fc00000, X15, Y15)

// QUIET replaces the NaNs of Y; S and M are scratch.
#define QUIET(Y, S, M) \
	VCMPPS    $3, Y, Y, M \
	VANDPS    Y14, Y, S   \
	VORPS     Y15, S, S   \
	VBLENDVPS M, S, Y, Y

// func widenF16(dst *float32, src *uint16, n int)
TEXT ·widenF16(SB), NOSPLIT, $0-24
	BEGIN
loop:
	VCVTPH2PS (SI), Y0
	VCVTPH2PS 16(SI), Y1
	QUIET(Y0, Y2, Y3)
	QUIET(Y1, Y4, Y5)
	VMOVUPS   Y0, (DX)
	VMOVUPS   Y1, 32(DX)
	ADDQ      $32, SI
	ADDQ      $64, DX
	SUBQ      $16, CX
	JNE       loop
	VZEROUPPER
	RET

// func roundF16(dst *uint16, src *float32, n int)
TEXT ·roundF16(SB), NOSPLIT, $0-24
	BEGIN
loop:
	VMOVUPS   (SI), Y0
	VMOVUPS   32(SI), Y1
	QUIET(Y0, Y2, Y3)
	QUIET(Y1, Y4, Y5)
	VCVTPS2PH $0, Y0, (DX)
	VCVTPS2PH $0, Y1, 16(DX)
	ADDQ      $64, SI
	ADDQ      $32, DX
	SUBQ      $16, CX
	JNE       loop
	VZEROUPPER
	RET

// func widenBF16(dst *float32, src *uint16, n int)
TEXT ·widenBF16(SB), NOSPLIT, $0-24
	BEGIN
loop:
	VPMOVZXWD (SI), Y0
	VPMOVZXWD 16(SI), Y1
	VPSLLD    $16, Y0, Y0
	VPSLLD    $16, Y1, Y1
	QUIET(Y0, Y2, Y3)
	QUIET(Y1, Y4, Y5)
	VMOVUPS   Y0, (DX)
	VMOVUPS   Y1, 32(DX)
	ADDQ      $32, SI
	ADDQ      $64, DX
	SUBQ      $16, CX
	JNE       loop
	VZEROUPPER
	RET

// UPPER rounds the float32 in Y to their upper halves: just under half of the last place kept, or half if that place is
// odd, is added and carries where rounding goes up. Y12 is 1, Y13 is 0x7fff.
#define UPPER(Y, S) \
	VPSRLD $16, Y, S  \
	VPAND  Y12, S, S  \
	VPADDD Y13, Y, Y  \
	VPADDD S, Y, Y    \
	VPSRLD $16, Y, Y

// func roundBF16(dst *uint16, src *float32, n int)
TEXT ·roundBF16(SB), NOSPLIT, $0-24
	BEGIN
	BROADCAST(1, X12, Y12)
	BROADCAST(0x7fff, X13, Y13)
loop:
	VMOVUPS   (SI), Y0
	VMOVUPS   32(SI), Y1
	QUIET(Y0, Y2, Y3)
	QUIET(Y1, Y4, Y5)
	UPPER(Y0, Y2)
	UPPER(Y1, Y4)
	VPACKUSDW Y1, Y0, Y0      // the lower halves of Y0 and Y1, then their upper ones
	VPERMQ    $0xd8, Y0, Y0   // and now in order
	VMOVDQU   Y0, (DX)
	ADDQ      $64, SI
	ADDQ      $32, DX
	SUBQ      $16, CX
	JNE       loop
	VZEROUPPER
	RET
