package raftstore

import (
	"bytes"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
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

// publishOperation is a publication as the library has it.
func publishOperation(p consistency.Publication) *Operation {
	instances := make([]*Instance, len(p.Instances))
	for n, i := range p.Instances {
		instances[n] = instanceMessage(i)
	}
	return &Operation{Change: &Operation_Publish{&PublishOp{
		Service: serviceMessage(p.Service), Publisher: p.Publisher, Instances: instances,
	}}}
}

func TestEncodePublish_IsWhatTheLibraryWrites(t *testing.T) {
	t.Parallel()
	for name, p := range map[string]consistency.Publication{
		"nothing":  {},
		"empty":    publication(service(1)),
		"one":      publication(service(1), host(1)),
		"several":  publication(service(2), host(1), host(2), &naming.Instance{}),
		"extremes": publication(service(3), &naming.Instance{Port: math.MaxUint32, Weight: math.Copysign(0, -1)}, &naming.Instance{Port: -1, Weight: math.Inf(1)}),
		"metadata": publication(service(4), &naming.Instance{ID: "i", Ephemeral: true, Metadata: map[string]string{"b": "", "": "x", "ключ": "значение", "a": strings.Repeat("long", 100)}}),
	} {
		want, err := proto.MarshalOptions{Deterministic: true}.Marshal(publishOperation(p))
		require.NoError(t, err)
		got, err := EncodePublish(p)
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
	for _, p := range []consistency.Publication{
		{Publisher: "\xff"},
		publication(service(1), &naming.Instance{IP: "\xff"}),
		publication(service(1), &naming.Instance{Metadata: map[string]string{"k": "\xff"}}),
	} {
		_, err := EncodePublish(p)
		require.ErrorContains(t, err, "UTF-8")
	}
	_, err := EncodePublish(consistency.Publication{Publisher: strings.Repeat("x", maxOperationBytes)})
	require.ErrorContains(t, err, "too large")
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
