package auth

import (
	"crypto/ed25519"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/big"
	"net"
)

// An encryptedConn is a connection whose Close ends it at once. That of tls.Conn may wait for the other end.
type encryptedConn struct {
	*tls.Conn
	raw net.Conn
}

func (c *encryptedConn) Close() error { return c.raw.Close() }

// encrypt returns c itself unless the job is encrypted.
func (s *session) encrypt(c net.Conn, dials bool) (net.Conn, error) {
	if !s.key.encrypt {
		return c, nil
	}
	config, err := s.config()
	if err != nil {
		return nil, fmt.Errorf("encrypt the connection: %w", err)
	}
	t := tls.Server(c, config)
	if dials {
		t = tls.Client(c, config)
	}
	if err := t.Handshake(); err != nil {
		return nil, fmt.Errorf("encrypt the connection: %w", err)
	}
	return &encryptedConn{t, c}, nil
}

// config returns the settings of either end. No authority signs the certificate and its times are not checked: the
// other end must have the same key, which only ends with the job's key can make.
func (s *session) config() (*tls.Config, error) {
	seed := s.key.expand("certificate", s.purpose+"\x00"+string(s.dialer[:])+string(s.listener[:]))
	key := ed25519.NewKeyFromSeed(seed)
	public := key.Public().(ed25519.PublicKey)
	form := &x509.Certificate{SerialNumber: big.NewInt(1)}
	der, err := x509.CreateCertificate(nil, form, form, public, key)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates:           []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}},
		MinVersion:             tls.VersionTLS13,
		SessionTicketsDisabled: true,
		ClientAuth:             tls.RequireAnyClientCert,
		InsecureSkipVerify:     true, // VerifyConnection checks more
		VerifyConnection: func(state tls.ConnectionState) error {
			if len(state.PeerCertificates) != 1 || !public.Equal(state.PeerCertificates[0].PublicKey) {
				return ErrProof
			}
			return nil
		},
	}, nil
}
