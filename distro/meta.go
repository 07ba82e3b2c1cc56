package distro

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Formats: see doc.go.
const (
	metaVersion     = 1
	envelopeVersion = 1
)

// Flags of a node's meta data.
const (
	flagDraining = 1 << iota
	flagLeaving
	flagVoter
)

// encodeMeta writes what gossip carries of a member besides its name, its IP
// address and its gossip port, which are the library's own fields.
func encodeMeta(m Member, cluster string) []byte {
	var flags byte
	for _, f := range []struct {
		set bool
		bit byte
	}{{m.Draining, flagDraining}, {m.Leaving, flagLeaving}, {m.Voter, flagVoter}} {
		if f.set {
			flags |= f.bit
		}
	}
	b := make([]byte, 0, 21+len(m.ID)+len(m.Version)+len(cluster))
	b = append(b, metaVersion, flags)
	b = binary.BigEndian.AppendUint64(b, m.Boot)
	for _, port := range []int{m.HTTPPort, m.GRPCPort, m.PeerPort, m.RaftPort} {
		b = binary.BigEndian.AppendUint16(b, uint16(port))
	}
	for _, s := range []string{cluster, m.ID, m.Version} {
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return b
}

// decodeMeta reads what encodeMeta wrote. What follows it is of a later release
// and is passed over.
func decodeMeta(b []byte) (m Member, cluster string, err error) {
	if len(b) == 0 {
		return m, "", errors.New("no meta data")
	}
	if b[0] != metaVersion {
		return m, "", fmt.Errorf("meta data of format %d", b[0])
	}
	if len(b) < 18 {
		return m, "", errors.New("meta data is cut off")
	}
	m.Draining, m.Leaving, m.Voter = b[1]&flagDraining != 0, b[1]&flagLeaving != 0, b[1]&flagVoter != 0
	m.Boot = binary.BigEndian.Uint64(b[2:])
	for n, port := range []*int{&m.HTTPPort, &m.GRPCPort, &m.PeerPort, &m.RaftPort} {
		*port = int(binary.BigEndian.Uint16(b[10+2*n:]))
	}
	b = b[18:]
	for _, s := range []*string{&cluster, &m.ID, &m.Version} {
		if len(b) == 0 || len(b) < 1+int(b[0]) {
			return Member{}, "", errors.New("meta data is cut off")
		}
		end := 1 + int(b[0])
		*s, b = string(b[1:end]), b[end:]
	}
	return m, cluster, nil
}

// kind says what an envelope holds.
type kind byte

const (
	kindMessage kind = 1 // a message of Send
	kindGoodbye kind = 2 // nothing: the sender leaves
	kindState   kind = 3 // a push/pull state
)

// envelope is a user message or a user state of the library, which says nothing
// about its sender.
type envelope struct {
	kind kind
	from string
	boot uint64
	body []byte
}

func (e envelope) encode() []byte {
	b := make([]byte, 0, 11+len(e.from)+len(e.body))
	b = append(b, envelopeVersion, byte(e.kind))
	b = binary.BigEndian.AppendUint64(b, e.boot)
	b = append(b, byte(len(e.from)))
	b = append(b, e.from...)
	return append(b, e.body...)
}

// decodeEnvelope reads an envelope; its body shares the memory of b.
func decodeEnvelope(b []byte) (envelope, error) {
	if len(b) > 0 && b[0] != envelopeVersion {
		return envelope{}, fmt.Errorf("envelope of format %d", b[0])
	}
	if len(b) < 11 || len(b) < 11+int(b[10]) || b[10] == 0 {
		return envelope{}, errors.New("envelope is cut off")
	}
	name := 11 + int(b[10])
	return envelope{kind: kind(b[1]), boot: binary.BigEndian.Uint64(b[2:]), from: string(b[11:name]), body: b[name:]}, nil
}
