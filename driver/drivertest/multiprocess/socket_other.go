//go:build !linux

package multiprocess

import (
	"errors"
	"net"
	"os"
)

// Between processes, sharing is tested on Linux: RunSharing fails elsewhere for a driver that shares memory.

const socketFile = 3

func socketPair() (*net.UnixConn, *os.File, error) { return nil, nil, errors.ErrUnsupported }

func send(*net.UnixConn, any, *os.File) error { return errors.ErrUnsupported }

func receive(*net.UnixConn, any) (*os.File, error) { return nil, errors.ErrUnsupported }
