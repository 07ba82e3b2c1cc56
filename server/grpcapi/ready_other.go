//go:build !unix

package grpcapi

import "net"

// whenReady does nothing here: see the other file of this name.
func whenReady(t *trackedConn) net.Conn { return t }
