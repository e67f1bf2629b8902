package rendezvous

import (
	"strconv"
	"strings"
)

// clean makes every text of a message printable, since errors contain them and terminals show errors.
func (m *message) clean() {
	for _, s := range []*string{&m.Text, &m.Code} {
		*s = printable(*s)
	}
	for i, s := range m.Refused {
		m.Refused[i] = printable(s)
	}
	if m.Peer != nil {
		m.Peer.clean()
	}
	for i := range m.Peers {
		m.Peers[i].clean()
	}
}

func (p *Peer) texts() []*string {
	return []*string{&p.Host, &p.Driver, &p.Device, &p.UUID, &p.Backend, &p.Library, &p.IP}
}

func (p *Peer) clean() {
	for _, s := range append(p.texts(), &p.Lacks) {
		*s = printable(*s)
	}
}

// printable replaces each character that is not printable by its escape sequence in Go: an escape by \x1b.
func printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if strconv.IsPrint(r) {
			b.WriteRune(r)
			continue
		}
		quoted := strconv.QuoteRune(r)
		b.WriteString(quoted[1 : len(quoted)-1])
	}
	return b.String()
}

// clip shortens the texts of a Peer so that they fit into a start message. (JSON may encode one byte as six.)
func (p Peer) clip() Peer {
	for _, s := range p.texts() {
		*s = (*s)[:min(len(*s), 80)]
	}
	p.Lacks = p.Lacks[:min(len(p.Lacks), 400)]
	return p
}
