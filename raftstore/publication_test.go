package raftstore

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/naming"
)

// throughLibrary is what decodeOperation makes of a publication without the reader of
// its own.
func throughLibrary(t testing.TB, b []byte) (p consistency.Publication, request []byte, ok bool) {
	t.Helper()
	op := new(Operation)
	if proto.Unmarshal(b, op) != nil || op.GetPublish().GetService() == nil {
		return p, nil, false
	}
	m := op.GetPublish()
	p = consistency.Publication{Service: serviceKey(m.Service), Publisher: m.Publisher}
	for _, i := range m.Instances {
		p.Instances = append(p.Instances, instance(i))
	}
	return p, op.Request, true
}

func TestReadPublication_ReadsWhatIsWritten(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for range 2000 {
		op := randomOperation(t, random)
		b, err := encodeOperation(op)
		require.NoError(t, err)
		b = marked(b, []string{"", "request"}[random.IntN(2)])
		p, request, ok := readPublication(b)
		require.Equal(t, op.GetPublish() != nil, ok)
		if ok {
			want, wantRequest, _ := throughLibrary(t, b)
			require.Equal(t, want, p)
			require.Equal(t, wantRequest, request)
		}
	}
	full := publication(service(1), &naming.Instance{
		ID: "id", IP: "10.0.0.1", Port: 65535, Cluster: "c", Weight: 0.5, Healthy: true, Enabled: true, Ephemeral: true,
		Metadata: map[string]string{"": "empty key", "empty value": "", "ключ": "значение"},
	})
	b, err := EncodePublish(full)
	require.NoError(t, err)
	p, _, ok := readPublication(b)
	require.True(t, ok)
	require.Equal(t, full, p)
}

func TestReadPublication_LeavesTheRestToTheLibrary(t *testing.T) {
	t.Parallel()
	b, err := EncodePublish(publication(service(1), host(1)))
	require.NoError(t, err)
	for name, more := range map[string][]byte{
		"unknown field": protowire.AppendVarint(protowire.AppendTag(nil, 90, protowire.VarintType), 1),
		"two changes":   b,
		"cut short":     {0x7a, 5, 1},
		"no tag":        {0xff},
		"group":         protowire.AppendTag(nil, 16, protowire.StartGroupType),
	} {
		_, _, ok := readPublication(append(slices.Clip(b), more...))
		require.False(t, ok, name)
	}
	// Nor is the same content in another order the same write.
	disordered := publication(service(1), &naming.Instance{IP: "a", Metadata: map[string]string{"k": "1", "l": "2"}})
	sorted, err := EncodePublish(disordered)
	require.NoError(t, err)
	_, _, ok := readPublication(sorted)
	require.True(t, ok)
	at := bytes.Index(sorted, []byte("\x01k\x12\x011"))
	copy(sorted[at:], "\x01m")
	_, _, ok = readPublication(sorted)
	require.False(t, ok)
	broken, err := EncodePublish(publication(service(1), &naming.Instance{IP: "ab"}))
	require.NoError(t, err)
	broken[len(broken)-1] = 0xff // no UTF-8
	_, _, ok = readPublication(broken)
	require.False(t, ok)
	_, err = decodeOperation(broken)
	require.ErrorIs(t, err, errMalformed)
}

func FuzzReadPublication(f *testing.F) {
	for n := range 3 {
		b, err := EncodePublish(publication(service(n), host(n), host(7)))
		require.NoError(f, err)
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		p, request, ok := readPublication(b)
		if !ok {
			return
		}
		want, wantRequest, ok := throughLibrary(t, b)
		require.True(t, ok, "the library refuses it")
		require.True(t, want.Service == p.Service && want.Publisher == p.Publisher && len(want.Instances) == len(p.Instances))
		for n := range p.Instances {
			require.True(t, p.Instances[n].Equal(want.Instances[n]) || p.Instances[n].Weight != p.Instances[n].Weight)
		}
		require.Equal(t, string(wantRequest), string(request))
	})
}
