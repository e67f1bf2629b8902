package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/dtype"
	"github.com/ashlar-go/ashlar/mem/planned"
	"github.com/ashlar-go/ashlar/tensor"
)

// An answer is what a worker says to a question.
type answer struct {
	Values map[string]float64 `json:"values,omitempty"`
	Facts  map[string]string  `json:"facts,omitempty"`
	Error  string             `json:"error,omitempty"`
}

// An asker works on one device.
type asker struct {
	dev    driver.Device
	copies copyMemory
	place  *tensor.Place // of operations; nil until there was one
	plan   *planned.Plan // the last one made
	planOf string        // the key of its task
}

// serve answers questions until the input ends. A question that cannot be answered, even for a panic, is an answer with
// an error: the next one may do better.
func serve(spec string, in io.Reader, out io.Writer) error {
	dev, err := driver.Open(spec)
	if err != nil {
		return fmt.Errorf("open %s: %w", spec, err)
	}
	a := &asker{dev: dev}
	enc := json.NewEncoder(out)
	for lines := bufio.NewScanner(in); lines.Scan(); {
		reply := a.answer(lines.Text())
		if err := enc.Encode(reply); err != nil {
			return err
		}
	}
	return errors.Join(a.release(), dev.Close())
}

func (a *asker) answer(question string) (reply answer) {
	defer func() {
		if v := recover(); v != nil {
			reply = answer{Error: fmt.Sprint(v)}
		}
	}()
	q := words(strings.Fields(question))
	reply = answer{}
	var err error
	switch what := q.word(); what {
	case "hello":
		reply.Facts, err = a.hello()
	case "warm":
		reply.Values, err = a.warm(q.word(), q.number(), q.millis())
	case "replace":
		reply, err = a.replace(q.word(), int(q.number()), int(q.number()), int(q.number()), uint64(q.number()))
	case "threads":
		reply.Values, err = a.threads(q.word(), int(q.number()), q.word() == "own", q.millis())
	case "in", "out":
		reply.Values, err = a.hostCopy(what == "in", q.word(), q.number(), q.millis())
	case "copy", "fill":
		reply.Values, err = a.deviceWork(what == "copy", q.number(), q.millis())
	case "launch":
		reply.Values, err = a.launch(q.millis())
	case "op":
		name := strings.ReplaceAll(q.word(), "_", " ")
		var d dtype.DType
		if d, err = dtype.Parse(q.word()); err == nil {
			reply.Values, err = a.operation(name, d, q.number(), q.millis())
		}
	case "release":
		err = a.release()
	default:
		err = fmt.Errorf("no such question: %s", question)
	}
	if err != nil {
		return answer{Error: err.Error()}
	}
	return reply
}

// release gives back what is kept from one question to the next.
func (a *asker) release() error {
	var err error
	if a.place != nil {
		err = a.place.Close()
		a.place = nil
	}
	return errors.Join(err, a.copies.release(a.dev))
}

func (a *asker) hello() (map[string]string, error) {
	info := a.dev.Info()
	_, total, err := a.dev.Available()
	if err != nil {
		return nil, err
	}
	return map[string]string{
		"device": info.Name, "driver": info.Driver, "total": strconv.FormatInt(total, 10),
		"go": runtime.Version(), "processors": strconv.Itoa(runtime.NumCPU()),
	}, nil
}

// words are what is left of a question. A word that is missing or no number is a bug of this program.
type words []string

func (w *words) word() string {
	if len(*w) == 0 {
		panic("the question is too short")
	}
	first := (*w)[0]
	*w = (*w)[1:]
	return first
}

func (w *words) number() int64 {
	n, err := strconv.ParseInt(w.word(), 10, 64)
	if err != nil {
		panic(err.Error())
	}
	return n
}

func (w *words) millis() time.Duration { return time.Duration(w.number()) * time.Millisecond }
