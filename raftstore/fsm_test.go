package raftstore

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/naming"
)

func encoded(t testing.TB, op *Operation) []byte {
	t.Helper()
	b, err := proto.Marshal(op)
	require.NoError(t, err)
	return b
}

func TestFSM_MalformedCommandStopsIt(t *testing.T) {
	command := func(ops ...*Operation) []byte {
		var all [][]byte
		for _, op := range ops {
			all = append(all, encoded(t, op))
		}
		return encodeCommand(all, time.UnixMilli(1))
	}
	framed := func(body []byte) []byte { // a body with the checksum that it should have
		b := binary.LittleEndian.AppendUint32([]byte{commandVersion}, checksum(body))
		return append(b, body...)
	}
	good := command(publishOperation(publication(service(1), host(1))))
	for name, c := range map[string]struct {
		data []byte
		says string
	}{
		"empty":             {nil, "it is empty"},
		"newer version":     {append([]byte{commandVersion + 1}, good[1:]...), "command version 4 is unknown"},
		"no operation":      {framed(nil), "malformed"},
		"cut short":         {[]byte{commandVersion, 1, 2}, "cut short"},
		"truncated":         {good[:len(good)-3], "checksum"},
		"bit flipped":       {append(slices.Clone(good[:len(good)-20]), append([]byte{good[len(good)-20] ^ 4}, good[len(good)-19:]...)...), "checksum"},
		"garbage":           {framed([]byte{0xff, 0xff, 0xff}), "malformed"},
		"unknown field":     {framed(protowire.AppendVarint(protowire.AppendTag(slices.Clone(good[5:]), 9, protowire.VarintType), 1)), "malformed"},
		"short request":     {command(&Operation{Request: []byte("x"), Change: publishOperation(publication(service(1))).Change}), "a request of 1 bytes"},
		"unknown operation": {command(&Operation{}), "unknown operation"},
		"no service":        {command(&Operation{Change: &Operation_Publish{&PublishOp{Publisher: "p"}}}), "without a service"},
		"no instance":       {command(&Operation{Change: &Operation_PutInstance{&InstanceOp{Service: &ServiceKey{}}}}), "incomplete instance"},
		"no settings":       {command(&Operation{Change: &Operation_PutSettings{&SettingsOp{Service: &ServiceKey{}}}}), "incomplete settings"},
		"no namespace":      {command(&Operation{Change: &Operation_PutNamespace{&NamespaceOp{Name: "n"}}}), "without an id"},
		"no cluster":        {command(&Operation{Change: &Operation_PutCluster{&ClusterSettingsOp{Service: &ServiceKey{}, Checker: &Checker{}}}}), "incomplete settings of a cluster"},
		"no override":       {command(&Operation{Change: &Operation_PutOverride{&OverrideOp{Service: &ServiceKey{}}}}), "incomplete override"},
		"unknown kind": {command(&Operation{Change: &Operation_PutSettings{&SettingsOp{
			Service: &ServiceKey{}, Settings: &Settings{Kind: 9},
		}}}), "kind 9"},
		"unknown deletion":  {command(&Operation{Change: &Operation_Delete{&DeleteOp{Service: &ServiceKey{}, Kind: 9}}}), "deletion of kind"},
		"deletion of what?": {command(&Operation{Change: &Operation_Delete{&DeleteOp{Kind: 1}}}), "without a service"},
		"bad second": {command(
			publishOperation(publication(service(1), host(1))), &Operation{}), "operation 1"},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFSM(consistency.NewDataStore(), 1<<20)
			var told []error
			f.failed = func(err error) { told = append(told, err) }
			err, _ := f.Apply(&raft.Log{Index: 7, Term: 3, Data: c.data}).(error)
			require.ErrorContains(t, err, c.says)
			require.ErrorContains(t, err, "log entry 7 of term 3 cannot be applied")
			require.ErrorContains(t, err, "start that version")
			require.NotContains(t, err.Error(), "\n")

			// Nothing goes on from a state that lacks an entry.
			require.Equal(t, err, f.Apply(&raft.Log{Index: 8, Term: 3, Data: good}))
			_, again := f.Snapshot()
			require.Equal(t, err, again)
			require.Equal(t, err, f.Restore(io.NopCloser(bytes.NewReader(nil))))
			require.Zero(t, f.index.load())
			require.Equal(t, []error{err}, told)
		})
	}
}

// Three replicas apply the same log. One starts again from its snapshot now and
// then, one gets the snapshot of another: nothing of that may show, to the byte.
func TestFSM_SameEntriesGiveTheSameState(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		var replicas []*fsm
		for range 3 {
			f := newFSM(consistency.NewDataStore(), 1<<20)
			f.requests.limit = 20
			replicas = append(replicas, f)
		}
		for index := uint64(1); index < 300; index++ {
			entry := &raft.Log{Index: index, Data: randomCommand(t, random)}
			var want []result
			for n, f := range replicas {
				results, ok := f.Apply(entry).([]result)
				require.True(t, ok)
				for _, r := range results {
					require.NoError(t, r.err)
				}
				if n == 0 {
					want = results
				}
				require.Equal(t, want, results)
			}
			switch {
			case index%50 == 0: // a restart
				replicas[1] = restored(t, replicas[1])
			case index%70 == 0: // a snapshot from the leader
				replicas[2] = restored(t, replicas[0])
			}
		}
		require.NotEmpty(t, content(replicas[0].table))
		require.NotEmpty(t, replicas[0].requests.all())
		want := persisted(t, replicas[0])
		for _, f := range replicas {
			require.Equal(t, want, persisted(t, f))
			require.Equal(t, want, persisted(t, restored(t, f)))
		}
	}
}

func TestFSM_EntryAppliedBeforeTheStartIsSkipped(t *testing.T) {
	f := newFSM(consistency.NewDataStore(), 1<<20)
	f.Apply(&raft.Log{Index: 1, Data: encodeCommand([][]byte{encoded(t, publishOperation(publication(service(1), host(1))))}, time.UnixMilli(1))})
	f.Apply(&raft.Log{Index: 2, Data: encodeCommand([][]byte{encoded(t, publishOperation(publication(service(1))))}, time.UnixMilli(1))})
	f.table.Listen(func(consistency.ServiceChanged) { t.Error("what was deleted came back") })
	f.Apply(&raft.Log{Index: 1, Data: encodeCommand([][]byte{encoded(t, publishOperation(publication(service(1), host(1))))}, time.UnixMilli(1))})
	require.Empty(t, f.table.Services(""))
}

func TestFSM_TheFirstNameOfTheClusterCounts(t *testing.T) {
	f := newFSM(consistency.NewDataStore(), 1<<20)
	for n, name := range []string{"a", "b"} {
		f.Apply(&raft.Log{Index: uint64(n + 1), Data: encodeCommand([][]byte{encoded(t, clusterOperation(name))}, time.UnixMilli(1))})
	}
	require.Equal(t, "a", *f.cluster.Load())
	require.Equal(t, "a", *restored(t, f).cluster.Load())
}

func TestFSM_ReadsCommandsOfVersion1(t *testing.T) {
	f := newFSM(consistency.NewDataStore(), 1<<20)
	body, err := commandBody(encodeCommand([][]byte{encoded(t, publishOperation(publication(service(1), host(1))))}, time.UnixMilli(0)))
	require.NoError(t, err)
	f.Apply(&raft.Log{Index: 1, Data: append([]byte{1}, body...)})
	require.True(t, f.table.Stat(service(1)).Exists)
}

// randomCommand returns a command of some operations. Requests are repeated now and
// then, and times jump.
func randomCommand(t *testing.T, random *rand.Rand) []byte {
	t.Helper()
	var all [][]byte
	for range 1 + random.IntN(4) {
		name := ""
		if random.IntN(2) == 0 {
			name = "request-" + strconv.Itoa(random.IntN(8))
		}
		op, err := encodeOperation(randomOperation(t, random))
		require.NoError(t, err)
		all = append(all, marked(op, name))
	}
	return encodeCommand(all, time.UnixMilli(1_700_000_000_000+random.Int64N(2*requestMemory.Milliseconds())))
}

func randomOperation(t *testing.T, random *rand.Rand) *Operation {
	t.Helper()
	svc, i := service(random.IntN(5)), host(random.IntN(5))
	var op *Operation
	var err error
	switch random.IntN(9) {
	case 0, 1, 2:
		op = publishOperation(consistency.Publication{
			Service: svc, Publisher: service(random.IntN(3)).Name, Instances: []*naming.Instance{i, host(7)}[:random.IntN(3)],
		})
	case 3:
		op, err = putOperation(settings(svc, random.Float64()))
	case 4:
		op, err = putOperation(override(svc, i, random.Float64()))
	case 5:
		op, err = putOperation(consistency.Datum{
			Key:      consistency.Key{Service: svc, Kind: consistency.KindInstance, Publisher: "service-0", Instance: i.Key()},
			Instance: i,
		})
	case 6:
		op, err = putOperation(consistency.Datum{
			Key:   consistency.Key{Kind: consistency.KindSwitch, Switch: "switch-" + strconv.Itoa(random.IntN(2))},
			Value: strconv.Itoa(random.IntN(3)),
		})
	case 7:
		op, err = deleteOperation(consistency.Key{Kind: consistency.KindSwitch, Switch: "switch-" + strconv.Itoa(random.IntN(2))})
	default:
		kinds := []consistency.Kind{consistency.KindInstance, consistency.KindSettings, consistency.KindOverride}
		op, err = deleteOperation(consistency.Key{Service: svc, Kind: kinds[random.IntN(3)], Publisher: "service-1", Instance: i.Key()})
	}
	require.NoError(t, err)
	return op
}

func TestVersionAt_GrowsAlongTheLog(t *testing.T) {
	require.Positive(t, versionAt(2, 0).Compare(versionAt(1, maxOperations)))
	require.Positive(t, versionAt(1, 1).Compare(versionAt(1, 0)))
	require.Less(t, maxOperations, 1<<positionBits)
}

// due writes entries to the FSM until it asks for a snapshot, and returns how many
// bytes they hold; 0 when it does not ask within most entries.
func due(t *testing.T, f *fsm, most int) (entries, size int) {
	t.Helper()
	data := encodeCommand([][]byte{encoded(t, publishOperation(publication(service(1), host(1))))}, time.UnixMilli(1))
	for n := range most {
		f.Apply(&raft.Log{Index: f.index.load() + 1, Data: data})
		select {
		case <-f.fullCh:
			return n + 1, (n + 1) * len(data)
		default:
		}
	}
	return 0, 0
}

// A large state is not written again for every few entries.
func TestFSM_SnapshotsCostNoMoreThanTheLog(t *testing.T) {
	const limit = 64 * entryCost
	f := filledFSM(t, 1)
	f.limit = limit
	entries, size := due(t, f, 100)
	require.InDelta(t, limit, entries*entryCost+size, 2*entryCost, "an entry counts with what it takes beside its bytes")

	large := filledFSM(t, 5_000)
	large.limit = limit
	kept := len(persisted(t, large))
	require.Greater(t, kept, 2*limit)
	for name, f := range map[string]*fsm{"written": large, "restored": restored(t, large)} {
		f.limit = limit
		entries, size := due(t, f, 2*kept/entryCost)
		require.InDelta(t, kept, entries*entryCost+size, 2*entryCost, name)
	}
}
