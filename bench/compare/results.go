package main

import (
	"encoding/json"
	"fmt"
	"os"
	"slices"
)

// results are all that a run found, as it is written to a file.
type results struct {
	Command  string            `json:"command"`
	Started  string            `json:"started"` // RFC 3339
	Seconds  float64           `json:"seconds"`
	Settings settings          `json:"settings"`
	Machine  map[string]string `json:"machine"` // facts, by "worker: fact"
	Build    []attempt         `json:"build"`
	Cells    []cell            `json:"cells"`
	Failures []failure         `json:"failures"`
}

// A cell is one figure of a table, with a sample from each repetition.
type cell struct {
	Part    string    `json:"part"`
	Row     string    `json:"row"`
	Column  string    `json:"column"`
	Samples []float64 `json:"samples"`
}

// A failure is what could not be measured.
type failure struct {
	What  string `json:"what"`
	Error string `json:"error"`
}

func (r *results) add(at place, sample float64) {
	if c := r.at(at); c != nil {
		c.Samples = append(c.Samples, sample)
		return
	}
	r.Cells = append(r.Cells, cell{at.part, at.row, at.column, []float64{sample}})
}

// at returns a cell, or nil if it was not measured.
func (r *results) at(p place) *cell {
	i := slices.IndexFunc(r.Cells, func(c cell) bool { return place{c.Part, c.Row, c.Column} == p })
	if i < 0 {
		return nil
	}
	return &r.Cells[i]
}

// keep forgets the cells of other parts.
func (r *results) keep(parts []part) {
	r.Cells = slices.DeleteFunc(r.Cells, func(c cell) bool {
		return !slices.ContainsFunc(parts, func(p part) bool { return p.name == c.Part })
	})
}

// median is the middle sample, or the mean of the two in the middle.
func (c *cell) median() float64 {
	s := slices.Sorted(slices.Values(c.Samples))
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// write writes the results to a file; without a name it does nothing.
func (r *results) write(name string) error {
	if name == "" {
		return nil
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	if err := os.WriteFile(name, append(text, '\n'), 0o644); err != nil {
		return fmt.Errorf("write results: %w", err)
	}
	return nil
}
