package testkit

import (
	"os"

	"golang.org/x/sys/unix"
)

// reservePort takes a port, any if it is 0, without listening there. Linux gives a port on which a socket is bound to
// no one who asks for any port, and lets others bind to it by number as long as all have SO_REUSEADDR, as net.Listen's
// have, and only one of them listens.
func reservePort(port int) (int, func(), error) {
	var bound unix.Sockaddr = &unix.SockaddrInet6{Port: port}
	fd, err := unix.Socket(unix.AF_INET6, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0) // the ports of both versions
	} else {
		bound = &unix.SockaddrInet4{Port: port}
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	}
	if err != nil {
		return 0, nil, os.NewSyscallError("socket", err)
	}
	free := func() { unix.Close(fd) }
	// The port may be in use by a socket that has SO_REUSEADDR, too: it is set once the port is this one's alone.
	if err := unix.Bind(fd, bound); err != nil {
		free()
		return 0, nil, os.NewSyscallError("bind", err)
	}
	if err := unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1); err != nil {
		free()
		return 0, nil, os.NewSyscallError("setsockopt", err)
	}
	if bound, err = unix.Getsockname(fd); err != nil {
		free()
		return 0, nil, os.NewSyscallError("getsockname", err)
	}
	switch a := bound.(type) {
	case *unix.SockaddrInet6:
		port = a.Port
	case *unix.SockaddrInet4:
		port = a.Port
	}
	return port, free, nil
}
