package main

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	progressAfter = 500 * time.Millisecond // how long work may take before anything is said about it
	progressEvery = 100 * time.Millisecond
	leftAfter     = 2 * time.Second // how long work takes before its rate is known
)

// A progress is a line on a terminal that shows the current work and its completed part. Elsewhere it shows nothing.
// Safe for concurrent use.
type progress struct {
	w    io.Writer // a terminal
	stop chan struct{}
	once sync.Once // closes stop
	over sync.WaitGroup

	watch func(done float64) // receives what update does, if not nil

	mu    sync.Mutex
	what  string
	since time.Time // of what
	done  float64   // from 0 to 1; 0 if that is not known
}

// newProgress starts showing progress, until end.
func newProgress(w io.Writer, what string) *progress {
	p := &progress{w: w, what: what, since: time.Now(), stop: make(chan struct{})}
	if f, ok := w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		p.over.Go(p.draw)
	}
	return p
}

func (p *progress) draw() {
	begun, shown := time.Now(), false
	tick := time.NewTicker(progressEvery)
	defer tick.Stop()
	for {
		select {
		case <-p.stop:
			if shown {
				fmt.Fprint(p.w, "\r\x1b[K")
			}
			return
		case <-tick.C:
		}
		if time.Since(begun) < progressAfter {
			continue
		}
		shown = true
		p.mu.Lock()
		fmt.Fprintf(p.w, "\r%s, %s\x1b[K", p.what, progressText(time.Since(p.since), p.done))
		p.mu.Unlock()
	}
}

// progressText is the time that work has taken, the completed part and the time left if it goes on at the same rate.
func progressText(elapsed time.Duration, done float64) string {
	text := seconds(elapsed)
	if done > 0 {
		text += fmt.Sprintf(": %3.0f %%", 100*done)
	}
	if done > 0 && done < 1 && elapsed >= leftAfter {
		text += ", " + seconds(time.Duration(float64(elapsed)*(1-done)/done)) + " left"
	}
	return text
}

// seconds is a duration in whole seconds: 5s, 2m05s, 1h02m05s.
func seconds(d time.Duration) string {
	s := int(d.Seconds())
	switch {
	case s < 60:
		return fmt.Sprintf("%ds", s)
	case s < 3600:
		return fmt.Sprintf("%dm%02ds", s/60, s%60)
	}
	return fmt.Sprintf("%dh%02dm%02ds", s/3600, s/60%60, s%60)
}

// say writes a line, even if there is no terminal.
func (p *progress) say(text string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if f, ok := p.w.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		text = "\r\x1b[K" + text
	}
	fmt.Fprintln(p.w, text)
}

// at sets the text of the current work.
func (p *progress) at(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.what, p.since, p.done = what, time.Now(), 0
}

// update sets the completed part, from 0 to 1.
func (p *progress) update(done float64) {
	if p.watch != nil {
		p.watch(done)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = done
}

// reader returns a reader of a file that updates the completed part. The time of earlier work does not count.
func (p *progress) reader(f *os.File) io.Reader {
	p.at(p.what)
	info, err := f.Stat()
	if err != nil || info.Size() == 0 || !info.Mode().IsRegular() {
		return f
	}
	return &progressReader{r: f, p: p, total: info.Size()}
}

// A progressReader tells which part of its input was read, after each hundredth.
type progressReader struct {
	r              io.Reader
	p              *progress
	n, last, total int64
}

func (r *progressReader) Read(b []byte) (int, error) {
	n, err := r.r.Read(b)
	r.n += int64(n)
	if (r.n-r.last)*100 >= r.total {
		r.last = r.n
		r.p.update(min(1, float64(r.n)/float64(r.total)))
	}
	return n, err
}

// awaitWriter says what keeps the program waiting if path is a pipe that no program writes to. The caller opens the
// path and then calls opened.
func (p *progress) awaitWriter(path string) (opened func()) {
	info, err := os.Stat(path)
	if err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return func() {}
	}
	timer := time.AfterFunc(progressAfter, func() {
		p.say(fmt.Sprintf("ashlar: %s is a pipe, and no program writes to it yet; waiting for one (Ctrl-C ends ashlar)",
			displayPath(path)))
	})
	return func() { timer.Stop() }
}

// end clears the line. Results are printed after it.
func (p *progress) end() {
	p.once.Do(func() { close(p.stop) })
	p.over.Wait()
}
