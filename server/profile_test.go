package server

import (
	"io"
	"log/slog"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNode_ServesProfilesWhereAsked(t *testing.T) {
	t.Parallel()
	p, err := newProfiles("127.0.0.1:0")
	require.NoError(t, err)
	taken := DefaultConfig()
	taken.DataDir, taken.Bind, taken.Pprof = t.TempDir(), "127.0.0.1", p.listener.Addr().String()
	taken.Port = 0
	n, err := New(taken, "test", slog.New(slog.DiscardHandler))
	require.ErrorContains(t, err, "listen for profiles")
	require.ErrorContains(t, err, "--pprof")
	require.Nil(t, n)

	require.NoError(t, p.start())
	for profile, holds := range map[string]string{"heap": "heap profile", "mutex": "sampling period=100"} {
		r, err := http.Get("http://" + p.listener.Addr().String() + "/debug/pprof/" + profile + "?debug=1") //nolint:noctx // in a test
		require.NoError(t, err)
		body, err := io.ReadAll(r.Body)
		require.NoError(t, err)
		require.NoError(t, r.Body.Close())
		require.Contains(t, string(body), holds)
	}
	require.NoError(t, p.close())
	_, err = http.Get("http://" + p.listener.Addr().String() + "/debug/pprof/") //nolint:noctx,bodyclose // it is closed
	require.Error(t, err)
}
