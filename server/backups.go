package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	"rollcall/consistency"
	"rollcall/naming"
	"rollcall/server/wire"
)

// archive is what saves and restores a store of persistent data; raftstore.Store
// documents it.
type archive interface {
	WaitConsistent(ctx context.Context) error
	Save(w io.Writer) (naming.Backup, error)
	DryRun(r io.Reader) (naming.Backup, naming.BackupChange, error)
	Restore(ctx context.Context, r io.Reader) (naming.Backup, naming.BackupChange, error)
}

// backups saves all persistent data to a stream and restores it from one, on
// whichever node is asked. Safe for concurrent use.
type backups struct {
	store archive
	dir   string // for what is to be restored, while it is
	// send has another node restore the content; nil: there are no others.
	send func(ctx context.Context, node string, content io.Reader) error
}

const (
	restoreTimeout = 2 * time.Minute
	restoreRetry   = 100 * time.Millisecond // while leadership moves
	restoreChunk   = 256 << 10
)

// Save writes a backup of everything that was acknowledged before, by any node; with
// stale of what this node has, without asking another. It blocks while w takes the
// data. After an error what was written is of no use; ErrNoLeader means that nothing
// was written.
func (b *backups) Save(ctx context.Context, w io.Writer, stale bool) (naming.Backup, error) {
	if !stale {
		err := b.store.WaitConsistent(ctx)
		if errors.Is(err, consistency.ErrNoLeader) {
			err = fmt.Errorf("%w; with stale=true this node gives what it has", err)
		}
		if err != nil {
			return naming.Backup{}, err
		}
	}
	return b.store.Save(w)
}

// Restore makes a backup all the persistent data of all nodes, and returns when this
// node shows it; with dryRun it changes nothing and says what it would change. A file
// that is damaged changes nothing either, its error is a *naming.InvalidError. It
// blocks while r is read, and then for two minutes at most.
func (b *backups) Restore(ctx context.Context, r io.Reader, dryRun bool) (saved naming.Backup, change naming.BackupChange, err error) {
	if err = b.store.WaitConsistent(ctx); err != nil {
		return saved, change, err
	}
	if dryRun {
		return b.store.DryRun(r)
	}
	file, err := os.CreateTemp(b.dir, "restore-*")
	if err != nil {
		return saved, change, fmt.Errorf("keep the backup that is to be restored: %w", err)
	}
	_ = os.Remove(file.Name()) // so that it is gone whatever happens; it stays usable while it is open
	defer func() { _ = file.Close() }()
	if _, err = io.Copy(file, r); err != nil {
		return saved, change, fmt.Errorf("take the backup that is to be restored: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, restoreTimeout)
	defer cancel()
	for {
		saved, change, err = b.restore(ctx, file)
		if err == nil {
			return saved, change, b.store.WaitConsistent(ctx)
		}
		if !errors.Is(err, consistency.ErrNoLeader) && !errors.Is(err, errUnsent) {
			return saved, change, err
		}
		select {
		case <-time.After(restoreRetry):
		case <-ctx.Done():
			return saved, change, err
		}
	}
}

// restore makes one try, here or where another node leads.
func (b *backups) restore(ctx context.Context, file io.ReadSeeker) (naming.Backup, naming.BackupChange, error) {
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return naming.Backup{}, naming.BackupChange{}, err
	}
	saved, change, err := b.store.Restore(ctx, file)
	redirect, ok := errors.AsType[*consistency.RedirectError](err)
	if !ok || b.send == nil {
		return saved, change, err
	}
	if _, err := file.Seek(0, io.SeekStart); err != nil {
		return saved, change, err
	}
	return saved, change, b.send(ctx, redirect.Node, file)
}

// restoreOn has a node restore the content.
func (p *peers) restoreOn(ctx context.Context, node string, content io.Reader) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	address, ok := p.address(node)
	if !ok {
		return fmt.Errorf("%w: node %s is unknown here", errUnsent, node)
	}
	conn, err := p.conn(address)
	if err != nil {
		return err
	}
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true}, "/"+peerServiceName+"/Restore")
	if err != nil {
		return fmt.Errorf("%w: node %s: %s", errUnsent, node, status.Convert(err).Message())
	}
	chunk := make([]byte, restoreChunk)
	for {
		n, err := io.ReadFull(content, chunk)
		if n > 0 && stream.SendMsg(&wire.RestoreChunk{Content: chunk[:n]}) != nil {
			break // RecvMsg tells why
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			_ = stream.CloseSend()
			break
		}
		if err != nil {
			return err
		}
	}
	if err := stream.RecvMsg(new(wire.RestoreReply)); err != nil {
		return peerError(node, err)
	}
	return nil
}

// restore serves another node's Restore.
func (s *peerService) restore(_ any, stream grpc.ServerStream) error {
	if _, _, err := s.store.Restore(stream.Context(), &chunks{stream: stream}); err != nil {
		return peerStatus(err)
	}
	return stream.SendMsg(&wire.RestoreReply{})
}

// chunks reads what another node sends.
type chunks struct {
	stream grpc.ServerStream
	rest   []byte
}

// Read implements io.Reader.
func (c *chunks) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		chunk := new(wire.RestoreChunk)
		if err := c.stream.RecvMsg(chunk); err != nil {
			return 0, err
		}
		c.rest = chunk.GetContent()
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}
