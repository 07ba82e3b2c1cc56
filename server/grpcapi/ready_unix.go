//go:build unix

package grpcapi

import (
	"errors"
	"io"
	"net"
	"syscall"

	"google.golang.org/grpc/mem"
)

// whenReady makes the library wait for data without holding a buffer, which it does
// by itself only for the connections that it knows: 32 KB less for each idle one.
func whenReady(t *trackedConn) net.Conn {
	tcp, ok := t.Conn.(*net.TCPConn)
	if !ok {
		return t
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return t // it is closed, as the first read will tell
	}
	c := &readyConn{trackedConn: t, raw: raw}
	c.attempt = c.tryRead
	return c
}

// readyConn takes the buffer for a read when there is something to read. One read
// at a time, as the library does.
type readyConn struct {
	*trackedConn
	raw     syscall.RawConn
	attempt func(fd uintptr) bool // tryRead, made once

	// The read under way: what it asks for, and what came.
	size int
	pool mem.BufferPool
	buf  *[]byte
	n    int
	err  error
}

// ReadOnReady blocks until there is something to read, then takes a buffer of the
// size, in bytes, from the pool. After an error it returns none. The library looks
// for this method.
func (c *readyConn) ReadOnReady(size int, pool mem.BufferPool) (*[]byte, int, error) {
	c.size, c.pool = size, pool
	err := c.raw.Read(c.attempt)
	buf, n := c.buf, c.n
	if err == nil {
		err = c.err
	}
	if err == nil && n == 0 {
		err = io.EOF
	}
	c.pool, c.buf, c.n, c.err = nil, nil, 0, nil
	if err != nil { // of a failed read, n is -1
		if buf != nil {
			pool.Put(buf)
		}
		return nil, 0, err
	}
	return buf, n, nil
}

// tryRead reads once and tells whether that is all; else there is nothing yet.
func (c *readyConn) tryRead(fd uintptr) bool {
	c.buf = c.pool.Get(c.size)
	for {
		c.n, c.err = syscall.Read(int(fd), *c.buf)
		switch {
		case errors.Is(c.err, syscall.EINTR):
			continue
		case errors.Is(c.err, syscall.EAGAIN):
			c.pool.Put(c.buf)
			c.buf, c.n, c.err = nil, 0, nil
			return false
		}
		return true
	}
}
