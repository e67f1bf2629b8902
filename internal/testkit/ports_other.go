//go:build !linux

package testkit

import "net"

// reservePort finds out that a port is free, any if it is 0, and does not keep it.
func reservePort(port int) (int, func(), error) {
	l, err := net.ListenTCP("tcp", &net.TCPAddr{Port: port})
	if err != nil {
		return 0, nil, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, func() {}, nil
}
