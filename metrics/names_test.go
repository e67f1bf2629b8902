package metrics_test

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/metrics"
)

// names.md lists exactly the metrics of the table, with the same facts.
func TestNamesForPeople(t *testing.T) {
	text, err := os.ReadFile("names.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string][]string{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "| `ashlar_") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		name := strings.Trim(cells[0], "`")
		if rows[name] != nil {
			t.Errorf("%s has two rows", name)
		}
		rows[name] = cells
	}
	for _, m := range metrics.Metrics() {
		row := rows[m.Name]
		delete(rows, m.Name)
		// The third is OpenTelemetry's name, which the tests of metrics/otel look at.
		want := []string{"`" + m.Name + "`", string(m.Type), "", m.Unit, strings.Join(m.Labels, ", "), m.Help}
		if len(row) != len(want) {
			t.Errorf("%s has no row of %d cells: %q", m.Name, len(want), row)
			continue
		}
		row[2] = ""
		if !slices.Equal(row, want) {
			t.Errorf("names.md has\n%q, want\n%q", row, want)
		}
	}
	for name := range rows {
		t.Errorf("names.md has %s, which there is not", name)
	}
}

// Every metric of the table is written by some source, with its labels, in the order of the table, and no other is.
func TestNamesThatAreWritten(t *testing.T) {
	w := newWorld(t)
	sample := regexp.MustCompile(`(?m)^([a-z_]+)\{(.*)\} `)
	label := regexp.MustCompile(`([a-z_]+)="(?:[^"\\]|\\.)*"`)
	byName := map[string]*metrics.Metric{}
	var want, got []string
	for _, m := range metrics.Metrics() {
		byName[m.Name] = m
		want = append(want, m.Name)
	}
	for _, match := range sample.FindAllStringSubmatch(pageOf(t, w), -1) {
		name := match[1]
		if !slices.Contains(got, name) {
			got = append(got, name)
		}
		var labels []string
		for _, l := range label.FindAllStringSubmatch(match[2], -1) {
			if l[1] != "model" { // one of More
				labels = append(labels, l[1])
			}
		}
		m := byName[name]
		if m == nil {
			continue // said below
		}
		if name == "ashlar_scrape_success" {
			labels = append(labels, m.Labels[len(labels):]...) // of each source those that it has
		}
		if !slices.Equal(labels, m.Labels) {
			t.Errorf("%s is written with %q, want %q", name, labels, m.Labels)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("written:\n%s\nin the table:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Prometheus's rules for names: units at the end, in full, and _total only for counters. OpenMetrics also forbids that
// a counter's family, its name without _total, is the name of another metric.
func TestConventions(t *testing.T) {
	names := map[string]bool{}
	for _, m := range metrics.Metrics() {
		family, isTotal := strings.CutSuffix(m.Name, "_total")
		if isTotal != (m.Type == metrics.Counter) {
			t.Errorf("%s is a %s", m.Name, m.Type)
		}
		if m.Unit != "" && !strings.HasSuffix(family, "_"+m.Unit) {
			t.Errorf("%s is in %s", m.Name, m.Unit)
		}
		if names[family] {
			t.Errorf("two of %s", family)
		}
		names[family] = true
		if strings.ContainsAny(m.Help, "\\\"\n|") || m.Help == "" || strings.HasSuffix(m.Help, ".") {
			t.Errorf("%s: %q", m.Name, m.Help)
		}
	}
}
