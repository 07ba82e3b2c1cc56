package raftstore

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"rollcall/consistency"
	"rollcall/naming"
)

const (
	wait = 20 * time.Second
	tick = 2 * time.Millisecond
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childFolder); dir != "" {
		child(dir)
		os.Exit(1) // it should have been killed
	}
	goleak.VerifyTestMain(m)
}

// testConfig returns a configuration for a node in memory, on its data folder.
func testConfig(dir string) Config {
	cfg := DefaultConfig()
	cfg.Dir = dir
	cfg.Node = filepath.Base(dir)
	_, cfg.Transport = raft.NewInmemTransport("")
	return cfg
}

// start returns a started store that is closed at the end of the test.
func start(t testing.TB, cfg Config) *Store {
	t.Helper()
	s, err := New(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	require.NoError(t, s.Start())
	return s
}

func ready(t testing.TB, s *Store) *Store {
	t.Helper()
	require.Eventually(t, func() bool { return s.Ready() == nil }, wait, tick)
	return s
}

func service(n int) naming.ServiceKey {
	return naming.ServiceKey{Namespace: "public", Group: "DEFAULT_GROUP", Name: "service-" + strconv.Itoa(n)}
}

func host(n int) *naming.Instance {
	i := naming.NewInstance(fmt.Sprintf("10.0.%d.%d", n/256, n%256), 8080)
	i.Ephemeral = false
	i.Metadata = map[string]string{"zone": "a", "number": strconv.Itoa(n)}
	return &i
}

func publication(svc naming.ServiceKey, hosts ...*naming.Instance) consistency.Publication {
	return consistency.Publication{Service: svc, Publisher: "10.0.0.1:8080", Instances: hosts}
}

func settings(svc naming.ServiceKey, threshold float64) consistency.Datum {
	return consistency.Datum{
		Key:      consistency.Key{Service: svc, Kind: consistency.KindSettings},
		Settings: &naming.Settings{Kind: naming.KindPersistent, ProtectThreshold: threshold, Selector: naming.Selector{Type: "none"}},
	}
}

func override(svc naming.ServiceKey, i *naming.Instance, weight float64) consistency.Datum {
	return consistency.Datum{
		Key:      consistency.Key{Service: svc, Kind: consistency.KindOverride, Instance: i.Key()},
		Override: &naming.Override{Weight: weight, Enabled: true},
	}
}

// writeAll writes publications for n services, with settings and an override in
// every third.
func writeAll(t testing.TB, s *Store, from, n int) {
	t.Helper()
	for i := from; i < from+n; i++ {
		require.NoError(t, s.Publish(t.Context(), publication(service(i), host(i), host(i+1))))
		if i%3 == 0 {
			require.NoError(t, s.Put(t.Context(), settings(service(i), 0.5)))
			require.NoError(t, s.Put(t.Context(), override(service(i), host(i), 7)))
		}
	}
}

// content returns everything in the table, comparable with require.ElementsMatch.
func content(table *consistency.DataStore) []string {
	var out []string
	for _, d := range table.Datums() {
		line := fmt.Sprintf("%+v %d", d.Key, d.Version.Time)
		switch d.Kind {
		case consistency.KindInstance:
			line += fmt.Sprintf(" %+v", *d.Instance)
		case consistency.KindSettings:
			line += fmt.Sprintf(" %+v", *d.Settings)
		case consistency.KindOverride:
			line += fmt.Sprintf(" %+v", *d.Override)
		case consistency.KindSwitch:
			line += " " + d.Value
		case consistency.KindNamespace:
			line += fmt.Sprintf(" %+v", *d.Namespace)
		case consistency.KindCluster:
			line += fmt.Sprintf(" %+v", *d.Cluster)
		}
		out = append(out, line)
	}
	return out
}

// takeSnapshot makes the store take a snapshot and returns the folder of it.
func takeSnapshot(t testing.TB, s *Store) string {
	t.Helper()
	require.NoError(t, s.raft.Snapshot().Error())
	list, err := listSnapshots(s.cfg.Dir)
	require.NoError(t, err)
	require.NotEmpty(t, list)
	return filepath.Join(s.cfg.Dir, snapshotFolder, list[0].name)
}
