package compat

import (
	"net"
	"os"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/integration"
)

// nodeAddr returns the node to play against: ROLLCALL_TEST_ADDR (host:port of
// its HTTP front end) if that is set, else a process of its own that lives as long
// as the test.
func nodeAddr(t *testing.T) Target {
	t.Helper()
	addr := os.Getenv("ROLLCALL_TEST_ADDR")
	if addr == "" {
		addr = integration.StartNode(t).Addr()
	}
	host, port, err := net.SplitHostPort(addr)
	require.NoError(t, err, "ROLLCALL_TEST_ADDR")
	number, err := strconv.Atoi(port)
	require.NoError(t, err, "ROLLCALL_TEST_ADDR")
	return Target{Host: host, HTTPPort: number}
}
