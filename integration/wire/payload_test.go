package wire

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The bytes of grpc.md section 6.
func TestPayload_Encoding(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		payload Payload
		wire    string
	}{
		"server check": {
			Payload{Type: "ServerCheckRequest", ClientIP: "10.0.0.7", Body: []byte(`{"headers":{},"module":"internal"}`)},
			"12 1e 1a 12" + text("ServerCheckRequest") + "42 08" + text("10.0.0.7") + "1a 24 12 22" + text(`{"headers":{},"module":"internal"}`),
		},
		"header": {
			Payload{Type: "T", Headers: map[string]string{"app": "unknown"}, Body: []byte("{}")},
			"12 13 1a 01" + text("T") + "3a 0e 0a 03" + text("app") + "12 07" + text("unknown") + "1a 04 12 02" + text("{}"),
		},
		"ack": {
			Payload{Type: "NotifySubscriberResponse", Body: []byte(`{"resultCode":200,"errorCode":0,"requestId":"42","success":true}`)},
			"12 1a 1a 18" + text("NotifySubscriberResponse") + "1a 42 12 40" + text(`{"resultCode":200,"errorCode":0,"requestId":"42","success":true}`),
		},
	} {
		want, err := hex.DecodeString(strings.ReplaceAll(c.wire, " ", ""))
		require.NoError(t, err)
		require.Equal(t, want, c.payload.marshal(), name)
		var back Payload
		require.NoError(t, back.unmarshal(want))
		require.Equal(t, c.payload, back, name)
	}
	// Unknown fields of every wire type are skipped.
	odd, err := hex.DecodeString("08012501000000" + "12051a0154" + "1001" + "1a041202" + hex.EncodeToString([]byte("{}")) + "a201030102ff")
	require.NoError(t, err)
	var p Payload
	require.NoError(t, p.unmarshal(odd))
	require.Equal(t, "T", p.Type)
	require.Equal(t, "{}", string(p.Body))
}

func text(s string) string { return hex.EncodeToString([]byte(s)) }

func TestPayload_RoundTrip(t *testing.T) {
	p := &Payload{Type: "InstanceRequest", Headers: map[string]string{"accessToken": "t", "app": ""}, ClientIP: "10.0.9.9", Body: []byte(`{"a":1}`)}
	text, err := Codec{}.Marshal(p)
	require.NoError(t, err)
	got := new(Payload)
	require.NoError(t, Codec{}.Unmarshal(text, got))
	require.Equal(t, p, got)
	require.Error(t, Codec{}.Unmarshal([]byte{0xff}, got))
	_, err = Codec{}.Marshal("text")
	require.Error(t, err)
}
