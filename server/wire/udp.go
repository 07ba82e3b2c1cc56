package wire

import (
	"strconv"

	"rollcall/naming"
)

// Datagram returns the text of a push over UDP, not compressed. seq comes back in
// the acknowledgement; it stays below 2^53, since some clients read a double.
func Datagram(seq uint64, info *naming.ServiceInfo) []byte {
	data := ServiceInfoUDP(info)
	b := make([]byte, 0, len(data)+len(data)/4+64)
	b = append(b, `{"type":"dom","data":`...)
	b = AppendString(b, string(data))
	b = strconv.AppendUint(append(b, `,"lastRefTime":`...), seq, 10)
	return append(b, '}')
}

// DatagramAck reads an acknowledgement; ok is false for anything else.
func DatagramAck(b []byte) (seq uint64, ok bool) {
	var ack struct {
		Type        Str `json:"type"`
		LastRefTime Str `json:"lastRefTime"`
	}
	if err := Unmarshal(b, &ack); err != nil || ack.Type != "push-ack" {
		return 0, false
	}
	n, err := strconv.ParseUint(string(ack.LastRefTime), 10, 64)
	return n, err == nil
}
