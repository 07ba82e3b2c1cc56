package raftstore

import (
	"log/slog"
	"testing"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
)

func TestLogStore_PrefixClamp(t *testing.T) {
	for _, c := range []struct {
		name        string
		kept        uint64
		from, to    uint64
		first, last uint64 // what is left of 11 to 30
	}{
		{"prefix before the snapshot", 20, 11, 15, 16, 30},
		{"prefix up to the snapshot", 20, 11, 20, 21, 30},
		{"prefix beyond the snapshot", 20, 11, 25, 21, 30},
		{"from before the first", 20, 1, 25, 21, 30},
		{"no snapshot to fall back to", 0, 11, 25, 11, 30},
		{"snapshot before the log", 5, 11, 25, 11, 30},
		{"conflicting suffix", 20, 15, 30, 11, 14},
		{"everything conflicts", 20, 11, 30, 0, 0},
		{"beyond the end", 20, 11, 99, 0, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			l, err := openLogStore(t.TempDir(), slog.New(slog.DiscardHandler))
			require.NoError(t, err)
			defer func() { require.NoError(t, l.Close()) }()
			l.oldestKept = func() (uint64, error) { return c.kept, nil }
			var entries []*raft.Log
			for index := uint64(11); index <= 30; index++ {
				entries = append(entries, &raft.Log{Index: index, Term: 1})
			}
			require.NoError(t, l.StoreLogs(entries))
			require.NoError(t, l.DeleteRange(c.from, c.to))
			first, err := l.FirstIndex()
			require.NoError(t, err)
			last, err := l.LastIndex()
			require.NoError(t, err)
			require.Equal(t, []uint64{c.first, c.last}, []uint64{first, last})
		})
	}
}

func TestNew_SecondStoreOnTheFolderIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, err := New(testConfig(dir))
	require.NoError(t, err)
	_, err = New(testConfig(dir))
	require.ErrorIs(t, err, ErrInUse)
	require.ErrorContains(t, err, dir)
	require.NoError(t, s.Close())
	s, err = New(testConfig(dir))
	require.NoError(t, err)
	require.NoError(t, s.Close())
}

func TestNew_PortInUseIsRefused(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Dir = t.TempDir()
	cfg.Bind = "127.0.0.1:0"
	s := start(t, cfg)
	cfg.Dir = t.TempDir()
	cfg.Bind = s.Addr()
	_, err := New(cfg)
	require.ErrorContains(t, err, "address already in use")
	cfg.Bind = "127.0.0.1:0"
	second, err := New(cfg) // the refused one let go of the folder
	require.NoError(t, err)
	require.NoError(t, second.Close())
}

func TestNew_Advertise(t *testing.T) {
	cfg := DefaultConfig()
	cfg.Dir = t.TempDir()
	cfg.Bind = ":0" // every interface: the library alone would refuse that
	cfg.Advertise = "node-1.example:7848"
	s := start(t, cfg)
	require.Equal(t, "node-1.example:7848", s.Addr())
	writeAll(t, s, 0, 1)
}
