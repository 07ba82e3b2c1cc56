package distro

import (
	"bytes"
	"strings"
	"testing"
	"testing/quick"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
)

func TestMeta_RoundTrip(t *testing.T) {
	t.Parallel()
	check := func(boot uint64, http, grpc, peer, raft uint16, draining, leaving, voter bool, later []byte) bool {
		m := Member{
			ID: "8f2b0f0e-9f6c-4c3f-8a43-2f8f4f5d3a11", Version: "v1.2.3", Boot: boot,
			HTTPPort: int(http), GRPCPort: int(grpc), PeerPort: int(peer), RaftPort: int(raft),
			Draining: draining, Leaving: leaving, Voter: voter,
		}
		got, cluster, err := decodeMeta(append(encodeMeta(m, "prod"), later...))
		return err == nil && got == m && cluster == "prod"
	}
	require.NoError(t, quick.Check(check, nil))
}

func TestMeta_LargestFits(t *testing.T) {
	t.Parallel()
	m := Member{ID: strings.Repeat("i", maxID), Version: strings.Repeat("v", maxVersion)}
	require.Less(t, len(encodeMeta(m, strings.Repeat("c", maxCluster))), memberlist.MetaMaxSize/2)
}

// A text of 255 bytes, which no node of ours writes, once made decoding panic.
func TestMeta_LongestText(t *testing.T) {
	t.Parallel()
	m := Member{ID: strings.Repeat("i", 255)}
	got, _, err := decodeMeta(encodeMeta(m, ""))
	require.NoError(t, err)
	require.Equal(t, m, got)
}

func TestMeta_CutOff(t *testing.T) {
	t.Parallel()
	whole := encodeMeta(Member{ID: "id", Version: "v"}, "c")
	for n := range whole {
		_, _, err := decodeMeta(whole[:n])
		require.Error(t, err, "%d bytes", n)
	}
	whole[0] = 2
	_, _, err := decodeMeta(whole)
	require.ErrorContains(t, err, "format 2")
}

func TestEnvelope_RoundTrip(t *testing.T) {
	t.Parallel()
	e := envelope{kind: kindMessage, from: "n1", boot: 7, body: []byte("body")}
	whole := e.encode()
	got, err := decodeEnvelope(whole)
	require.NoError(t, err)
	require.Equal(t, e, got)
	for n := range len(whole) - len(e.body) {
		_, err := decodeEnvelope(whole[:n])
		require.Error(t, err)
	}
	whole[0] = 9
	_, err = decodeEnvelope(whole)
	require.ErrorContains(t, err, "format 9")
}

func FuzzMeta(f *testing.F) {
	f.Add(encodeMeta(Member{ID: "id", Version: "v1", Boot: 1, HTTPPort: 8848, Voter: true}, "rollcall"))
	f.Add(encodeMeta(Member{ID: strings.Repeat("i", 255)}, ""))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, cluster, err := decodeMeta(b)
		if err == nil {
			again, c, err := decodeMeta(encodeMeta(m, cluster))
			require.NoError(t, err)
			require.Equal(t, m, again)
			require.Equal(t, cluster, c)
		}
		if e, err := decodeEnvelope(b); err == nil {
			require.True(t, bytes.Equal(b, e.encode()))
		}
	})
}
