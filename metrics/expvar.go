package metrics

import (
	"encoding/json"
	"expvar"
	"fmt"
	"sync"
)

// publishing prevents two calls of Publish from both finding a name free.
var publishing sync.Mutex

// Publish registers the result of Var with package expvar, for the life of the program. It is an error if the name is
// empty or taken, where expvar.Publish would panic.
func (r *Registry) Publish(name string) error {
	publishing.Lock()
	defer publishing.Unlock()
	if name == "" || expvar.Get(name) != nil {
		return fmt.Errorf("metrics: Publish: the name %q is empty or taken", name)
	}
	expvar.Publish(name, r.Var())
	return nil
}

// Var returns a variable for package expvar. Its value is JSON: the sources in order, each with its labels and its
// values, keyed by the names of the metrics. The value of a metric with the label pool or call is an object, keyed by
// the values of that label.
//
//	{"sources": [{"labels": {"device": "cuda:0", "allocator": "main"},
//	              "values": {"ashlar_memory_allocated_bytes": {"large": 2097152, "small": 512}, "ashlar_memory_ooms_total": 0}}],
//	 "errors": []}
func (r *Registry) Var() expvar.Var { return expvar.Func(r.variable) }

type sourceVar struct {
	Labels map[string]string `json:"labels"`
	Values map[string]any    `json:"values"`
}

func (r *Registry) variable() any {
	v := struct {
		Sources []*sourceVar `json:"sources"`
		Errors  []string     `json:"errors"`
	}{[]*sourceVar{}, []string{}}
	samples, err := r.Gather()
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			v.Errors = append(v.Errors, e.Error())
		}
	}
	bySource := map[*Source]*sourceVar{}
	for i := range samples { // every source has one success sample, in the order of the sources
		if s := &samples[i]; s.Metric == success {
			of := &sourceVar{map[string]string{}, map[string]any{}}
			for _, l := range s.Source.labels {
				of.Labels[l.Name] = l.Value
			}
			bySource[s.Source] = of
			v.Sources = append(v.Sources, of)
		}
	}
	for i := range samples {
		s := &samples[i]
		values, number := bySource[s.Source].Values, json.Number(s.appendValue(nil))
		if s.Label.Value == "" {
			values[s.Metric.Name] = number
			continue
		}
		parts, ok := values[s.Metric.Name].(map[string]json.Number)
		if !ok {
			parts = map[string]json.Number{}
			values[s.Metric.Name] = parts
		}
		parts[s.Label.Value] = number
	}
	return v
}
