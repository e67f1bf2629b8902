#include "textflag.h"

// The microkernels: C = A*B or C += A*B for one tile of C, held in registers while k runs. A comes packed with the mr
// elements of a column together, B with the nr elements of a row; the rows of C are ldc elements apart.
//
// All have one shape, said by macros: two vectors of B, a broadcast element of A for each row, two accumulators a row.
// Registers: CX k, SI a, DI b, DX c, R8 the bytes between rows of C.

// ARGS loads the arguments; SHIFT is the logarithm of an element's size.
#define ARGS(SHIFT) \
	MOVQ k+0(FP), CX    \
	MOVQ a+8(FP), SI    \
	MOVQ b+16(FP), DI   \
	MOVQ c+24(FP), DX   \
	MOVQ ldc+32(FP), R8 \
	SHLQ $SHIFT, R8

// CLEAR2 zeroes the accumulators of a row.
#define CLEAR2(XOR, R0, R1) \
	XOR R0, R0, R0 \
	XOR R1, R1, R1

// ROW adds an element of A times the vectors B0 and B1 to a row.
#define ROW(BCST, FMA, OFFSET, T, B0, B1, R0, R1) \
	BCST OFFSET(SI), T \
	FMA  B0, T, R0     \
	FMA  B1, T, R1

// STORE writes a row of C, ADDTO adds to it; both go on to the next. BYTES is the size of a vector.
#define STORE(MOV, BYTES, R0, R1) \
	MOV  R0, (DX)      \
	MOV  R1, BYTES(DX) \
	ADDQ R8, DX

#define ADDTO(MOV, ADD, BYTES, R0, R1) \
	ADD (DX), R0, R0      \
	ADD BYTES(DX), R1, R1 \
	STORE(MOV, BYTES, R0, R1)

// AVX2: 6 rows of two vectors of 32 bytes. Y4 to Y15 accumulate.

#define CLEAR6(XOR) \
	CLEAR2(XOR, Y4, Y5)   \
	CLEAR2(XOR, Y6, Y7)   \
	CLEAR2(XOR, Y8, Y9)   \
	CLEAR2(XOR, Y10, Y11) \
	CLEAR2(XOR, Y12, Y13) \
	CLEAR2(XOR, Y14, Y15)

// STEP6 is one k, the I-th of an unrolled loop.
#define STEP6(MOV, BCST, FMA, SIZE, I) \
	MOV (64*I)(DI), Y0                                   \
	MOV (64*I+32)(DI), Y1                                \
	ROW(BCST, FMA, ((6*I+0)*SIZE), Y2, Y0, Y1, Y4, Y5)   \
	ROW(BCST, FMA, ((6*I+1)*SIZE), Y3, Y0, Y1, Y6, Y7)   \
	ROW(BCST, FMA, ((6*I+2)*SIZE), Y2, Y0, Y1, Y8, Y9)   \
	ROW(BCST, FMA, ((6*I+3)*SIZE), Y3, Y0, Y1, Y10, Y11) \
	ROW(BCST, FMA, ((6*I+4)*SIZE), Y2, Y0, Y1, Y12, Y13) \
	ROW(BCST, FMA, ((6*I+5)*SIZE), Y3, Y0, Y1, Y14, Y15)

#define STORE6(MOV) \
	STORE(MOV, 32, Y4, Y5)   \
	STORE(MOV, 32, Y6, Y7)   \
	STORE(MOV, 32, Y8, Y9)   \
	STORE(MOV, 32, Y10, Y11) \
	STORE(MOV, 32, Y12, Y13) \
	STORE(MOV, 32, Y14, Y15)

#define ADDTO6(MOV, ADD) \
	ADDTO(MOV, ADD, 32, Y4, Y5)   \
	ADDTO(MOV, ADD, 32, Y6, Y7)   \
	ADDTO(MOV, ADD, 32, Y8, Y9)   \
	ADDTO(MOV, ADD, 32, Y10, Y11) \
	ADDTO(MOV, ADD, 32, Y12, Y13) \
	ADDTO(MOV, ADD, 32, Y14, Y15)

#define KERNEL6(MOV, BCST, FMA, ADD, XOR, SIZE, SHIFT) \
	ARGS(SHIFT)                     \
	CLEAR6(XOR)                     \
	SUBQ $4, CX                     \
	JLT  tail                       \
loop:                               \
	PREFETCHT0 512(DI)              \
	STEP6(MOV, BCST, FMA, SIZE, 0)  \
	STEP6(MOV, BCST, FMA, SIZE, 1)  \
	PREFETCHT0 640(DI)              \
	STEP6(MOV, BCST, FMA, SIZE, 2)  \
	STEP6(MOV, BCST, FMA, SIZE, 3)  \
	ADDQ $(24*SIZE), SI             \
	ADDQ $256, DI                   \
	SUBQ $4, CX                     \
	JGE  loop                       \
tail:                               \
	ADDQ $4, CX                     \
	JEQ  done                       \
last:                               \
	STEP6(MOV, BCST, FMA, SIZE, 0)  \
	ADDQ $(6*SIZE), SI              \
	ADDQ $64, DI                    \
	DECQ CX                         \
	JNE  last                       \
done:                               \
	MOVBLZX add+40(FP), AX          \
	TESTL AX, AX                    \
	JNE  more                       \
	STORE6(MOV)                     \
	VZEROUPPER                      \
	RET                             \
more:                               \
	ADDTO6(MOV, ADD)                \
	VZEROUPPER                      \
	RET

// func tile6x16(k int, a, b, c *float32, ldc int, add bool)
TEXT ·tile6x16(SB), NOSPLIT, $0-41
	KERNEL6(VMOVUPS, VBROADCASTSS, VFMADD231PS, VADDPS, VXORPS, 4, 2)

// func tile6x8(k int, a, b, c *float64, ldc int, add bool)
TEXT ·tile6x8(SB), NOSPLIT, $0-41
	KERNEL6(VMOVUPD, VBROADCASTSD, VFMADD231PD, VADDPD, VXORPD, 8, 3)

// AVX-512: 12 rows of two vectors of 64 bytes. Z8 to Z31 accumulate.

#define CLEAR12(XOR) \
	CLEAR2(XOR, Z8, Z9)   \
	CLEAR2(XOR, Z10, Z11) \
	CLEAR2(XOR, Z12, Z13) \
	CLEAR2(XOR, Z14, Z15) \
	CLEAR2(XOR, Z16, Z17) \
	CLEAR2(XOR, Z18, Z19) \
	CLEAR2(XOR, Z20, Z21) \
	CLEAR2(XOR, Z22, Z23) \
	CLEAR2(XOR, Z24, Z25) \
	CLEAR2(XOR, Z26, Z27) \
	CLEAR2(XOR, Z28, Z29) \
	CLEAR2(XOR, Z30, Z31)

#define STEP12(MOV, BCST, FMA, SIZE, I) \
	MOV (128*I)(DI), Z0                                    \
	MOV (128*I+64)(DI), Z1                                 \
	ROW(BCST, FMA, ((12*I+0)*SIZE), Z2, Z0, Z1, Z8, Z9)    \
	ROW(BCST, FMA, ((12*I+1)*SIZE), Z3, Z0, Z1, Z10, Z11)  \
	ROW(BCST, FMA, ((12*I+2)*SIZE), Z4, Z0, Z1, Z12, Z13)  \
	ROW(BCST, FMA, ((12*I+3)*SIZE), Z5, Z0, Z1, Z14, Z15)  \
	ROW(BCST, FMA, ((12*I+4)*SIZE), Z2, Z0, Z1, Z16, Z17)  \
	ROW(BCST, FMA, ((12*I+5)*SIZE), Z3, Z0, Z1, Z18, Z19)  \
	ROW(BCST, FMA, ((12*I+6)*SIZE), Z4, Z0, Z1, Z20, Z21)  \
	ROW(BCST, FMA, ((12*I+7)*SIZE), Z5, Z0, Z1, Z22, Z23)  \
	ROW(BCST, FMA, ((12*I+8)*SIZE), Z2, Z0, Z1, Z24, Z25)  \
	ROW(BCST, FMA, ((12*I+9)*SIZE), Z3, Z0, Z1, Z26, Z27)  \
	ROW(BCST, FMA, ((12*I+10)*SIZE), Z4, Z0, Z1, Z28, Z29) \
	ROW(BCST, FMA, ((12*I+11)*SIZE), Z5, Z0, Z1, Z30, Z31)

#define STORE12(MOV) \
	STORE(MOV, 64, Z8, Z9)   \
	STORE(MOV, 64, Z10, Z11) \
	STORE(MOV, 64, Z12, Z13) \
	STORE(MOV, 64, Z14, Z15) \
	STORE(MOV, 64, Z16, Z17) \
	STORE(MOV, 64, Z18, Z19) \
	STORE(MOV, 64, Z20, Z21) \
	STORE(MOV, 64, Z22, Z23) \
	STORE(MOV, 64, Z24, Z25) \
	STORE(MOV, 64, Z26, Z27) \
	STORE(MOV, 64, Z28, Z29) \
	STORE(MOV, 64, Z30, Z31)

#define ADDTO12(MOV, ADD) \
	ADDTO(MOV, ADD, 64, Z8, Z9)   \
	ADDTO(MOV, ADD, 64, Z10, Z11) \
	ADDTO(MOV, ADD, 64, Z12, Z13) \
	ADDTO(MOV, ADD, 64, Z14, Z15) \
	ADDTO(MOV, ADD, 64, Z16, Z17) \
	ADDTO(MOV, ADD, 64, Z18, Z19) \
	ADDTO(MOV, ADD, 64, Z20, Z21) \
	ADDTO(MOV, ADD, 64, Z22, Z23) \
	ADDTO(MOV, ADD, 64, Z24, Z25) \
	ADDTO(MOV, ADD, 64, Z26, Z27) \
	ADDTO(MOV, ADD, 64, Z28, Z29) \
	ADDTO(MOV, ADD, 64, Z30, Z31)

#define KERNEL12(MOV, BCST, FMA, ADD, XOR, SIZE, SHIFT) \
	ARGS(SHIFT)                     \
	CLEAR12(XOR)                    \
	SUBQ $2, CX                     \
	JLT  tail                       \
loop:                               \
	PREFETCHT0 1024(DI)             \
	PREFETCHT0 1088(DI)             \
	STEP12(MOV, BCST, FMA, SIZE, 0) \
	PREFETCHT0 1152(DI)             \
	PREFETCHT0 1216(DI)             \
	STEP12(MOV, BCST, FMA, SIZE, 1) \
	ADDQ $(24*SIZE), SI             \
	ADDQ $256, DI                   \
	SUBQ $2, CX                     \
	JGE  loop                       \
tail:                               \
	ADDQ $2, CX                     \
	JEQ  done                       \
	STEP12(MOV, BCST, FMA, SIZE, 0) \
done:                               \
	MOVBLZX add+40(FP), AX          \
	TESTL AX, AX                    \
	JNE  more                       \
	STORE12(MOV)                    \
	VZEROUPPER                      \
	RET                             \
more:                               \
	ADDTO12(MOV, ADD)               \
	VZEROUPPER                      \
	RET

// func tile12x32(k int, a, b, c *float32, ldc int, add bool)
TEXT ·tile12x32(SB), NOSPLIT, $0-41
	KERNEL12(VMOVUPS, VBROADCASTSS, VFMADD231PS, VADDPS, VPXORD, 4, 2)

// func tile12x16(k int, a, b, c *float64, ldc int, add bool)
TEXT ·tile12x16(SB), NOSPLIT, $0-41
	KERNEL12(VMOVUPD, VBROADCASTSD, VFMADD231PD, VADDPD, VPXORQ, 8, 3)
