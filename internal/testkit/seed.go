package testkit

import (
	crand "crypto/rand"
	"encoding/binary"
	"math/rand/v2"
	"testing"
)

// FreshSeed returns a seed that differs from run to run. It suits the default of a flag; a test calls Seed or Rand.
func FreshSeed() uint64 {
	var b [8]byte
	crand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}

// Seed returns a seed that differs from run to run, and logs it.
func Seed(t testing.TB) uint64 {
	t.Helper()
	seed := FreshSeed()
	t.Logf("seed %#x", seed)
	return seed
}

// SeedFlag returns a seed from the value of a flag, or a new one if that is 0, and logs how to repeat the test.
func SeedFlag(t testing.TB, name string, value uint64) uint64 {
	t.Helper()
	for value == 0 {
		value = FreshSeed()
	}
	t.Logf("-%s %d repeats this", name, value)
	return value
}

// Rand returns a source of random numbers with a fresh seed, which it logs.
func Rand(t testing.TB) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(Seed(t), 0))
}
