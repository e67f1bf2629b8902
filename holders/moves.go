package holders

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
)

// A sourceFunction is a function of a program.
type sourceFunction struct{ path, name string }

// moves say where the code of one recording is in another.
type moves struct {
	paths map[string]string // files
	lines map[string]string // labels of lines
}

// movesOf finds the lines of a program in another version of it, by the lines of each function that occur in stacks. If
// both versions have the same number of lines of a function, they correspond in order. Otherwise those correspond that
// are in both versions, after a shift that most of them share.
func movesOf(before, after *Frames) moves {
	old, recent := before.functions(), after.functions()
	m := moves{movedPaths(old, recent), map[string]string{}}
	for f, lines := range old {
		to := sourceFunction{m.path(f.path), f.name}
		for from, line := range match(lines, recent[to]) {
			if f != to || from != line {
				m.lines[label(f, from)] = label(to, line)
			}
		}
	}
	return m
}

// functions returns the lines of each function of the frames, ascending.
func (x *Frames) functions() map[sourceFunction][]int {
	all := map[sourceFunction][]int{}
	if x.stacks == nil {
		return all
	}
	for _, f := range x.stacks.Frames {
		key := sourceFunction{x.path(f.Filename), x.name(f)}
		all[key] = append(all[key], int(f.Line))
	}
	for key, lines := range all {
		slices.Sort(lines)
		all[key] = slices.Compact(lines)
	}
	return all
}

func label(f sourceFunction, line int) string { return fmt.Sprintf("%s:%d %s", f.path, line, f.name) }

// movedPaths returns the new paths of files that are in other directories: those with a name that one file alone of
// each version has.
func movedPaths(old, recent map[sourceFunction][]int) map[string]string {
	moved := map[string]string{}
	to := filesByName(recent, old)
	for name, file := range filesByName(old, recent) {
		if file != "" && to[name] != "" {
			moved[file] = to[name]
		}
	}
	return moved
}

// filesByName returns the paths of files that the other version lacks, by their names; "" if there are several.
func filesByName(of, other map[sourceFunction][]int) map[string]string {
	known := map[string]bool{}
	for f := range other {
		known[f.path] = true
	}
	files := map[string]string{}
	for f := range of {
		if known[f.path] {
			continue
		}
		name := path.Base(f.path)
		if file, ok := files[name]; ok && file != f.path {
			files[name] = ""
		} else {
			files[name] = f.path
		}
	}
	return files
}

// maxShifts bounds the pairs of lines that are examined for a shift.
const maxShifts = 1 << 20

// match returns the new lines of a function by its old ones. Both are ascending.
func match(old, recent []int) map[int]int {
	found := map[int]int{}
	if len(old) == len(recent) {
		for i := range old {
			found[old[i]] = recent[i]
		}
		return found
	}
	shifts := map[int]int{} // number of lines that each shift brings together
	for _, a := range old[:min(len(old), maxShifts/max(1, len(recent)))] {
		for _, b := range recent {
			shifts[b-a]++
		}
	}
	best := 0
	for _, shift := range slices.Sorted(maps.Keys(shifts)) {
		if shifts[shift] > shifts[best] {
			best = shift
		}
	}
	for _, a := range old {
		if _, ok := slices.BinarySearch(recent, a+best); ok {
			found[a] = a + best
		}
	}
	return found
}

// path is the new path of a file.
func (m *moves) path(file string) string {
	if to, ok := m.paths[file]; ok {
		return to
	}
	return file
}

// value is the value of a key that the same code has in the other recording.
func (m *moves) value(k Key, value string) string {
	switch k {
	case ByLine, ByStack:
		parts := strings.Split(value, stackArrow)
		for i, part := range parts {
			if to, ok := m.lines[part]; ok {
				parts[i] = to
			}
		}
		return strings.Join(parts, stackArrow)
	case ByFunction:
		if file, name, ok := strings.Cut(value, " "); ok {
			return m.path(file) + " " + name
		}
	case ByModule:
		return m.path(value)
	}
	return value
}
