package raftstore

import (
	"strconv"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// applier applies operations of requests to an FSM, one in each log entry.
type applier struct {
	*fsm
	t    *testing.T
	next uint64
}

func newApplier(t *testing.T) *applier {
	t.Helper()
	return &applier{fsm: newFSM(consistency.NewDataStore(), 1<<30), t: t}
}

func (a *applier) apply(op *Operation, request string, at time.Duration) result {
	a.t.Helper()
	b, err := encodeOperation(op)
	require.NoError(a.t, err)
	b = marked(b, request)
	a.next++
	results, ok := a.Apply(&raft.Log{Index: a.next, Data: encodeCommand([][]byte{b}, time.UnixMilli(1_700_000_000_000).Add(at))}).([]result)
	require.True(a.t, ok)
	require.Len(a.t, results, 1)
	return results[0]
}

func TestRequests_ARepeatedWriteIsAppliedOnce(t *testing.T) {
	a := newApplier(t)
	register := publishOperation(publication(service(1), host(1)))
	require.Equal(t, result{index: 1}, a.apply(register, "r1", 0))
	require.Equal(t, result{index: 2}, a.apply(publishOperation(publication(service(1))), "r2", 0))
	require.Equal(t, result{index: 1}, a.apply(register, "r1", 0), "the answer is the first one")
	require.False(t, a.table.Stat(service(1)).Exists, "what was deleted does not come back")

	a.fsm = restored(t, a.fsm)
	require.Equal(t, result{index: 1}, a.apply(register, "r1", 0), "a snapshot remembers")
	require.False(t, a.table.Stat(service(1)).Exists)

	require.Equal(t, result{index: 5}, a.apply(register, "r3", 0), "another request is another write")
	require.True(t, a.table.Stat(service(1)).Exists)
	require.Equal(t, result{index: 6}, a.apply(publishOperation(publication(service(2), host(1))), "r1", 0), "so is another write of the same request")
	require.Equal(t, result{index: 7}, a.apply(register, "", 0), "without a request nothing is remembered")
	require.Equal(t, result{index: 8}, a.apply(register, "", 0))
}

// Maps have no order; the same write must be known again all the same.
func TestRequests_TheOrderOfMetadataDoesNotMatter(t *testing.T) {
	a := newApplier(t)
	for range 20 {
		i := host(1).With(func(i *naming.Instance) {
			i.Metadata = make(map[string]string)
			for n := range 10 {
				i.Metadata[strconv.Itoa(n)] = "v"
			}
		})
		require.Equal(t, result{index: 1}, a.apply(publishOperation(publication(service(1), i)), "r", 0))
	}
}

func TestRequests_AreForgottenByTheTimeInTheLog(t *testing.T) {
	a := newApplier(t)
	op := publishOperation(publication(service(1), host(1)))
	a.apply(op, "r", 0)
	require.Equal(t, result{index: 1}, a.apply(op, "r", requestMemory-time.Millisecond))
	require.Equal(t, result{index: 1}, a.apply(op, "r", -time.Hour), "time does not run backwards")
	require.Equal(t, result{index: 4}, a.apply(op, "r", requestMemory))
	require.Equal(t, result{index: 4}, a.apply(op, "r", 2*requestMemory-time.Millisecond))
	require.Len(t, a.requests.all(), 1)
}

func TestRequests_AreBounded(t *testing.T) {
	a := newApplier(t)
	a.requests.limit = 3000
	op := publishOperation(publication(service(1), host(1)))
	for n := range 10_000 {
		a.apply(op, strconv.Itoa(n), 0)
	}
	require.Len(t, a.requests.all(), 3000)
	require.Len(t, a.requests.byID, 3000)
	require.Less(t, cap(a.requests.order), 10_000)
	require.Equal(t, result{index: 7001}, a.apply(op, "7000", 0))
	require.Equal(t, result{index: 10_002}, a.apply(op, "6999", 0), "the oldest go first")
}
