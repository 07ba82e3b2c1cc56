package main

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"rollcall/naming"
	"rollcall/server"
)

func newSnapshot() *cobra.Command {
	t := new(tool)
	c := &cobra.Command{
		Use:   "snapshot",
		Short: "Save, inspect and restore all persistent data",
		Long: `Save, inspect and restore all persistent data of the nodes: persistent instances,
settings of services, operators' overrides and switches. A snapshot is one file with
a checksum. Ephemeral instances are not in it, their clients register them again.`,
	}
	t.flags(c)
	c.AddCommand(newSnapshotSave(t), newSnapshotInspect(t), newSnapshotRestore(t))
	return c
}

func newSnapshotSave(t *tool) *cobra.Command {
	var force, stale bool
	c := &cobra.Command{
		Use:   "save FILE",
		Short: "Save all persistent data to a file",
		Long: `Save all persistent data to a file. Any node can be asked: the file holds everything
that was acknowledged before. It is verified, and appears under its name only when it
is complete and on the disk.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := t.client()
			if err != nil {
				return err
			}
			b, err := saveFile(args[0], force, func(w io.Writer) error { return cl.SaveSnapshot(c.Context(), w, stale) })
			if err != nil {
				return err
			}
			return t.print(c.OutOrStdout(), backupOf(args[0], b), func(w io.Writer) { backupTable(w, args[0], b) })
		},
	}
	c.Flags().BoolVar(&force, "force", false, "replace the file if it exists")
	c.Flags().BoolVar(&stale, "stale", false, "save what the asked node has, also when there is no leader: the newest writes may be missing")
	return c
}

// saveFile writes a file by fetch, verifies it and gives it its name. On an error the
// name is what it was.
func saveFile(path string, force bool, fetch func(io.Writer) error) (b naming.Backup, err error) {
	if _, err := os.Stat(path); err == nil && !force {
		return b, fmt.Errorf("%s exists: choose another name, or replace it with --force", path)
	}
	file, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return b, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, ignoreClosed(file.Close()), os.Remove(file.Name()))
		}
	}()
	read, write := io.Pipe()
	type inspected struct {
		backup naming.Backup
		err    error
	}
	inspectedCh := make(chan inspected, 1)
	go func() {
		b, err := server.InspectBackup(read)
		_, _ = io.Copy(io.Discard, read) // what comes after a fault
		inspectedCh <- inspected{b, err}
	}()
	err = fetch(io.MultiWriter(file, write))
	_ = write.CloseWithError(err)
	seen := <-inspectedCh
	if err == nil {
		err = seen.err
	}
	if err == nil {
		err = file.Sync()
	}
	if err == nil {
		err = file.Close()
	}
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return b, fmt.Errorf("save %s: %w", path, err)
	}
	return seen.backup, syncFolder(filepath.Dir(path))
}

func ignoreClosed(err error) error {
	if errors.Is(err, os.ErrClosed) {
		return nil
	}
	return err
}

// syncFolder makes a new name in a folder survive a power cut.
func syncFolder(path string) error {
	folder, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}

func newSnapshotInspect(t *tool) *cobra.Command {
	return &cobra.Command{
		Use:   "inspect FILE",
		Short: "Verify a snapshot and show what is in it; asks no server",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			if err := t.check(); err != nil {
				return err
			}
			b, err := inspectFile(args[0])
			if err != nil {
				return err
			}
			return t.print(c.OutOrStdout(), backupOf(args[0], b), func(w io.Writer) { backupTable(w, args[0], b) })
		},
	}
}

func inspectFile(path string) (naming.Backup, error) {
	file, err := os.Open(path)
	if err != nil {
		return naming.Backup{}, err
	}
	defer func() { _ = file.Close() }()
	b, err := server.InspectBackup(file)
	if err != nil {
		return b, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

func newSnapshotRestore(t *tool) *cobra.Command {
	var dryRun bool
	c := &cobra.Command{
		Use:   "restore FILE",
		Short: "Replace all persistent data by that of a snapshot",
		Long: `Replace all persistent data of all nodes by that of a snapshot, on a running server:
any node can be asked, and the snapshot may come from other nodes. What is not in the
snapshot is gone afterwards; --dry-run says what would change. Subscribers are told of
each service that changes.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := t.client()
			if err != nil {
				return err
			}
			if _, err := inspectFile(args[0]); err != nil {
				return err
			}
			file, err := os.Open(args[0])
			if err != nil {
				return err
			}
			defer func() { _ = file.Close() }()
			b, change, err := cl.RestoreSnapshot(c.Context(), file, dryRun)
			if err != nil {
				return fmt.Errorf("restore %s: %w", args[0], err)
			}
			type restored struct {
				fileBackup
				DryRun bool                `json:"dryRun"`
				Change naming.BackupChange `json:"change"`
			}
			return t.print(c.OutOrStdout(), restored{backupOf(args[0], b), dryRun, change}, func(w io.Writer) {
				backupTable(w, args[0], b)
				verb := "changed"
				if dryRun {
					verb = "would change"
				}
				_, _ = fmt.Fprintf(w, "%s\t%d added, %d removed, %d altered, %d unchanged\n", verb, change.Added, change.Removed, change.Altered, change.Unchanged)
			})
		},
	}
	c.Flags().BoolVar(&dryRun, "dry-run", false, "verify the snapshot and say what would change, but change nothing")
	return c
}

// fileBackup is a backup with its file.
type fileBackup struct {
	File string `json:"file"`
	naming.Backup
}

func backupOf(path string, b naming.Backup) fileBackup { return fileBackup{path, b} }

func backupTable(w io.Writer, path string, b naming.Backup) {
	line := func(name, format string, args ...any) {
		_, _ = fmt.Fprintf(w, name+"\t"+format+"\n", args...)
	}
	line("file", "%s, %d bytes, format %d, checksum verified", path, b.Bytes, b.Format)
	written := "unknown"
	if !b.Time.IsZero() {
		written = b.Time.Local().Format(time.RFC3339)
	}
	line("last write", "%s, log index %d", written, b.Index)
	line("cluster", "%s", b.Cluster)
	line("content", "%d services, %d instances, %d settings, %d settings of clusters, %d overrides, %d switches, %d recorded namespaces",
		b.Services, b.Instances, b.Settings, b.Clusters, b.Overrides, b.Switches, b.Recorded)
	var namespaces []string
	for _, name := range slices.Sorted(maps.Keys(b.Namespaces)) {
		namespaces = append(namespaces, fmt.Sprintf("%s (%d)", name, b.Namespaces[name]))
	}
	line("namespaces", "%s", strings.Join(namespaces, ", "))
}
