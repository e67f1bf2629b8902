#include "textflag.h"

// What products of a matrix and a vector are made of.

// DOT adds up x[i]*y[i] in four accumulators. Registers: SI x, DI y, CX the bytes, a multiple of 32.
#define DOT(LOAD, FMA, ADD) \
	MOVQ   x+0(FP), SI     \
	MOVQ   y+8(FP), DI     \
	MOVQ   size+16(FP), CX \
	VXORPS Y0, Y0, Y0      \
	VXORPS Y1, Y1, Y1      \
	VXORPS Y2, Y2, Y2      \
	VXORPS Y3, Y3, Y3      \
	SUBQ   $128, CX        \
	JLT    rest            \
loop:                      \
	LOAD   (SI), Y4        \
	LOAD   32(SI), Y5      \
	LOAD   64(SI), Y6      \
	LOAD   96(SI), Y7      \
	FMA    (DI), Y4, Y0    \
	FMA    32(DI), Y5, Y1  \
	FMA    64(DI), Y6, Y2  \
	FMA    96(DI), Y7, Y3  \
	ADDQ   $128, SI        \
	ADDQ   $128, DI        \
	SUBQ   $128, CX        \
	JGE    loop            \
rest:                      \
	ADDQ   $128, CX        \
	JEQ    done            \
last:                      \
	LOAD   (SI), Y4        \
	FMA    (DI), Y4, Y0    \
	ADDQ   $32, SI         \
	ADDQ   $32, DI         \
	SUBQ   $32, CX         \
	JNE    last            \
done:                      \
	ADD    Y1, Y0, Y0      \
	ADD    Y3, Y2, Y2      \
	ADD    Y2, Y0, Y0      \
	VEXTRACTF128 $1, Y0, X1

// AXPY4 adds to y four rows, each times a number. Registers: DI y, R8 to R11 the rows, SI the numbers, CX the bytes, a
// multiple of 32; AX counts.
#define AXPY4(MOV, BCST, FMA, SIZE) \
	MOVQ y+0(FP), DI        \
	MOVQ r0+8(FP), R8       \
	MOVQ r1+16(FP), R9      \
	MOVQ r2+24(FP), R10     \
	MOVQ r3+32(FP), R11     \
	MOVQ x+40(FP), SI       \
	MOVQ size+48(FP), CX    \
	BCST (SI), Y12          \
	BCST SIZE(SI), Y13      \
	BCST (2*SIZE)(SI), Y14  \
	BCST (3*SIZE)(SI), Y15  \
	XORQ AX, AX             \
	SUBQ $64, CX            \
	JLT  rest               \
loop:                       \
	MOV  (DI)(AX*1), Y0     \
	MOV  32(DI)(AX*1), Y1   \
	FMA  (R8)(AX*1), Y12, Y0    \
	FMA  32(R8)(AX*1), Y12, Y1  \
	FMA  (R9)(AX*1), Y13, Y0    \
	FMA  32(R9)(AX*1), Y13, Y1  \
	FMA  (R10)(AX*1), Y14, Y0   \
	FMA  32(R10)(AX*1), Y14, Y1 \
	FMA  (R11)(AX*1), Y15, Y0   \
	FMA  32(R11)(AX*1), Y15, Y1 \
	MOV  Y0, (DI)(AX*1)     \
	MOV  Y1, 32(DI)(AX*1)   \
	ADDQ $64, AX            \
	SUBQ $64, CX            \
	JGE  loop               \
rest:                       \
	ADDQ $64, CX            \
	JEQ  done               \
	MOV  (DI)(AX*1), Y0     \
	FMA  (R8)(AX*1), Y12, Y0    \
	FMA  (R9)(AX*1), Y13, Y0    \
	FMA  (R10)(AX*1), Y14, Y0   \
	FMA  (R11)(AX*1), Y15, Y0   \
	MOV  Y0, (DI)(AX*1)     \
done:                       \
	VZEROUPPER              \
	RET

// func dotF32(x, y *float32, size int) float32
TEXT ·dotF32(SB), NOSPLIT, $0-28
	DOT(VMOVUPS, VFMADD231PS, VADDPS)
	VADDPS  X1, X0, X0
	VHADDPS X0, X0, X0
	VHADDPS X0, X0, X0
	VMOVSS  X0, ret+24(FP)
	VZEROUPPER
	RET

// func dotF64(x, y *float64, size int) float64
TEXT ·dotF64(SB), NOSPLIT, $0-32
	DOT(VMOVUPD, VFMADD231PD, VADDPD)
	VADDPD  X1, X0, X0
	VHADDPD X0, X0, X0
	VMOVSD  X0, ret+24(FP)
	VZEROUPPER
	RET

// func axpy4F32(y, r0, r1, r2, r3, x *float32, size int)
TEXT ·axpy4F32(SB), NOSPLIT, $0-56
	AXPY4(VMOVUPS, VBROADCASTSS, VFMADD231PS, 4)

// func axpy4F64(y, r0, r1, r2, r3, x *float64, size int)
TEXT ·axpy4F64(SB), NOSPLIT, $0-56
	AXPY4(VMOVUPD, VBROADCASTSD, VFMADD231PD, 8)
