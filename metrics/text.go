package metrics

import (
	"io"
	"strconv"
	"strings"
)

// A format is one of the two in which a page is written.
type format struct {
	contentType string
	open        bool // OpenMetrics: families have units and no _total, and the page has an end
}

var (
	prometheusText = format{"text/plain; version=0.0.4; charset=utf-8", false}
	openMetrics    = format{"application/openmetrics-text; version=1.0.0; charset=utf-8", true}
)

// WriteTo writes a page in Prometheus's text format, version 0.0.4. The error is that of w; see Gather for errors of
// sources.
func (r *Registry) WriteTo(w io.Writer) (int64, error) {
	n, err := w.Write(r.page(prometheusText))
	return int64(n), err
}

func (r *Registry) page(f format) []byte {
	samples, _ := r.Gather() // ashlar_scrape_success reports a failed source
	page := make([]byte, 0, 256*len(table)+128*len(samples))
	var last *Metric
	for i := range samples {
		s := &samples[i]
		if s.Metric != last {
			page = f.head(page, s.Metric)
			last = s.Metric
		}
		page = append(page, s.Metric.Name...)
		page = append(page, '{')
		page = append(page, s.Source.text...)
		if s.Label.Value != "" { // from a fixed set, without characters to escape
			page = append(page, ',')
			page = append(page, s.Label.Name...)
			page = append(page, `="`...)
			page = append(page, s.Label.Value...)
			page = append(page, '"')
		}
		page = append(page, "} "...)
		page = s.appendValue(page)
		page = append(page, '\n')
	}
	if f.open {
		page = append(page, "# EOF\n"...)
	}
	return page
}

// appendValue appends the value in the metric's unit. Whole numbers have all their digits.
func (s *Sample) appendValue(to []byte) []byte {
	if s.Metric.Per == 1 {
		return strconv.AppendInt(to, s.Value, 10)
	}
	return strconv.AppendFloat(to, s.Float(), 'g', -1, 64)
}

// head writes the lines before the samples of a metric. The help texts need no escaping.
func (f format) head(page []byte, m *Metric) []byte {
	family := m.Name
	if f.open && m.Type == Counter {
		family = strings.TrimSuffix(family, "_total")
	}
	line := func(kind, text string) {
		page = append(page, "# "...)
		page = append(page, kind...)
		page = append(page, ' ')
		page = append(page, family...)
		page = append(page, ' ')
		page = append(page, text...)
		page = append(page, '\n')
	}
	line("HELP", m.Help)
	line("TYPE", string(m.Type))
	if f.open && m.Unit != "" {
		line("UNIT", m.Unit)
	}
	return page
}

var escape = strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`)

// labelText formats labels as between braces.
func labelText(labels []Label) string {
	var b strings.Builder
	for i, l := range labels {
		if i > 0 {
			b.WriteByte(',')
		}
		b.WriteString(l.Name)
		b.WriteString(`="`)
		_, _ = escape.WriteString(&b, l.Value) // a Builder cannot fail
		b.WriteByte('"')
	}
	return b.String()
}
