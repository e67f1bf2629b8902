package metrics

import (
	"mime"
	"net/http"
	"strconv"
	"strings"
)

// ServeHTTP implements http.Handler. It responds to GET and HEAD with a page in the OpenMetrics format (1.0.0) if the
// request prefers it, and otherwise in Prometheus's (0.0.4). A source that fails does not change the status.
func (r *Registry) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	if req.Method != http.MethodGet && req.Method != http.MethodHead {
		w.Header().Set("Allow", "GET, HEAD")
		http.Error(w, "only GET and HEAD are supported", http.StatusMethodNotAllowed)
		return
	}
	f := negotiate(req.Header.Values("Accept"))
	h := w.Header()
	h.Set("Content-Type", f.contentType)
	h.Set("Vary", "Accept")
	h.Set("Cache-Control", "no-store")
	_, _ = w.Write(r.page(f)) // the client may be gone
}

// negotiate returns OpenMetrics if the request names it and prefers it to text.
func negotiate(accept []string) format {
	var open, text float64
	for value := range strings.SplitSeq(strings.Join(accept, ","), ",") {
		kind, params, err := mime.ParseMediaType(value)
		if err != nil {
			continue
		}
		q := 1.0
		if s, ok := params["q"]; ok {
			q, _ = strconv.ParseFloat(s, 64) // 0 if it is not a number
		}
		switch version := params["version"]; {
		case kind == "application/openmetrics-text" && (version == "" || version == "1.0.0"):
			open = max(open, q)
		case kind == "text/plain" && (version == "" || version == "0.0.4"), kind == "text/*", kind == "*/*":
			text = max(text, q)
		}
	}
	if open > text {
		return openMetrics
	}
	return prometheusText
}
