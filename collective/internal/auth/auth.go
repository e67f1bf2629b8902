// Package auth proves to both ends of a connection that the other one knows the secret of a job, and encrypts the
// connection if the job asks for that.
//
// # Protocol
//
// The end that dials speaks first. A listener answers only a greeting, and sends nothing about its job:
//
//	dialer    greeting 8, nonce 32
//	listener  greeting 8, nonce 32
//	dialer    proof 32
//	listener  proof 32
//
// A proof is the HMAC-SHA256 of both nonces. Its key is derived by HKDF-SHA256 from the secret, the job, the purpose of
// the connection and the role of the end. So a proof is worth nothing on another connection, for another purpose, or if
// it is sent back. The listener proves itself only to a dialer that has proved itself.
//
// If the job is encrypted, TLS 1.3 follows. Both ends have the same certificate: its Ed25519 key is derived from the
// job's key and the nonces, and each end accepts no other one. Without encryption the ends are proved and the bytes
// that follow are not: an attacker on their way can change them.
//
// # What it costs
//
// Before the proof a connection costs its listener 40 bytes that it reads, 40 that it sends, and four short hashes.
// Handshakes have no time limit of their own: close the connection to end them.
package auth

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
)

const (
	greeting  = "ashlar\x00\x01" // the last byte is the version
	nonceSize = 32
	proofSize = sha256.Size
)

// ErrProtocol is matched by the error for another end that does not speak this protocol.
var ErrProtocol = errors.New("it does not speak this protocol, or another version of it")

// ErrProof is matched by the error for another end that did not prove that it knows the secret.
var ErrProof = errors.New("it is not of this run: its run ID, secret or encryption differs")

// A Key belongs to one job. It is safe for concurrent use.
type Key struct {
	bytes   []byte
	encrypt bool
}

// NewKey derives the key of a job from the secret. Both ends must give the same arguments. A job without a secret is
// protected by its name alone.
func NewKey(secret []byte, job string, encrypt bool) *Key {
	return &Key{derive(hkdf.Key(sha256.New, secret, []byte("ashlar collective"), fmt.Sprintf("%t %s", encrypt, job),
		sha256.Size)), encrypt}
}

// Child derives the key of a part of the job, which has a name of its own.
func (k *Key) Child(name []byte) *Key { return &Key{k.expand("child", string(name)), k.encrypt} }

func (k *Key) expand(use, of string) []byte {
	return derive(hkdf.Expand(sha256.New, k.bytes, use+"\x00"+of, sha256.Size))
}

func derive(key []byte, err error) []byte {
	if err != nil {
		panic("auth: " + err.Error()) // the sizes are constants
	}
	return key
}

// Dial proves both ends of a connection that this end has dialed, and returns the connection to use from now on. After
// an error the caller closes c. Both ends must name the same purpose.
func (k *Key) Dial(c net.Conn, purpose string) (net.Conn, error) {
	s := session{key: k, purpose: purpose, dialer: newNonce()}
	if err := sendNonce(c, s.dialer); err != nil {
		return nil, err
	}
	var err error
	if s.listener, err = readNonce(c); err != nil {
		return nil, err
	}
	if _, err := c.Write(s.proof("dialer")); err != nil {
		return nil, err
	}
	if err := s.check(c, "listener"); err != nil {
		return nil, err
	}
	return s.encrypt(c, true)
}

// Accept is Dial for the end that listens. It sends its proof only after it has checked the other one.
func (k *Key) Accept(c net.Conn, purpose string) (net.Conn, error) {
	s := session{key: k, purpose: purpose, listener: newNonce()}
	var err error
	if s.dialer, err = readNonce(c); err != nil {
		return nil, err
	}
	if err := sendNonce(c, s.listener); err != nil {
		return nil, err
	}
	if err := s.check(c, "dialer"); err != nil {
		return nil, err
	}
	if _, err := c.Write(s.proof("listener")); err != nil {
		return nil, err
	}
	return s.encrypt(c, false)
}

func newNonce() (nonce [nonceSize]byte) {
	rand.Read(nonce[:])
	return nonce
}

func sendNonce(c io.Writer, nonce [nonceSize]byte) error {
	_, err := c.Write(append([]byte(greeting), nonce[:]...))
	return err
}

func readNonce(c io.Reader) (nonce [nonceSize]byte, err error) {
	var b [len(greeting) + nonceSize]byte
	if n, err := io.ReadFull(c, b[:]); err != nil {
		if n > 0 && string(b[:min(n, len(greeting))]) != greeting[:min(n, len(greeting))] {
			err = ErrProtocol
		}
		return nonce, err
	}
	if string(b[:len(greeting)]) != greeting {
		return nonce, ErrProtocol
	}
	return [nonceSize]byte(b[len(greeting):]), nil
}

// A session is the handshake of one connection.
type session struct {
	key              *Key
	purpose          string
	dialer, listener [nonceSize]byte
}

// proof returns the proof of the end with a role.
func (s *session) proof(role string) []byte {
	mac := hmac.New(sha256.New, s.key.expand("proof of the "+role, s.purpose))
	mac.Write(s.dialer[:])
	mac.Write(s.listener[:])
	return mac.Sum(nil)
}

// check reads the proof of the end with a role.
func (s *session) check(c io.Reader, role string) error {
	var got [proofSize]byte
	_, err := io.ReadFull(c, got[:])
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%w (the connection ended)", ErrProof) // as a listener does after a wrong proof
	}
	if err == nil && !hmac.Equal(got[:], s.proof(role)) {
		err = ErrProof
	}
	return err
}
