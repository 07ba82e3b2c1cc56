package server

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// shelf is an archive whose restores answer what the script says, one error for each
// try.
type shelf struct {
	script     []error
	consistent error
	waits      int
	restored   []string // what each try read
	saved      string
}

func (s *shelf) WaitConsistent(context.Context) error {
	s.waits++
	return s.consistent
}

func (s *shelf) Save(w io.Writer) (naming.Backup, error) {
	_, err := io.WriteString(w, s.saved)
	return naming.Backup{Services: 1}, err
}

func (s *shelf) DryRun(r io.Reader) (naming.Backup, naming.BackupChange, error) {
	b, err := io.ReadAll(r)
	return naming.Backup{Bytes: int64(len(b))}, naming.BackupChange{Added: 3}, err
}

func (s *shelf) Restore(_ context.Context, r io.Reader) (naming.Backup, naming.BackupChange, error) {
	b, err := io.ReadAll(r)
	if err == nil {
		err = s.script[0]
	}
	s.script = s.script[1:]
	s.restored = append(s.restored, string(b))
	return naming.Backup{Bytes: int64(len(b))}, naming.BackupChange{Added: 2}, err
}

func TestBackups_RestoreFindsTheLeader(t *testing.T) {
	to := func(node string) error { return &consistency.RedirectError{Node: node} }
	damaged := &naming.InvalidError{Fault: naming.FaultValue, Field: "snapshot", Text: "damaged"}
	for name, c := range map[string]struct {
		here, there []error
		nodes       []string // that were asked
		want        error
	}{
		"the leader":         {here: []error{nil}},
		"another node leads": {here: []error{to("n2")}, there: []error{nil}, nodes: []string{"n2"}},
		"leadership moves": {
			here: []error{to("n2"), to("n3"), consistency.ErrNoLeader, nil}, there: []error{consistency.ErrNoLeader, fmt.Errorf("%w: n3", errUnsent)},
			nodes: []string{"n2", "n3"},
		},
		"damaged":            {here: []error{damaged}, want: damaged},
		"unknown on another": {here: []error{to("n2")}, there: []error{consistency.ErrUnknownOutcome}, nodes: []string{"n2"}, want: consistency.ErrUnknownOutcome},
	} {
		t.Run(name, func(t *testing.T) {
			var nodes, sent []string
			s := &shelf{script: c.here}
			dir := t.TempDir()
			b := &backups{store: s, dir: dir, send: func(_ context.Context, node string, content io.Reader) error {
				text, err := io.ReadAll(content)
				nodes, sent = append(nodes, node), append(sent, string(text))
				return errors.Join(err, c.there[len(nodes)-1])
			}}
			saved, change, err := b.Restore(t.Context(), strings.NewReader("content"), false)
			if c.want == nil {
				require.NoError(t, err)
				require.Equal(t, 2, s.waits, "this node shows it")
			} else {
				require.ErrorIs(t, err, c.want)
			}
			require.EqualValues(t, 7, saved.Bytes)
			require.Equal(t, naming.BackupChange{Added: 2}, change)
			require.Equal(t, c.nodes, nodes)
			for _, text := range append(sent, s.restored...) {
				require.Equal(t, "content", text)
			}
			require.Empty(t, s.script)
			left, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
}

func TestRemoval_FindsTheLeader(t *testing.T) {
	to := &consistency.RedirectError{Node: "n2"}
	here := []error{to, to, nil}
	there := []error{consistency.ErrNoLeader, fmt.Errorf("%w: n2", errUnsent)}
	r := &removal{
		remove: func(context.Context, string) error {
			err := here[0]
			here = here[1:]
			return err
		},
		send: func(_ context.Context, to, node string) error {
			require.Equal(t, "n2 n3", to+" "+node)
			err := there[0]
			there = there[1:]
			return err
		},
	}
	require.NoError(t, r.run(t.Context(), "n3"))
	require.Empty(t, here)
	require.Empty(t, there)
	alive := &naming.InvalidError{Fault: naming.FaultValue, Field: "node", Text: "alive"}
	here, there = []error{to}, []error{alive}
	require.ErrorIs(t, r.run(t.Context(), "n3"), alive)
	here = []error{consistency.ErrNoLeader}
	require.ErrorIs(t, r.run(t.Context(), "n3"), consistency.ErrNoLeader)
}

func TestBackups_DryRunChangesNothing(t *testing.T) {
	s := &shelf{}
	_, change, err := (&backups{store: s, dir: t.TempDir()}).Restore(t.Context(), strings.NewReader("content"), true)
	require.NoError(t, err)
	require.Equal(t, naming.BackupChange{Added: 3}, change)
	require.Empty(t, s.restored)
	require.Equal(t, 1, s.waits, "it compares with what all have acknowledged")
}

func TestBackups_WithoutALeader(t *testing.T) {
	s := &shelf{consistent: consistency.ErrNoLeader, saved: "old"}
	b := &backups{store: s, dir: t.TempDir()}
	var out bytes.Buffer
	_, err := b.Save(t.Context(), &out, false)
	require.ErrorIs(t, err, consistency.ErrNoLeader)
	require.ErrorContains(t, err, "stale=true")
	require.Empty(t, out.String())
	_, err = b.Save(t.Context(), &out, true)
	require.NoError(t, err)
	require.Equal(t, "old", out.String())
	_, _, err = b.Restore(t.Context(), strings.NewReader("content"), false)
	require.ErrorIs(t, err, consistency.ErrNoLeader)
	require.Empty(t, s.restored)
}
