//go:build race

package testkit

// RaceDetector reports whether the race detector is on: it makes tests about ten times slower.
const RaceDetector = true
