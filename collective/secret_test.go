package collective

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ashlar-go/ashlar/collective/internal/auth"
)

const testSecret = "0123456789abcdef0123456789abcdef"

func TestSecretRefused(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for want, c := range map[string]Config{
		`other machines reach address "10.0.0.1:29500", and there is no secret`: {Address: "10.0.0.1:29500"},
		`other machines reach address "node0:29500", and there is no secret`:    {Address: "node0:29500"},
		`other machines reach address "localhost:29500", and there is no`:       {Address: "localhost:29500", Listen: "0.0.0.0"},
		"Secret has 15 bytes: want 16 to 4096":                                  {Address: "node0:29500", Secret: "123456789012345"},
		"/short has 3 bytes: want 16 to 4096":                                   {Address: "node0:29500", SecretFile: file("short", " abc\n")},
		"/empty has 0 bytes: want 16 to 4096":                                   {Address: "localhost:29500", SecretFile: file("empty", "")},
		"/long has 4098 bytes: want 16 to 4096":                                 {Address: "node0:29500", SecretFile: file("long", strings.Repeat("x", 1<<20))},
		"read the secret: open ":                                                {Address: "node0:29500", SecretFile: filepath.Join(dir, "none")},
		"Secret and SecretFile are both set":                                    {Address: "node0:29500", SecretFile: "x", Secret: testSecret},
		"Encrypt is set without a secret":                                       {Address: "localhost:29500", Encrypt: true},
	} {
		c.Size = 2
		if _, err := Join(context.Background(), open(t, "host"), c); !errors.Is(err, ErrConfig) || !strings.Contains(err.Error(), want) {
			t.Errorf("want %s: %v", want, err)
		}
	}
}

// Ranks with one secret meet, wherever each has it from, and encrypt what they send if asked.
func TestSecret(t *testing.T) {
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(testSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, encrypt := range []bool{false, true} {
		noLeaks(t)
		cfg := meetingPoint(t, 3)
		cfg.Encrypt = encrypt
		comms := make([]*Communicator, cfg.Size)
		on := func(rank int) {
			c := cfg
			c.Rank = rank
			if c.Secret = testSecret; rank == 1 {
				c.Secret, c.SecretFile = "", path
			}
			var err error
			if comms[rank], err = Join(context.Background(), open(t, "host"), c); err != nil {
				t.Errorf("rank %d: %v", rank, err)
				return
			}
			if err := operations(comms[rank]); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
			if kept := comms[rank].Config().Secret; kept != "" {
				t.Errorf("rank %d: the communicator's Config has the secret", rank)
			}
		}
		each(cfg.Size, on)
		closeAll(t, comms)
	}
}

// A rank with another secret, run or setting of Encrypt is a stranger.
func TestOtherSecret(t *testing.T) {
	cfg := meetingPoint(t, 2)
	cfg.Secret = testSecret
	for name, change := range map[string]func(*Config){
		"secret":     func(c *Config) { c.Secret = "another secret, as long" },
		"no secret":  func(c *Config) { c.Secret = "" },
		"run":        func(c *Config) { c.ID = "another run" },
		"encryption": func(c *Config) { c.Encrypt = true },
	} {
		one, err := cfg.key()
		if err != nil {
			t.Fatal(err)
		}
		c := cfg
		change(&c)
		other, err := c.key()
		if err != nil {
			t.Fatal(err)
		}
		here, there := net.Pipe()
		dialed := make(chan error)
		go func() {
			_, err := other.Dial(there, "a test")
			dialed <- err
		}()
		_, err = one.Accept(here, "a test")
		here.Close()
		if dial := <-dialed; !errors.Is(err, auth.ErrProof) || !errors.Is(dial, auth.ErrProof) {
			t.Errorf("%s: %v; the stranger: %v", name, err, dial)
		}
	}
}

func TestSecretIsNotPrinted(t *testing.T) {
	c := Config{Secret: testSecret}
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
		if text := fmt.Sprintf(verb+" "+verb, c, c.Secret); strings.Contains(text, testSecret) ||
			strings.Contains(text, fmt.Sprintf("%x", testSecret)) || !strings.Contains(text, "***") {
			t.Errorf("%s prints %s", verb, text)
		}
	}
}
