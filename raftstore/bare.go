package raftstore

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"time"

	"github.com/hashicorp/raft"
)

// Bare is the library alone, on the same kind of log and with a table that keeps
// nothing: the limit that the store is measured against. Its nodes run in this process
// and speak over TCP on this machine.
type Bare struct {
	leader  *raft.Raft
	closers []func() error
}

// bareWait bounds how long the nodes may take to elect one of them.
const bareWait = 10 * time.Second

// NewBare starts a node in each of the folders, which must be empty, and waits until
// one leads.
func NewBare(dirs ...string) (*Bare, error) {
	x := new(Bare)
	var configuration raft.Configuration
	var all []*raft.Raft
	for n, dir := range dirs {
		node, address, err := x.open(raft.ServerID(fmt.Sprint(n)), dir)
		if err != nil {
			return nil, errors.Join(err, x.Close())
		}
		configuration.Servers = append(configuration.Servers, raft.Server{ID: raft.ServerID(fmt.Sprint(n)), Address: address})
		all = append(all, node)
	}
	if err := all[0].BootstrapCluster(configuration).Error(); err != nil {
		return nil, errors.Join(err, x.Close())
	}
	for end := time.Now().Add(bareWait); x.leader == nil; {
		for _, node := range all {
			if node.State() == raft.Leader && node.Barrier(bareWait).Error() == nil {
				x.leader = node
			}
		}
		if time.Now().After(end) {
			return nil, errors.Join(errors.New("the bare nodes elected none of them"), x.Close())
		}
		<-time.After(10 * time.Millisecond)
	}
	return x, nil
}

func (x *Bare) open(id raft.ServerID, dir string) (*raft.Raft, raft.ServerAddress, error) {
	logs, err := openLogStore(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		return nil, "", err
	}
	logs.oldestKept = func() (uint64, error) { return math.MaxUint64, nil }
	transport, err := raft.NewTCPTransport("127.0.0.1:0", nil, transportPool, transportTimeout, io.Discard)
	if err != nil {
		return nil, "", errors.Join(err, logs.Close())
	}
	conf := raft.DefaultConfig()
	conf.LocalID, conf.LogOutput = id, io.Discard
	conf.MaxAppendEntries = maxAppendEntries
	conf.NoLegacyTelemetry = true
	node, err := raft.NewRaft(conf, nothing{}, logs, logs, raft.NewInmemSnapshotStore(), transport)
	if err != nil {
		return nil, "", errors.Join(err, transport.Close(), logs.Close())
	}
	x.closers = append(x.closers, func() error {
		return errors.Join(node.Shutdown().Error(), transport.Close(), logs.Close())
	})
	return node, transport.LocalAddr(), nil
}

// Apply writes one log entry and waits until it is applied. Safe for concurrent use.
func (x *Bare) Apply(command []byte) error { return x.leader.Apply(command, 0).Error() }

// Close ends the nodes.
func (x *Bare) Close() error {
	var errs []error
	for _, end := range x.closers {
		errs = append(errs, end())
	}
	x.closers = nil
	return errors.Join(errs...)
}

// nothing is an FSM that keeps nothing.
type nothing struct{}

func (nothing) Apply(*raft.Log) any                  { return nil }
func (nothing) Snapshot() (raft.FSMSnapshot, error)  { return nothing{}, nil }
func (nothing) Restore(r io.ReadCloser) error        { return r.Close() }
func (nothing) Persist(sink raft.SnapshotSink) error { return sink.Close() }
func (nothing) Release()                             {}
