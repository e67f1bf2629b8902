package arch

import (
	"cmp"
	"slices"
)

// Check holds the module against every rule and returns what is wrong, in the order of the files. PathPrefixes are the
// directories of this machine that no committed text may name.
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
