package metrics_test

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/metrics"
)

type dashboard struct {
	Title, UID    string
	SchemaVersion int
	Templating    struct {
		List []struct {
			Name, Type, Definition string
			Query                  json.RawMessage
		}
	}
	Panels []struct {
		ID          int
		Type, Title string
		GridPos     struct{ H, W, X, Y int }
		Datasource  struct{ Type, UID string }
		Targets     []struct {
			RefID, Expr, LegendFormat string
			Datasource                struct{ Type, UID string }
		}
	}
}

// words are the words in the dashboard's expressions other than metrics and labels.
var words = []string{"sum", "min", "max", "count", "by", "rate", "or", "vector", "label_values"}

var (
	quoted   = regexp.MustCompile(`"[^"]*"`)
	word     = regexp.MustCompile(`[a-zA-Z_]\w*`)
	inRange  = regexp.MustCompile(`\[[^\]]*\]`)
	variable = regexp.MustCompile(`\$(\w+)`)
	inLegend = regexp.MustCompile(`\{\{(\w+)\}\}`)
	grouping = regexp.MustCompile(` by \(([^)]*)\)`)
	bare     = regexp.MustCompile(`ashlar_\w+(?:[^\w{]|$)`)
)

// labelsOf checks that an expression holds nothing but metrics that exist, labels that all of them have, and words, and
// returns the labels. Those of More cannot be there; job and instance are what Prometheus itself adds.
func labelsOf(t *testing.T, expr string) []string {
	t.Helper()
	byName := map[string]*metrics.Metric{}
	for _, m := range metrics.Metrics() {
		byName[m.Name] = m
	}
	var labels []string
	rest := inRange.ReplaceAllString(quoted.ReplaceAllString(expr, ""), "")
	found := word.FindAllString(rest, -1)
	for _, w := range found {
		if m := byName[w]; m != nil {
			if labels == nil {
				labels = append([]string{"job", "instance"}, m.Labels...)
			}
			labels = slices.DeleteFunc(labels, func(l string) bool {
				return l != "job" && l != "instance" && !slices.Contains(m.Labels, l)
			})
			if counted := m.Type == metrics.Counter; counted != strings.Contains(expr, "rate("+w) {
				t.Errorf("%s is a %s: %s", w, m.Type, expr)
			}
		}
	}
	if labels == nil {
		t.Errorf("no metric in %s", expr)
	}
	for _, w := range found {
		if byName[w] == nil && !slices.Contains(labels, w) && !slices.Contains(words, w) {
			t.Errorf("%s is neither a metric nor a label of all of them: %s", w, expr)
		}
	}
	return labels
}

// apart returns the labels that tell the series of an expression apart: those that it groups by, or all of the metric. A host
// and port is of one job.
func apart(expr string, labels []string) []string {
	switch by := grouping.FindStringSubmatch(expr); {
	case by != nil:
		return strings.Split(by[1], ", ")
	case strings.HasPrefix(expr, "count("):
		return nil
	}
	return slices.DeleteFunc(slices.Clone(labels), func(l string) bool { return l == "job" })
}

func TestDashboard(t *testing.T) {
	text, err := os.ReadFile("grafana.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if d.Title == "" || d.UID == "" || d.SchemaVersion != 42 { // 42 is the last of this form
		t.Errorf("title %q, uid %q, schema %d", d.Title, d.UID, d.SchemaVersion)
	}
	variables := []string{"__rate_interval"} // Grafana's own
	for _, v := range d.Templating.List {
		variables = append(variables, v.Name)
		if v.Type == "query" {
			labelsOf(t, v.Definition)
		}
	}
	if d.Templating.List[0].Type != "datasource" || d.Templating.List[0].Name != "datasource" {
		t.Error("the first variable is not the data source")
	}
	for _, v := range variable.FindAllStringSubmatch(string(text), -1) {
		if !slices.Contains(variables, v[1]) && v[1] != "__all" {
			t.Errorf("no variable %s", v[0])
		}
	}
	ids, shown := map[int]bool{}, map[string]bool{}
	for i, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("%s: the number %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		for _, o := range d.Panels[:i] {
			a, b := p.GridPos, o.GridPos
			if a.X < b.X+b.W && b.X < a.X+a.W && a.Y < b.Y+b.H && b.Y < a.Y+a.H {
				t.Errorf("%s lies on %s", p.Title, o.Title)
			}
		}
		if p.GridPos.X+p.GridPos.W > 24 {
			t.Errorf("%s is too wide", p.Title)
		}
		if (p.Type == "row") != (len(p.Targets) == 0) {
			t.Errorf("%s: %d expressions", p.Title, len(p.Targets))
		}
		for _, target := range p.Targets {
			if target.Datasource.UID != "${datasource}" || p.Datasource.UID != "${datasource}" {
				t.Errorf("%s: a fixed data source", p.Title)
			}
			labels := labelsOf(t, target.Expr)
			for _, l := range apart(target.Expr, labels) {
				if !strings.Contains(target.LegendFormat, "{{"+l+"}}") {
					t.Errorf("%s: the legend %q does not tell the series of one %s from another's: %s", p.Title, target.LegendFormat, l, target.Expr)
				}
			}
			for _, l := range inLegend.FindAllStringSubmatch(target.LegendFormat, -1) {
				if !slices.Contains(labels, l[1]) {
					t.Errorf("%s: the legend has the label %s, %s has not", p.Title, l[1], target.Expr)
				}
			}
			if bare.MatchString(quoted.ReplaceAllString(target.Expr, "")) {
				t.Errorf("%s: a metric without the variables' matchers: %s", p.Title, target.Expr)
			}
			for _, name := range regexp.MustCompile(`ashlar_\w+`).FindAllString(target.Expr, -1) {
				shown[name] = true
			}
		}
	}
	for _, name := range []string{
		"ashlar_memory_reserved_bytes", "ashlar_memory_allocated_bytes", "ashlar_memory_active_bytes",
		"ashlar_memory_inactive_split_bytes", "ashlar_memory_ooms_total", "ashlar_memory_retries_total",
		"ashlar_memory_driver_calls_total", "ashlar_memory_allocated_peak_bytes", "ashlar_pinned_reserved_bytes",
		"ashlar_quota_live_bytes", "ashlar_scrape_success",
	} {
		if !shown[name] {
			t.Errorf("no panel shows %s", name)
		}
	}
}
