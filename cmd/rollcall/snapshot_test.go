package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server"
)

// run runs a command line and returns what it printed.
func run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	var out bytes.Buffer
	root := newRoot()
	root.SetOut(&out)
	root.SetArgs(args)
	err := root.ExecuteContext(t.Context())
	return out.String(), err
}

// startServer starts a standalone node on ports that the system chooses and returns
// its address.
func startServer(t *testing.T) string {
	t.Helper()
	cfg := server.DefaultConfig()
	cfg.DataDir, cfg.Bind, cfg.Port = t.TempDir(), "127.0.0.1", 0
	n, err := server.New(cfg, "test", slog.New(slog.DiscardHandler))
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	require.NoError(t, n.Start())
	require.Eventually(t, func() bool { return n.Ready() == nil }, 20*time.Second, 5*time.Millisecond)
	return n.HTTPAddr()
}

func TestSnapshot_SaveInspectRestore(t *testing.T) {
	from, to := startServer(t), startServer(t)
	for _, ip := range []string{"10.0.0.1", "10.0.0.2"} {
		_, err := run(t, "instance", "register", "a", "--ip", ip, "--port", "80", "--ephemeral=false", "--server", from)
		require.NoError(t, err)
	}
	path := filepath.Join(t.TempDir(), "saved")
	out, err := run(t, "snapshot", "save", path, "--server", from)
	require.NoError(t, err)
	require.Contains(t, out, "checksum verified")
	require.Contains(t, out, "1 services, 2 instances, 0 settings")

	_, err = run(t, "snapshot", "save", path, "--server", from)
	require.ErrorContains(t, err, "exists: choose another name, or replace it with --force")
	_, err = run(t, "snapshot", "save", path, "--server", from, "--force")
	require.NoError(t, err)

	inspected, err := run(t, "snapshot", "inspect", path, "-o", "json")
	require.NoError(t, err)
	var file struct {
		File string `json:"file"`
		naming.Backup
		DryRun bool                `json:"dryRun"`
		Change naming.BackupChange `json:"change"`
	}
	require.NoError(t, json.Unmarshal([]byte(inspected), &file))
	require.Equal(t, path, file.File)
	require.Equal(t, 2, file.Instances)
	require.Equal(t, map[string]int{"public": 1}, file.Namespaces)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, info.Size(), file.Bytes)

	out, err = run(t, "snapshot", "restore", path, "--dry-run", "--server", to, "-o", "json")
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal([]byte(out), &file))
	require.True(t, file.DryRun)
	require.Equal(t, naming.BackupChange{Added: 2}, file.Change)
	listed, err := run(t, "instance", "list", "a", "--server", to)
	require.NoError(t, err)
	require.NotContains(t, listed, "10.0.0.1")

	out, err = run(t, "snapshot", "restore", path, "--server", to)
	require.NoError(t, err)
	require.Contains(t, out, "2 added, 0 removed, 0 altered, 0 unchanged")
	listed, err = run(t, "instance", "list", "a", "--server", to)
	require.NoError(t, err)
	require.Contains(t, listed, "10.0.0.1:80")
	require.Contains(t, listed, "10.0.0.2:80")
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1, "nothing is left beside the file")
}

func TestSnapshot_FilesThatAreNone(t *testing.T) {
	address := startServer(t)
	whole := filepath.Join(t.TempDir(), "whole")
	_, err := run(t, "snapshot", "save", whole, "--server", address)
	require.NoError(t, err)
	content, err := os.ReadFile(whole)
	require.NoError(t, err)
	for name, c := range map[string]struct {
		content string
		says    string
	}{
		"empty":   {"", "cut short"},
		"cut":     {string(content[:len(content)-1]), "cut short"},
		"other":   {strings.Repeat("text ", 100), "no snapshot of Rollcall"},
		"altered": {string(content[:len(content)-1]) + string(content[len(content)-1]^1), "checksum"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "file")
			require.NoError(t, os.WriteFile(path, []byte(c.content), 0o600))
			for _, args := range [][]string{{"inspect", path}, {"restore", path, "--server", address}} {
				_, err := run(t, append([]string{"snapshot"}, args...)...)
				require.ErrorContains(t, err, c.says)
				require.ErrorContains(t, err, path)
			}
		})
	}
	_, err = run(t, "snapshot", "inspect", filepath.Join(t.TempDir(), "missing"))
	require.ErrorIs(t, err, os.ErrNotExist)
	_, err = run(t, "snapshot", "inspect", whole, "-o", "xml")
	require.ErrorContains(t, err, `output is "xml"`)
}

// What breaks off leaves no file, and an older one as it was.
func TestSaveFile_BrokenOff(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(path, []byte("old"), 0o600))
	lost := errors.New("connection lost")
	_, err := saveFile(path, true, func(w io.Writer) error {
		_, err := io.WriteString(w, "rollcall snapshot\n and then nothing")
		return errors.Join(err, lost)
	})
	require.ErrorIs(t, err, lost)
	_, err = saveFile(path, true, func(w io.Writer) error {
		_, err := io.WriteString(w, "something else that a proxy might answer")
		return err
	})
	require.ErrorContains(t, err, "no snapshot of Rollcall")
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, "old", string(content))
	left, err := os.ReadDir(filepath.Dir(path))
	require.NoError(t, err)
	require.Len(t, left, 1)
}
