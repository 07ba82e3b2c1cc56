package httpapi

import (
	"encoding/json"
	"net/http"
	"time"

	"rollcall/naming"
)

// uploadTimeout bounds how long a client may take to send a snapshot.
const uploadTimeout = 10 * time.Minute

// saveSnapshot streams all persistent data. What goes wrong after the first byte
// breaks the connection, so that nobody takes a part for the whole.
func (s *Server) saveSnapshot(w http.ResponseWriter, r *http.Request) {
	stale, err := flagParam(r, "stale")
	if err != nil {
		s.refusedPlain(err).write(w)
		return
	}
	out := &download{w: w}
	switch _, err := s.cfg.Backups.Save(r.Context(), out, stale); {
	case err == nil:
	case out.begun:
		s.log.Warn("a snapshot was not sent completely", "err", err)
		panic(http.ErrAbortHandler)
	default:
		s.refusedPlain(err).write(w)
	}
}

// download is a body of which nothing is sent before there is something.
type download struct {
	w     http.ResponseWriter
	begun bool
}

// Write implements io.Writer.
func (d *download) Write(p []byte) (int, error) {
	if !d.begun {
		d.begun = true
		d.w.Header().Set("Content-Type", "application/octet-stream")
	}
	return d.w.Write(p)
}

// restoreSnapshot restores what the body holds, or says what that would change.
func (s *Server) restoreSnapshot(w http.ResponseWriter, r *http.Request) {
	dryRun, err := flagParam(r, "dryRun")
	if err != nil {
		s.refusedPlain(err).write(w)
		return
	}
	if err := http.NewResponseController(w).SetReadDeadline(time.Now().Add(uploadTimeout)); err != nil {
		s.log.Debug("time for a snapshot was not set", "err", err)
	}
	saved, change, err := s.cfg.Backups.Restore(r.Context(), r.Body, dryRun)
	if err != nil {
		s.refusedPlain(err).write(w)
		return
	}
	b, err := json.Marshal(struct {
		DryRun   bool                `json:"dryRun"`
		Snapshot naming.Backup       `json:"snapshot"`
		Change   naming.BackupChange `json:"change"`
	}{dryRun, saved, change})
	if err != nil {
		s.refusedPlain(err).write(w)
		return
	}
	jsonBody(b).write(w)
}

// flagParam reads a parameter of the query that is true or false; without it, it is
// false.
func flagParam(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	return trueOrFalse(name, text)
}

// refusedPlain answers an error of a path of our own in text.
func (s *Server) refusedPlain(err error) answer {
	r := s.registry.Refusal(err)
	return answer{r.Status, plainText, []byte(r.Text + "\n")}
}
