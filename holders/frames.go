package holders

import (
	"fmt"
	"path"
	"strings"

	"github.com/ashlar-go/ashlar/trace"
)

// A Folding says which frames of a stack the labels of holders leave out.
type Folding uint8

const (
	// FoldLibraries leaves out the frames of PyTorch, of Python's standard library, of installed packages (in
	// site-packages or dist-packages), of Ashlar, of the Go runtime, and all native ones. A stack without other frames
	// has those of the kind that is closest to the user, in the reverse of this order: installed packages first.
	FoldLibraries Folding = iota
	// FoldTorch is FoldLibraries, except that the frames of installed packages other than PyTorch stay. It is for
	// programs that call a framework, which calls the model.
	FoldTorch
	// FoldNone leaves nothing out.
	FoldNone
)

// A frameKind says who wrote the code of a frame; higher kinds are closer to the user.
type frameKind uint8

const (
	frameUnnamed frameKind = iota
	frameSystem            // native, of PyTorch, Python or the system
	frameNative            // of another native library or program, or an operation of the backward pass
	frameTorch             // of PyTorch or Python in Python, of Ashlar, or of the Go runtime
	frameLibrary           // of an installed package
	frameUser              // of the user
)

// Frames says which frames of stacks are folded, and labels them.
type Frames struct {
	stacks *trace.Stacks
	kinds  []frameKind // of each frame
	least  []frameKind // for each stack, the kind below which frames are folded
	root   string      // the directory that contains all of the user's files, with a slash at the end, or ""
}

// NewFrames returns the frames of a table of stacks, which may be nil, with FoldLibraries.
func NewFrames(stacks *trace.Stacks) *Frames {
	x := &Frames{stacks: stacks}
	if stacks == nil {
		return x
	}
	x.kinds = make([]frameKind, len(stacks.Frames))
	first := true
	for i, f := range stacks.Frames {
		file := slashed(f.Filename)
		x.kinds[i] = kindOf(f.Name, file)
		if x.kinds[i] != frameUser || !strings.Contains(file, "/") || notebook(file) {
			continue
		}
		dir := file[:strings.LastIndexByte(file, '/')+1]
		if first {
			x.root, first = dir, false
		}
		for !strings.HasPrefix(dir, x.root) {
			x.root = x.root[:strings.LastIndexByte(x.root[:len(x.root)-1], '/')+1]
		}
	}
	x.Fold(FoldLibraries)
	return x
}

// Fold changes which frames are folded. It must not be called while other goroutines use x.
func (x *Frames) Fold(f Folding) {
	x.least = make([]frameKind, x.stacks.Len()+1)
	for id := range x.least {
		for _, n := range x.stacks.At(trace.StackID(id)) {
			kind := x.kinds[n]
			if f == FoldTorch {
				kind = min(kind, frameLibrary)
			}
			if f != FoldNone {
				x.least[id] = max(x.least[id], kind)
			}
		}
	}
}

// Shown returns the frames of a stack that are not folded, innermost first.
func (x *Frames) Shown(id trace.StackID) (out []trace.Frame) {
	for _, n := range x.stacks.At(id) {
		if x.kinds[n] >= x.least[id] {
			out = append(out, x.stacks.Frames[n])
		}
	}
	return out
}

// Outward returns the frames of a stack from the innermost one that is not folded to the outermost one. Unlike Shown,
// it has the folded frames between them.
func (x *Frames) Outward(id trace.StackID) (out []trace.Frame) {
	for _, n := range x.stacks.At(id) {
		if len(out) > 0 || x.kinds[n] >= x.least[id] {
			out = append(out, x.stacks.Frames[n])
		}
	}
	return out
}

// Innermost returns the frame that stands for a stack: the first of Shown. A stack without frames has none.
func (x *Frames) Innermost(id trace.StackID) (f trace.Frame, ok bool) {
	for _, n := range x.stacks.At(id) {
		if x.kinds[n] >= x.least[id] {
			return x.stacks.Frames[n], true
		}
	}
	return trace.Frame{}, false
}

// Line returns the label of the frame that stands for a stack, or "".
func (x *Frames) Line(id trace.StackID) string {
	f, ok := x.Innermost(id)
	if !ok {
		return ""
	}
	return x.Label(f)
}

// Label returns the label of a frame: its file, line and function, such as "models/unet.py:80 forward". The file of a
// user is relative to the directory that contains all of the user's files in the table, and that of a package to the
// directory of the packages.
func (x *Frames) Label(f trace.Frame) string {
	file, name := slashed(f.Filename), x.name(f)
	switch native := kindOf(f.Name, file) <= frameNative; {
	case native && name == "":
		return place(path.Base(file), f.Line)
	case native:
		return name
	}
	return place(x.path(f.Filename), f.Line) + " " + name
}

// place returns a file and the line in it, or the file alone if the line is unknown.
func place(file string, line int64) string {
	if line < 1 {
		return file
	}
	return fmt.Sprintf("%s:%d", file, line)
}

// name returns the function of a frame in labels.
func (x *Frames) name(f trace.Frame) string {
	name := f.Name
	if strings.HasSuffix(slashed(f.Filename), ".go") {
		name = path.Base(name) // without the directories of the package
	}
	if len(name) > maxName {
		return name[:maxName] + "..."
	}
	return name
}

// maxName is the maximum number of bytes of a name or a path in labels. Stacks share their frames, so a long name could
// be in a million labels.
const maxName = 400

// path returns the path of a file in labels.
func (x *Frames) path(file string) string {
	p := x.wholePath(slashed(file))
	if len(p) > maxName {
		return "..." + p[len(p)-maxName:]
	}
	return p
}

func (x *Frames) wholePath(file string) string {
	if notebook(file) {
		return "notebook/" + path.Base(file)
	}
	if installed, rest := inPackages(file); installed {
		return rest
	}
	if n := standardLibrary(file); n > 0 {
		return file[n:]
	}
	return strings.TrimPrefix(file, x.root)
}

// slashed returns a path with slashes, also on Windows. Of an endless one it returns the end.
func slashed(file string) string {
	return strings.ReplaceAll(file[max(0, len(file)-maxPath):], `\`, "/")
}

// maxPath is the maximum length of a path on Linux.
const maxPath = 4096

// cutLast is strings.Cut at the last directory of a name.
func cutLast(file, dir string) (before, after string, found bool) {
	if i := strings.LastIndex("/"+file, "/"+dir+"/"); i >= 0 {
		return file[:i], file[i+len(dir)+1:], true
	}
	return file, "", false
}

// notebook reports whether a file is a cell of a Jupyter notebook: IPython writes them to /tmp/ipykernel_PID/HASH.py.
func notebook(file string) bool { return strings.Contains(file, "/ipykernel_") }
