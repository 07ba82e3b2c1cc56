package httpapi

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

// shelf plays the backups of a node.
type shelf struct {
	content string
	fault   error // after the content
	stale   bool
	dryRun  bool
	took    string
}

func (s *shelf) Save(_ context.Context, w io.Writer, stale bool) (naming.Backup, error) {
	s.stale = stale
	if s.content != "" {
		if _, err := io.WriteString(w, s.content); err != nil {
			return naming.Backup{}, err
		}
	}
	return naming.Backup{}, s.fault
}

func (s *shelf) Restore(_ context.Context, r io.Reader, dryRun bool) (naming.Backup, naming.BackupChange, error) {
	b, err := io.ReadAll(r)
	s.took, s.dryRun = string(b), dryRun
	return naming.Backup{Services: 4, Time: time.UnixMilli(0).UTC(), Namespaces: map[string]int{"public": 4}},
		naming.BackupChange{Added: 1, Removed: 2, Altered: 3, Unchanged: 4}, errors.Join(err, s.fault)
}

func withShelf(t *testing.T) (*node, *shelf) {
	t.Helper()
	s := new(shelf)
	n := open(t, Config{ShutdownTimeout: wait, Metrics: http.NotFoundHandler(), Backups: s})
	require.NoError(t, n.Start())
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	return n, s
}

func TestSnapshot_Save(t *testing.T) {
	n, s := withShelf(t)
	s.content = "some bytes"
	r := n.do(t, "GET /rollcall/v1/snapshot", nil, nil)
	require.Equal(t, 200, r.status)
	require.Equal(t, "some bytes", r.body)
	require.Equal(t, "application/octet-stream", r.header.Get("Content-Type"))
	require.False(t, s.stale)
	n.do(t, "GET /rollcall/v1/snapshot?stale=true", nil, nil)
	require.True(t, s.stale)
	r = n.do(t, "GET /rollcall/v1/snapshot?stale=perhaps", nil, nil)
	require.Equal(t, 400, r.status)
	require.Contains(t, r.body, `stale is "perhaps": it must be true or false`)
}

func TestSnapshot_SaveFails(t *testing.T) {
	n, s := withShelf(t)
	s.fault = errors.New("no disk")
	r := n.do(t, "GET /rollcall/v1/snapshot", nil, nil)
	require.Equal(t, 500, r.status)
	require.Contains(t, r.body, "no disk")

	s.content = "a part"
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+n.listener.Addr().String()+"/rollcall/v1/snapshot", http.NoBody)
	require.NoError(t, err)
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: wait}).Do(req)
	if err == nil {
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
	}
	require.Error(t, err, "a part must not look like the whole")
}

func TestSnapshot_Restore(t *testing.T) {
	n, s := withShelf(t)
	r := n.do(t, "POST /rollcall/v1/snapshot?dryRun=true", nil, url.Values{"a": {"1"}})
	require.Equal(t, 200, r.status, r.body)
	require.Equal(t, "a=1", s.took)
	require.True(t, s.dryRun)
	require.JSONEq(t, `{"dryRun":true,"snapshot":{"bytes":0,"format":0,"index":0,"time":"1970-01-01T00:00:00Z","cluster":"",
		"services":4,"instances":0,"settings":0,"overrides":0,"clusters":0,"recorded":0,"switches":0,"namespaces":{"public":4}},
		"change":{"added":1,"removed":2,"altered":3,"unchanged":4}}`, r.body)
	n.do(t, "POST /rollcall/v1/snapshot", nil, url.Values{"a": {"1"}})
	require.False(t, s.dryRun)
	require.Equal(t, 400, n.do(t, "POST /rollcall/v1/snapshot?dryRun=2", nil, url.Values{"a": {"1"}}).status)
	s.fault = errors.New("no leader")
	r = n.do(t, "POST /rollcall/v1/snapshot", nil, url.Values{"a": {"1"}})
	require.Equal(t, 500, r.status)
	require.Equal(t, "no leader\n", r.body)
}

func TestNodes_Remove(t *testing.T) {
	var removed string
	var fault error
	n := open(t, Config{ShutdownTimeout: wait, Metrics: http.NotFoundHandler(), RemoveNode: func(_ context.Context, node string) error {
		removed = node
		return fault
	}})
	require.NoError(t, n.Start())
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	require.Equal(t, 200, n.do(t, "DELETE /rollcall/v1/nodes/n%201", nil, nil).status)
	require.Equal(t, "n 1", removed)
	fault = &naming.InvalidError{Fault: naming.FaultValue, Field: "node", Text: "node n1 is alive"}
	r := n.do(t, "DELETE /rollcall/v1/nodes/n1", nil, nil)
	require.Equal(t, 400, r.status)
	require.Equal(t, "node n1 is alive\n", r.body)
}
