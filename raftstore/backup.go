package raftstore

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/naming"
)

// Save writes everything that this node has applied to one file: a snapshot in the
// format that doc.go describes. It blocks while w takes that, not longer. For everything that was acknowledged anywhere, call
// WaitConsistent first.
func (s *Store) Save(w io.Writer) (naming.Backup, error) {
	content, err := s.newestState()
	if err != nil {
		return naming.Backup{}, fmt.Errorf("save a snapshot: %w", err)
	}
	defer func() { _ = content.Close() }()
	b, err := Inspect(io.TeeReader(content, w))
	if err != nil {
		return naming.Backup{}, fmt.Errorf("save a snapshot: %w", err)
	}
	return b, nil
}

// newestState takes a snapshot, which bounds the log too, and opens it. Where that
// cannot be done it reads the table: when nothing has happened since the last one, when
// Raft's configuration changes, when the disk is full, and on a node that has heard of
// no leader since its start: what that has applied before Raft ran, Raft does not count.
func (s *Store) newestState() (io.ReadCloser, error) {
	s.mu.Lock()
	node := s.raft
	s.mu.Unlock()
	if node == nil || s.closed() {
		return nil, consistency.ErrClosed
	}
	future := node.Snapshot()
	if future.Error() == nil {
		if _, content, err := future.Open(); err == nil {
			return content, nil
		}
	}
	return s.readTable(), nil
}

// readTable returns the present state as a snapshot has it. The reader must be closed.
func (s *Store) readTable() io.ReadCloser {
	i := s.fsm.image()
	read, write := io.Pipe()
	go func() { write.CloseWithError(i.write(write)) }() // ends when all is read, or with Close
	return read
}

// Inspect reads a whole backup, verifies it and says what is in it. The error is a
// *naming.InvalidError for what is no backup that this program can use.
func Inspect(r io.Reader) (naming.Backup, error) {
	i, size, err := readBackup(r)
	if err != nil {
		return naming.Backup{}, err
	}
	return i.describe(size), nil
}

func readBackup(r io.Reader) (*image, int64, error) {
	counted := &countingReader{in: r}
	i, err := readSnapshot(counted)
	switch {
	case err == nil:
		return i, counted.bytes, nil
	case !errors.Is(err, errNewer) && !errors.Is(err, errNoSnapshot):
		err = fmt.Errorf("the backup is damaged: %w", err)
	}
	return nil, 0, &naming.InvalidError{Fault: naming.FaultValue, Field: "snapshot", Text: err.Error()}
}

type countingReader struct {
	in    io.Reader
	bytes int64
}

func (c *countingReader) Read(p []byte) (int, error) {
	n, err := c.in.Read(p)
	c.bytes += int64(n)
	return n, err
}

func (i *image) describe(size int64) naming.Backup {
	b := naming.Backup{Bytes: size, Format: i.format, Index: i.index, Cluster: i.cluster, Namespaces: make(map[string]int)}
	if i.timeMs > 0 {
		b.Time = time.UnixMilli(int64(i.timeMs))
	}
	services := make(map[naming.ServiceKey]bool)
	for _, d := range i.datums {
		switch d.Kind {
		case consistency.KindInstance:
			b.Instances++
		case consistency.KindSettings:
			b.Settings++
		case consistency.KindOverride:
			b.Overrides++
		case consistency.KindSwitch:
			b.Switches++
			continue
		case consistency.KindNamespace: // not a service
			b.Recorded++
			continue
		case consistency.KindCluster:
			b.Clusters++
		}
		if !services[d.Service] {
			services[d.Service] = true
			b.Namespaces[d.Service.Namespace]++
		}
	}
	b.Services = len(services)
	return b
}

// DryRun verifies a backup as Restore does, changes nothing, and says what Restore
// would change on this node.
func (s *Store) DryRun(r io.Reader) (naming.Backup, naming.BackupChange, error) {
	i, size, err := readBackup(r)
	if err != nil {
		return naming.Backup{}, naming.BackupChange{}, err
	}
	change, err := s.compare(i)
	return i.describe(size), change, err
}

// compare counts the differences between the table and an image.
func (s *Store) compare(i *image) (c naming.BackupChange, err error) {
	encode := func(d consistency.Datum) ([]byte, error) {
		d.Version = consistency.Version{}
		return proto.MarshalOptions{Deterministic: true}.Marshal(snapshotRecord(d))
	}
	present := make(map[consistency.Key][]byte)
	for _, d := range s.table.Datums() {
		if present[d.Key], err = encode(d); err != nil {
			return c, err
		}
	}
	c.Removed = len(present)
	for _, d := range i.datums {
		have, ok := present[d.Key]
		want, err := encode(d)
		switch {
		case err != nil:
			return c, err
		case !ok:
			c.Added++
			continue
		case bytes.Equal(have, want):
			c.Unchanged++
		default:
			c.Altered++
		}
		c.Removed--
	}
	return c, nil
}

// Restore makes a backup the whole content of all nodes. The nodes keep their name
// and Raft's configuration, so a backup can come from elsewhere. It takes place on
// the leader; others return a *consistency.RedirectError. Writes meanwhile wait, and
// are applied to the restored state. After ErrUnknownOutcome it may have happened,
// and may be done again.
func (s *Store) Restore(ctx context.Context, r io.Reader) (naming.Backup, naming.BackupChange, error) {
	i, size, err := readBackup(r)
	if err != nil {
		return naming.Backup{}, naming.BackupChange{}, err
	}
	b := i.describe(size)
	change, err := s.compare(i)
	if err != nil {
		return b, change, err
	}
	if err := s.refused(); err != nil {
		return b, change, fmt.Errorf("%w: %w", consistency.ErrNotReady, err)
	}
	if err := s.awaitLeader(ctx, true); err != nil {
		return b, change, err
	}
	if i.cluster = s.clusterID(); i.cluster == "" {
		return b, change, fmt.Errorf("%w: this node has just begun to lead", consistency.ErrNoLeader)
	}
	i.requests = nil // of another time
	var file bytes.Buffer
	if err := i.write(&file); err != nil {
		return b, change, err
	}
	s.log.Warn("all persistent data is replaced by a backup", "index", b.Index, "services", b.Services, "instances", b.Instances)
	// Raft makes an index of its own for it, larger than any before.
	meta := &raft.SnapshotMeta{Version: raft.SnapshotVersionMax, Index: b.Index, Term: 1, Size: int64(file.Len())}
	if err := s.raft.Restore(meta, &file, s.cfg.WriteTimeout); err != nil {
		if err = outcome(err); errors.Is(err, errNotAccepted) {
			err = fmt.Errorf("%w: %w", consistency.ErrNoLeader, err)
		}
		return b, change, err
	}
	// The image has the index of the backup. With one more command behind it, every
	// node that has applied this far has restored it: see verifiedIndex.
	ctx, cancel := context.WithTimeout(ctx, s.cfg.WriteTimeout)
	defer cancel()
	if err := s.submit(ctx, clusterOperation(i.cluster)); err != nil {
		return b, change, fmt.Errorf("%w: %w", consistency.ErrUnknownOutcome, err)
	}
	return b, change, nil
}
