package multiprocess

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"

	"github.com/ashlar-go/ashlar/driver"
)

// ServeSharing is the other process of RunSharing: it opens a device and does what the suite asks of it, through the
// socket that it was started with, until the suite is done or dead. It is called by the main of the program that the
// suite starts, a test's TestMain for example, and by nothing else.
func ServeSharing(open func() (driver.Device, error)) error {
	socket := os.NewFile(socketFile, "socket")
	any, err := net.FileConn(socket)
	if err != nil {
		return fmt.Errorf("the socket of the suite: %w", err)
	}
	if err := socket.Close(); err != nil {
		return err
	}
	conn, ok := any.(*net.UnixConn)
	if !ok {
		return fmt.Errorf("the socket of the suite is a %T", any)
	}
	defer conn.Close()
	var h *holder
	for {
		var req request
		f, err := receive(conn, &req)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		if h == nil && req.Op != "files" { // which may be asked before there is a device
			d, err := open()
			if err != nil {
				return fmt.Errorf("open: %w", err)
			}
			defer d.Close()
			h = &holder{d: d}
		}
		rep, out := h.answer(req, f)
		err = send(conn, rep, out)
		for _, file := range []*os.File{f, out} {
			if file != nil {
				err = errors.Join(err, file.Close())
			}
		}
		if err != nil {
			return fmt.Errorf("send: %w", err)
		}
	}
}

// A request asks for one thing, about the memory or the event with the number ID.
type request struct {
	Op      string
	ID      int
	Size    int64
	At, N   int64
	Pattern byte
	Handle  []byte
}

// A reply is what came of it.
type reply struct {
	Err         string
	Invalid     bool // Err matches driver.ErrInvalid
	Unsupported bool // driver.ErrUnsupported
	Size        int64
	Handle      []byte
	Bytes       []byte
	Reached     bool
	Files       []string
}

// A holder is one end of the suite: a device and the memory that it holds. The suite has one too.
type holder struct {
	d      driver.Device
	held   []memory             // by number
	events []driver.SharedEvent // by number
}

// A memory is what was allocated, created or imported.
type memory struct {
	at   driver.Pointer
	size int64
	page *driver.Page // nil: a block
	end  func() error
}

func (h *holder) answer(req request, f *os.File) (reply, *os.File) {
	var rep reply
	var out *os.File
	var err error
	switch req.Op {
	case "files":
		rep.Files, err = openFiles()
	case "alloc":
		_, err = h.alloc(req.Size)
	case "page":
		_, err = h.createPage(req.Size)
	case "export":
		rep.Handle, err = h.d.Sharing().Export(h.held[req.ID].at)
	case "exportpage":
		out, err = h.d.Sharing().ExportPage(*h.held[req.ID].page)
	case "import":
		var id int
		if id, err = h.importHandle(req.Handle); err == nil {
			rep.Size = h.held[id].size
		}
	case "importpage":
		_, err = h.importPage(f, req.Size)
	case "fill":
		err = h.fill(req.ID, req.At, req.N, req.Pattern)
	case "read":
		rep.Bytes, err = h.read(req.ID, req.At, req.N)
	case "end":
		err = h.held[req.ID].end()
	case "work":
		err = h.work(req.ID, req.Pattern)
	case "sync":
		err = h.d.DefaultStream().Sync(context.Background())
	case "newevent":
		rep.Handle, err = h.newEvent()
	case "openevent":
		err = h.openEvent(req.Handle)
	case "record":
		err = h.events[req.ID].Record(h.d.DefaultStream())
	case "wait":
		err = h.events[req.ID].Wait(h.d.DefaultStream())
	case "reached":
		rep.Reached, err = h.events[req.ID].Reached()
	case "endevent":
		err = h.events[req.ID].Close()
	default:
		err = fmt.Errorf("no such request: %q", req.Op)
	}
	if err != nil {
		rep.Err = err.Error()
		rep.Invalid, rep.Unsupported = errors.Is(err, driver.ErrInvalid), errors.Is(err, driver.ErrUnsupported)
	}
	return rep, out
}

// hold numbers memory.
func (h *holder) hold(m memory) int {
	h.held = append(h.held, m)
	return len(h.held) - 1
}

func (h *holder) alloc(size int64) (int, error) {
	p, err := h.d.Alloc(size)
	if err != nil {
		return 0, err
	}
	return h.hold(memory{at: p, size: size, end: func() error { return h.d.Free(p) }}), nil
}

func (h *holder) importHandle(handle []byte) (int, error) {
	p, size, err := h.d.Sharing().Import(handle)
	if err != nil {
		return 0, err
	}
	return h.hold(memory{at: p, size: size, end: func() error { return h.d.Sharing().Forget(p) }}), nil
}

func (h *holder) createPage(size int64) (int, error) {
	page, err := h.d.Sharing().CreateShared(size)
	if err != nil {
		return 0, err
	}
	return h.mapPage(page)
}

func (h *holder) importPage(f *os.File, size int64) (int, error) {
	page, err := h.d.Sharing().ImportPage(f, size)
	if err != nil {
		return 0, err
	}
	return h.mapPage(page)
}

func (h *holder) mapPage(page driver.Page) (int, error) {
	vm := h.d.VirtualMemory()
	p, err := vm.Reserve(page.Size)
	if err != nil {
		return 0, err
	}
	return h.hold(memory{at: p, size: page.Size, page: &page, end: func() error {
		return errors.Join(vm.Unmap(p, page.Size), vm.Drop(page), vm.Release(p, page.Size))
	}}), vm.Map(p, page)
}

// fill sets bytes, and they are set when it returns.
func (h *holder) fill(id int, at, n int64, pattern byte) error {
	s := h.d.DefaultStream()
	return errors.Join(s.Fill(h.held[id].at+driver.Pointer(at), pattern, n), s.Sync(context.Background()))
}

func (h *holder) read(id int, at, n int64) ([]byte, error) {
	b := make([]byte, n)
	return b, h.d.DefaultStream().CopyOut(b, h.held[id].at+driver.Pointer(at))
}

// openFiles lists what this process has open, where the system tells.
func openFiles() ([]string, error) {
	const dir = "/proc/self/fd"
	names, err := os.ReadDir(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var files []string
	for _, name := range names {
		if to, err := os.Readlink(filepath.Join(dir, name.Name())); err == nil {
			// the directory itself is closed by now
			files = append(files, to)
		}
	}
	return files, nil
}
