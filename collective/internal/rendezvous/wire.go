package rendezvous

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// A message on the wire is a header of fixed size, little-endian, and a body of JSON:
//
//	magic 4, version 1, kind 1, zero 2, length of the body 4
//
// The header is the same in every version, so that ranks of different versions can report it.
const (
	magic      = 0x6d72_6873 // "shrm"
	version    = 2
	headerSize = 12

	maxHello = 8 << 10  // bytes of the body of a connection without a rank
	maxBody  = 32 << 10 // of the body of a rank
	perPeer  = 8 << 10  // added to the body of a start for each rank
	maxText  = 2 << 10  // of the text of an error
)

type kind uint8

const (
	hello     kind = iota + 1 // to rank 0: who I am
	accept                    // the answer: you are expected
	refuse                    // the answer, or the end of the meeting: why not
	cancelled                 // to rank 0: my time is up
	start                     // to ranks: all are here
	ping                      // I am alive
	arrive                    // to the hub: I have come to N barriers
	release                   // to members: all have come to N barriers
	closing                   // to the hub: I shall leave, when my work is done
	leave                     // to the hub: I am done
	left                      // to members: all are done
	overdue                   // to the hub: others have not left in time, Text says
	blame                     // to the hub: Rank failed, Text says how; Sure if it is the sender
	lost                      // to members: the hub's decision about Rank
	link                      // to a rank: a link from Rank
	lastKind  = link
)

func (k kind) String() string {
	if k < hello || k > lastKind {
		return fmt.Sprintf("kind %d", uint8(k))
	}
	return [...]string{
		"hello", "accept", "refuse", "giveUp", "start", "ping", "arrive", "release", "closing", "leave", "left",
		"overdue", "blame",
		"lost", "link",
	}[k-hello]
}

// A message has one of these kinds. Each kind uses some of the fields.
type message struct {
	Kind    kind          `json:"-"`
	Rank    int           `json:",omitempty"`
	Size    int           `json:",omitempty"`
	N       int           `json:",omitempty"`
	Text    string        `json:",omitempty"`
	Code    string        `json:",omitempty"`
	Sure    bool          `json:",omitempty"`
	Limit   time.Duration `json:",omitempty"`
	Missing []int         `json:",omitempty"`
	Refused []string      `json:",omitempty"`
	Links   []byte        `json:",omitempty"` // of a start: names the key of the links
	Shared  []byte        `json:",omitempty"`
	Peer    *Peer         `json:",omitempty"`
	Peers   []Peer        `json:",omitempty"`
}

// A protocolError reports an invalid message, or one of another version.
type protocolError struct{ text string }

func (e *protocolError) Error() string { return e.text }

func (m message) encode() []byte {
	m.Text = m.Text[:min(len(m.Text), maxText)]
	body := []byte(nil)
	if m.Kind != ping {
		var err error
		if body, err = json.Marshal(m); err != nil {
			panic("rendezvous: " + err.Error()) // every message has a JSON form
		}
	}
	b := make([]byte, headerSize, headerSize+len(body))
	binary.LittleEndian.PutUint32(b, magic)
	b[4], b[5] = version, byte(m.Kind)
	binary.LittleEndian.PutUint32(b[8:], uint32(len(body)))
	return append(b, body...)
}

// read reads one message with a body of at most limit bytes. It reads no byte beyond the message.
func read(r io.Reader, limit int) (message, error) {
	var h [headerSize]byte
	if _, err := io.ReadFull(r, h[:]); err != nil {
		return message{}, err
	}
	switch {
	case binary.LittleEndian.Uint32(h[:]) != magic:
		return message{}, &protocolError{fmt.Sprintf("%q is not a message of this protocol", h[:])}
	case h[4] != version:
		return message{}, &protocolError{fmt.Sprintf("version %d of the protocol, not %d", h[4], version)}
	}
	m := message{Kind: kind(h[5])}
	n := binary.LittleEndian.Uint32(h[8:])
	switch {
	case m.Kind < hello || m.Kind > lastKind || h[6]|h[7] != 0:
		return message{}, &protocolError{fmt.Sprintf("a message of unknown %v", m.Kind)}
	case int64(n) > int64(limit):
		return message{}, &protocolError{fmt.Sprintf("a message %v of %d bytes: the maximum is %d", m.Kind, n, limit)}
	case m.Kind == ping:
		if n != 0 {
			return message{}, &protocolError{"a ping with a body"}
		}
		return m, nil
	}
	body, err := io.ReadAll(io.LimitReader(r, int64(n))) // allocates memory only as bytes arrive
	if err == nil && len(body) < int(n) {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return message{}, err
	}
	if err := json.Unmarshal(body, &m); err != nil {
		return message{}, &protocolError{fmt.Sprintf("a message %v: %v", m.Kind, err)}
	}
	m.clean()
	return m, nil
}
