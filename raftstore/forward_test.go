package raftstore

import (
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/encoding/protowire"

	"rollcall/consistency"
)

func TestStore_WriteOfAnotherNode(t *testing.T) {
	s := ready(t, start(t, testConfig(t.TempDir())))
	encode := func(b []byte, err error) []byte {
		t.Helper()
		require.NoError(t, err)
		return b
	}
	publish := encode(EncodePublish(publication(service(1), host(1))))
	ctx, request := consistency.WithRequest(t.Context(), "r")
	require.NoError(t, s.Write(ctx, publish))
	index := request.Index()
	require.NoError(t, s.Write(t.Context(), encode(EncodePut(settings(service(1), 0.5)))))
	require.NoError(t, s.Write(t.Context(), encode(EncodePut(override(service(1), host(1), 3)))))
	stat := s.Stat(service(1))
	require.Equal(t, []int{1, 1}, []int{stat.Instances, stat.Overrides})
	require.Equal(t, settings(service(1), 0.5).Settings, stat.Settings)
	require.NoError(t, s.Write(t.Context(), encode(EncodeDelete(override(service(1), host(1), 3).Key))))
	require.NoError(t, s.Write(t.Context(), encode(EncodePublish(publication(service(1))))))
	ctx, request = consistency.WithRequest(t.Context(), "r")
	require.NoError(t, s.Write(ctx, publish))
	require.Equal(t, index, request.Index())
	require.Zero(t, s.Stat(service(1)).Instances, "a repeated one is applied once")

	_, err := EncodePut(consistency.Datum{Key: consistency.Key{Kind: 99}})
	require.Error(t, err)
	_, err = EncodeDelete(consistency.Key{Kind: 99})
	require.Error(t, err)

	unknown := protowire.AppendVarint(protowire.AppendTag(nil, 99, protowire.VarintType), 1)
	nested := protowire.AppendBytes(protowire.AppendTag(nil, 1, protowire.BytesType), // publish
		protowire.AppendBytes(protowire.AppendTag(nil, 3, protowire.BytesType), unknown)) // its instance
	for name, b := range map[string][]byte{
		"nothing":         nil,
		"garbage":         {0xff},
		"no service":      encoded(t, &Operation{Change: &Operation_Publish{&PublishOp{Publisher: "p"}}}),
		"no deletion":     encoded(t, &Operation{Change: &Operation_Delete{&DeleteOp{}}}),
		"no settings":     encoded(t, &Operation{Change: &Operation_PutSettings{&SettingsOp{Service: &ServiceKey{}}}}),
		"a newer field":   append(append([]byte(nil), publish...), unknown...),
		"one in it":       append(append([]byte(nil), publish...), nested...),
		"another request": encoded(t, &Operation{Request: []byte("x"), Change: publishOperation(publication(service(1))).Change}),
		"another cluster": encoded(t, clusterOperation("x")),
	} {
		require.ErrorIs(t, s.Write(t.Context(), b), errMalformed, name)
	}
}
