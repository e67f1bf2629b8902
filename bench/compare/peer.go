package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"time"
)

// patience is how long an answer may take. Measurements take seconds; loading PyTorch from a cold disk can take a
// minute.
const patience = 2 * time.Minute

// A peer is a worker's process as this program sees it. One question at a time.
type peer struct {
	name  string
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string // what it wrote, closed when it is gone
	tail  *tail       // the end of what it wrote to standard error
	gone  error       // why it cannot be asked any more
}

// start starts a worker. Settings of PyTorch's allocator in the environment are taken away, and those in env added.
func start(ctx context.Context, name string, env []string, argv ...string) (*peer, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	for _, e := range cmd.Environ() {
		if !strings.HasPrefix(e, "PYTORCH_CUDA_ALLOC_CONF=") && !strings.HasPrefix(e, "PYTORCH_ALLOC_CONF=") {
			cmd.Env = append(cmd.Env, e)
		}
	}
	cmd.Env = append(cmd.Env, env...)
	p := &peer{name: name, cmd: cmd, lines: make(chan string), tail: &tail{}}
	cmd.Stderr = p.tail
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start: %w", err)
	}
	p.in = in
	go func() {
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
	}()
	return p, nil
}

// ask asks one question and waits for the answer. An answer that tells of an error is an error.
func (p *peer) ask(ctx context.Context, question string) (answer, error) {
	if p.gone != nil {
		return answer{}, p.gone
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := io.WriteString(p.in, question+"\n"); err != nil {
		return answer{}, p.lose(fmt.Errorf("ask %q: %w", question, err))
	}
	for {
		select {
		case <-ctx.Done():
			return answer{}, p.lose(fmt.Errorf("ask %q: %w", question, ctx.Err()))
		case line, ok := <-p.lines:
			if !ok {
				return answer{}, p.lose(fmt.Errorf("it ended when asked %q", question))
			}
			if !strings.HasPrefix(line, "{") {
				continue // libraries talk to standard output, too
			}
			var a answer
			if err := json.Unmarshal([]byte(line), &a); err != nil {
				return answer{}, p.lose(fmt.Errorf("ask %q: it answered %q: %w", question, line, err))
			}
			if a.Error != "" {
				return a, errors.New(a.Error)
			}
			return a, nil
		}
	}
}

// lose ends the process and says, now and from now on, why it cannot be asked.
func (p *peer) lose(why error) error {
	_ = p.cmd.Process.Kill() // it may be gone already
	end := p.close()
	p.gone = fmt.Errorf("worker %s: %w", p.name, why)
	if end != nil {
		p.gone = fmt.Errorf("%w (%w)", p.gone, end)
	}
	if said := p.tail.String(); said != "" {
		p.gone = fmt.Errorf("%w; it wrote: %s", p.gone, strings.ReplaceAll(said, "\n", " / "))
	}
	return p.gone
}

// close ends the questions and waits for the worker to give back what it has.
func (p *peer) close() error {
	if p.gone != nil {
		return nil
	}
	p.gone = fmt.Errorf("worker %s: closed", p.name)
	err := p.in.Close()
	for range p.lines { // until it is gone: Wait closes the pipe
	}
	return errors.Join(err, p.cmd.Wait())
}

// A tail keeps the last bytes that were written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailSize = 2000

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-tailSize):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return strings.TrimSpace(string(t.text))
}
