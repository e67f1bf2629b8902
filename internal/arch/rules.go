package arch

import (
	"cmp"
	"slices"
)

// Check applies every rule to the module and returns the problems, sorted by file. PathPrefixes are directories of this
// machine, which no committed text may name.
func Check(m *Module, pathPrefixes []string) []Problem {
	var problems []Problem
	for _, rule := range []func(*Module) []Problem{
		checkFloors, checkDrivers, checkNames, checkCgo,
		checkEnvironment, checkOutput, checkDeterminism,
		checkLength, checkSkips, checkComments,
		checkParts, checkBehaviours, checkPointers,
	} {
		problems = append(problems, rule(m)...)
	}
	problems = append(problems, checkPaths(m, pathPrefixes)...)
	slices.SortStableFunc(problems, func(a, b Problem) int { return cmp.Compare(a.Pos, b.Pos) })
	return problems
}
