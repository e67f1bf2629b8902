package collective

import (
	"fmt"
	"io"
	"net"
	"os"
	"strings"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
	"github.com/ashlar-go/ashlar/collective/internal/rendezvous"
)

// Sizes of a secret in bytes.
const (
	minSecret = 16
	maxSecret = 4096
)

// A Secret is text that is never printed: each verb of fmt shows asterisks.
type Secret string

// Format implements fmt.Formatter.
func (s Secret) Format(f fmt.State, _ rune) {
	if s != "" {
		_, _ = io.WriteString(f, "***")
	}
}

// key returns the key of the run.
func (c Config) key() (*auth.Key, error) {
	wrong := func(format string, args ...any) error { return refuse(ErrConfig, "Config", format, args...) }
	if c.Size == 1 {
		return nil, nil
	}
	secret, source := string(c.Secret), "Secret"
	switch {
	case c.Secret != "" && c.SecretFile != "":
		return nil, wrong("Secret and SecretFile are both set: want one")
	case c.SecretFile != "":
		var err error
		if secret, err = readSecret(c.SecretFile); err != nil {
			return nil, wrong("read the secret: %v", err)
		}
		source = "the secret of " + c.SecretFile
	case c.Secret == "" && c.Encrypt:
		return nil, wrong("Encrypt is set without a secret: set Secret or SecretFile")
	case c.Secret == "" && !c.TrustedNetwork && !c.isLocal():
		return nil, wrong("other machines reach address %q, and there is no secret: set Secret or SecretFile "+
			"(ASHLAR_SECRET or ASHLAR_SECRET_FILE for FromEnv), or TrustedNetwork (ASHLAR_TRUSTED_NETWORK=1) if every "+
			"program that reaches the ranks may be one", c.Address)
	}
	if n := len(secret); n > 0 && n < minSecret || n > maxSecret || n == 0 && c.SecretFile != "" {
		return nil, wrong("%s has %d bytes: want %d to %d, such as the output of openssl rand -hex 32", source, n,
			minSecret, maxSecret)
	}
	return auth.NewKey([]byte(secret), c.ID, c.Encrypt), nil
}

// isLocal reports whether only programs of rank 0's machine reach it.
func (c Config) isLocal() bool {
	host, _, _ := net.SplitHostPort(c.Address) // checked before
	return rendezvous.IsLoopback(host) && (c.Listen == "" || rendezvous.IsLoopback(c.Listen))
}

// readSecret returns the contents of a file without white space at the ends. A file that is too long is cut off behind
// the maximum.
func readSecret(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxSecret+2)) // with the end of a line
	return strings.TrimSpace(string(b)), err
}
