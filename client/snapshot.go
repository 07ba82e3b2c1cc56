package client

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"rollcall/naming"
)

// SaveSnapshot writes all persistent data of the nodes to w, as one file; with stale
// what the server itself has, which works without a leader. It blocks until all is
// written, or for ctx. After an error what was written is of no use.
func (c *Admin) SaveSnapshot(ctx context.Context, w io.Writer, stale bool) error {
	answer, err := c.stream(ctx, http.MethodGet, url.Values{"stale": {strconv.FormatBool(stale)}}, nil)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	if _, err := io.Copy(w, answer.Body); err != nil {
		return fmt.Errorf("take the snapshot of %s: %w", c.base.Host, err)
	}
	return nil
}

// RestoreSnapshot makes the file in r all the persistent data of the nodes, and
// returns what is in it and what it changed; with dryRun nothing is changed. It blocks
// until that is done, or for ctx.
func (c *Admin) RestoreSnapshot(ctx context.Context, r io.Reader, dryRun bool) (naming.Backup, naming.BackupChange, error) {
	var done struct {
		Snapshot naming.Backup       `json:"snapshot"`
		Change   naming.BackupChange `json:"change"`
	}
	answer, err := c.stream(ctx, http.MethodPost, url.Values{"dryRun": {strconv.FormatBool(dryRun)}}, r)
	if err != nil {
		return done.Snapshot, done.Change, err
	}
	defer func() { _ = answer.Body.Close() }()
	if err := json.NewDecoder(answer.Body).Decode(&done); err != nil {
		return done.Snapshot, done.Change, fmt.Errorf("decode the answer of %s: %w", c.base.Host, err)
	}
	return done.Snapshot, done.Change, nil
}

// stream makes a call about a snapshot, which may take longer than others. The caller
// closes the body.
func (c *Admin) stream(ctx context.Context, method string, q url.Values, body io.Reader) (*http.Response, error) {
	u := c.base.JoinPath("/rollcall/v1/snapshot")
	u.RawQuery = q.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", c.agent)
	if body != nil {
		r.Header.Set("Content-Type", "application/octet-stream")
	}
	patient := *c.http
	patient.Timeout = 0
	answer, err := patient.Do(r)
	if err != nil {
		return nil, fmt.Errorf("ask %s: %w", c.base.Host, err)
	}
	if answer.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(answer.Body, 64<<10))
		_ = answer.Body.Close()
		return nil, fmt.Errorf("%s answered %s: %s", c.base.Host, answer.Status, strings.TrimSpace(string(text)))
	}
	return answer, nil
}
