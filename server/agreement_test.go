package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/server/wire"
)

func TestDiffering(t *testing.T) {
	of := func(node string, holdings ...*wire.Holding) *wire.StateReply {
		return &wire.StateReply{Node: node, Holdings: holdings}
	}
	holds := func(node string, boot, root uint64, buckets ...uint64) *wire.Holding {
		return &wire.Holding{Node: node, Boot: boot, Instances: 7, Root: root, Buckets: buckets}
	}
	gone := holds("n2", 1, 9, 9, 9, 9)
	gone.Gone = "restarted"
	for name, c := range map[string]struct {
		states []*wire.StateReply
		want   map[string]difference
	}{
		"equal": {[]*wire.StateReply{
			of("n1", holds("n1", 1, 5), holds("n2", 2, 6)), of("n2", holds("n1", 1, 5), holds("n2", 2, 6)),
		}, map[string]difference{}},
		"an owner that is gone is nobody's word": {[]*wire.StateReply{
			of("n1", holds("n1", 1, 5), gone, holds("n2", 2, 6)), of("n2", holds("n1", 1, 5), holds("n2", 2, 6)),
		}, map[string]difference{}},
		"another start of it is not it": {[]*wire.StateReply{
			of("n1", holds("n1", 1, 5), holds("n2", 1, 6)), of("n2", holds("n1", 1, 5), holds("n2", 2, 6)),
		}, map[string]difference{"n1": {owners: 1}}},
		"buckets": {[]*wire.StateReply{
			of("n1", holds("n1", 1, 5, 1, 2, 3), holds("n2", 2, 6, 4, 5, 6)),
			of("n2", holds("n1", 1, 4, 1, 0, 4), holds("n2", 2, 6, 4, 5, 6)),
		}, map[string]difference{"n2": {owners: 1, buckets: 2}}},
		"nothing of it": {[]*wire.StateReply{
			of("n1", holds("n1", 1, 5, 1, 0, 3)), of("n2"),
		}, map[string]difference{"n2": {owners: 1, buckets: 2}}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, differing(c.states)) })
	}
}
