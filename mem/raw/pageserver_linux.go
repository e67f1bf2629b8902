package raw

import (
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/ashlar-go/ashlar/driver"
	"github.com/ashlar-go/ashlar/mem"
	"github.com/ashlar-go/ashlar/mem/ipc"
)

// A pageServer sends the pages of live blocks to other processes, by authenticated keys that name a block. It starts
// with the first handle of pages and ends with the process.
type pageServer struct {
	mu     sync.Mutex
	name   string // of the abstract socket; empty while the server does not run
	secret [32]byte
}

var serving pageServer

// keySize is the size of a key in bytes: the block's address, size and tag, and their authentication code.
const keySize = 24 + 16

// keyOf returns the name of the socket and the key of a block. It starts the server if necessary.
func (s *pageServer) keyOf(b mem.Block) (name string, key []byte, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.name == "" {
		if err := s.start(); err != nil {
			return "", nil, fmt.Errorf("serve pages to other processes: %w", err)
		}
	}
	return s.name, s.sign(b), nil
}

// start is called with mu held.
func (s *pageServer) start() error {
	var id [8]byte
	rand.Read(s.secret[:])
	rand.Read(id[:])
	name := fmt.Sprintf("@ashlar-raw-%d-%s", os.Getpid(), hex.EncodeToString(id[:]))
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: name, Net: "unixpacket"})
	if err != nil {
		return err
	}
	s.name = name
	go func() {
		_ = ipc.ServePages(l, s.find)
		l.Close()
		s.mu.Lock()
		defer s.mu.Unlock()
		s.name = "" // the next handle starts another
	}()
	return nil
}

func (s *pageServer) sign(b mem.Block) []byte {
	key := binary.LittleEndian.AppendUint64(nil, uint64(b.Ptr))
	key = binary.LittleEndian.AppendUint64(key, uint64(b.Size))
	key = binary.LittleEndian.AppendUint64(key, b.Tag)
	mac := hmac.New(sha256.New, s.secret[:])
	mac.Write(key)
	return append(key, mac.Sum(nil)[:keySize-len(key)]...)
}

// find returns the pages of a key.
func (s *pageServer) find(key []byte) ([]driver.PageFile, error) {
	if len(key) != keySize {
		return nil, errors.New("not a key of this process")
	}
	b := mem.Block{
		Ptr: driver.Pointer(binary.LittleEndian.Uint64(key)), Size: int64(binary.LittleEndian.Uint64(key[8:])),
		Tag: binary.LittleEndian.Uint64(key[16:]),
	}
	s.mu.Lock()
	own := hmac.Equal(key, s.sign(b))
	s.mu.Unlock()
	if !own {
		return nil, errors.New("not a key of this process")
	}
	l, ok := CurrentBlocks().Holding(b.Ptr)
	if !ok || l.Block != b {
		return nil, errFreed
	}
	exporter, ok := mem.Find[mem.PageExporter](l.From)
	if !ok {
		return nil, errors.New("the block has no pages")
	}
	_, pages, err := exporter.ExportPages(b.Ptr, b.Size)
	if l, ok = CurrentBlocks().Holding(b.Ptr); !ok || l.Block != b {
		return nil, errFreed // during the call: the pages may be another block's
	}
	return pages, err
}

var errFreed = errors.New("the block was freed")

// answerTimeout is how long another process may take to send its pages.
const answerTimeout = 30 * time.Second

var errNoAnswer = fmt.Errorf("the process that made the handle did not answer within %v", answerTimeout)

// fetchPages gets the pages that another process's server has for a key.
func fetchPages(name string, key []byte) ([]driver.PageFile, error) {
	serving.mu.Lock()
	own := name == serving.name
	serving.mu.Unlock()
	if own {
		return nil, errors.New("this process made the handle: use what it has")
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), answerTimeout, errNoAnswer)
	defer cancel()
	return ipc.FetchPages(ctx, name, key)
}
