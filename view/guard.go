package view

import (
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// newToken returns a secret that cannot be guessed.
func newToken() string { return rand.Text() }

// URL returns the address of the page for a server that listens on addr. It contains the secret.
func (s *Server) URL(addr net.Addr) string {
	return (&url.URL{Scheme: "http", Host: addr.String(), Path: "/" + s.options.Token + "/"}).String()
}

// Handler returns the handler of a server that listens on addr. It answers requests for the page and its data under
// /TOKEN/, and refuses all others: those with another token (403), and those for another host (403), by which a page of
// elsewhere could reach a server on this machine through a name of its own. A request that changes something must come
// from the page itself (http.CrossOriginProtection).
func (s *Server) Handler(addr net.Addr) http.Handler {
	prefix := "/" + s.options.Token
	inner := http.StripPrefix(prefix, s.routes())
	checked := http.NewCrossOriginProtection().Handler(inner)
	return http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		setHeaders(w.Header())
		token, _, _ := strings.Cut(strings.TrimPrefix(q.URL.Path, "/"), "/")
		switch {
		case !isLoopback(q.Host, addr):
			refuse(w, http.StatusForbidden, "the host of the request is not that of this server: open the URL that it printed")
		case subtle.ConstantTimeCompare([]byte(token), []byte(s.options.Token)) != 1:
			refuse(w, http.StatusForbidden, "the token of the URL is missing or wrong: open the URL that the server printed")
		case q.Header.Get("Sec-Fetch-Site") == "cross-site" && q.Header.Get("Sec-Fetch-Mode") != "navigate":
			refuse(w, http.StatusForbidden, "the request is from another site")
		case q.URL.Path == prefix:
			http.Redirect(w, q, prefix+"/", http.StatusMovedPermanently)
		default:
			checked.ServeHTTP(w, q)
		}
	})
}

// isLoopback reports whether the host of a request is the address of the server, or localhost with its port.
func isLoopback(host string, addr net.Addr) bool {
	own := addr.String()
	_, port, err := net.SplitHostPort(own)
	return host == own || err == nil && strings.EqualFold(host, net.JoinHostPort("localhost", port))
}

// setHeaders sets the headers of every answer. Nothing of the page may be loaded from elsewhere, or shown within
// another page.
func setHeaders(h http.Header) {
	h.Set("Content-Security-Policy", contentPolicy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Cache-Control", "no-store")
}

// contentPolicy is the Content-Security-Policy of the page. Its only inline script is the map of its modules.
var contentPolicy = strings.Join([]string{
	"default-src 'none'",
	"script-src 'self' '" + hashOf(moduleMap) + "'",
	"style-src 'self'",
	"img-src 'self' data: blob:",
	"connect-src 'self'",
	"base-uri 'none'",
	"form-action 'none'",
	"frame-ancestors 'none'",
}, "; ")

// hashOf returns the hash of an inline script, as policies write it.
func hashOf(script string) string {
	sum := sha256.Sum256([]byte(script))
	return "sha256-" + base64.StdEncoding.EncodeToString(sum[:])
}
