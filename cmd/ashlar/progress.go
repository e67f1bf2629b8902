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
)

// A progress is a line on a terminal that shows the current work and its completed part. Elsewhere it shows nothing.
// Safe for concurrent use.
type progress struct {
	w    io.Writer // a terminal
	stop chan struct{}
	once sync.Once // closes stop
	over sync.WaitGroup

	mu   sync.Mutex
	what string
	done float64 // from 0 to 1; 0 if that is not known
}

// newProgress starts showing progress, until end.
func newProgress(w io.Writer, what string) *progress {
	p := &progress{w: w, what: what, stop: make(chan struct{})}
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
		text := fmt.Sprintf("%s, %ds", p.what, int(time.Since(begun).Seconds()))
		if p.done > 0 {
			text += fmt.Sprintf(": %3.0f %%", 100*p.done)
		}
		fmt.Fprintf(p.w, "\r%s\x1b[K", text)
		p.mu.Unlock()
	}
}

// say writes a line, also where there is no terminal.
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
	p.what, p.done = what, 0
}

// update sets the completed part, from 0 to 1.
func (p *progress) update(done float64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = done
}

// end clears the line. Results are printed after it.
func (p *progress) end() {
	p.once.Do(func() { close(p.stop) })
	p.over.Wait()
}
