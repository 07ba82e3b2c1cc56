package raftstore

import (
	"errors"
	"maps"
	"math"
	"slices"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"

	"rollcall/consistency"
	"rollcall/naming"
)

// Nearly all writes are publications, and each node reads every one: they are encoded
// and read without the objects of the library, as the bytes that it makes of them.

// EncodePublish encodes a publication for [Store.Write]: the same one always in the same
// way.
func EncodePublish(p consistency.Publication) ([]byte, error) {
	var service, publish, op fields
	service.text(1, p.Service.Namespace)
	service.text(2, p.Service.Group)
	service.text(3, p.Service.Name)
	publish.message(1, &service)
	publish.text(2, p.Publisher)
	for _, i := range p.Instances {
		publish.message(3, instanceFields(i))
	}
	op.message(1, &publish)
	if op.bad {
		return nil, errors.New("encode publication: a text is no UTF-8")
	}
	return op.b, checkSize(op.b)
}

func instanceFields(i *naming.Instance) *fields {
	var f fields
	f.text(1, i.ID)
	f.text(2, i.IP)
	f.number(3, uint64(uint32(i.Port)))
	f.text(4, i.Cluster)
	if bits := math.Float64bits(i.Weight); bits != 0 {
		f.b = protowire.AppendFixed64(protowire.AppendTag(f.b, 5, protowire.Fixed64Type), bits)
	}
	for n, set := range []bool{i.Healthy, i.Enabled, i.Ephemeral} {
		f.number(protowire.Number(6+n), protowire.EncodeBool(set))
	}
	for _, key := range slices.Sorted(maps.Keys(i.Metadata)) {
		var pair fields
		pair.anyText(1, key)
		pair.anyText(2, i.Metadata[key])
		f.message(9, &pair)
	}
	return &f
}

// fields are those of a message, encoded. Zero values are left out.
type fields struct {
	b   []byte
	bad bool // a text is no UTF-8
}

func (f *fields) text(number protowire.Number, s string) {
	if s != "" {
		f.anyText(number, s)
	}
}

func (f *fields) anyText(number protowire.Number, s string) {
	f.bad = f.bad || !utf8.ValidString(s)
	f.b = protowire.AppendString(protowire.AppendTag(f.b, number, protowire.BytesType), s)
}

func (f *fields) number(number protowire.Number, v uint64) {
	if v != 0 {
		f.b = protowire.AppendVarint(protowire.AppendTag(f.b, number, protowire.VarintType), v)
	}
}

func (f *fields) message(number protowire.Number, m *fields) {
	f.bad = f.bad || m.bad
	f.b = protowire.AppendBytes(protowire.AppendTag(f.b, number, protowire.BytesType), m.b)
}

// readPublication reads an encoded operation that publishes. ok is false for every
// other one, and for one that is not exactly as [EncodePublish] makes it: then the
// library reads it. All texts are parts of one copy of the operation.
func readPublication(b []byte) (p consistency.Publication, request []byte, ok bool) {
	op := parts{text: string(b), rest: b}
	found := false
	for op.next() {
		switch {
		case op.number == 15 && op.kind == protowire.BytesType && request == nil:
			request = op.value
		case op.number == 1 && op.kind == protowire.BytesType && !found:
			found = true
			if p, ok = publicationIn(op.inner()); !ok {
				return p, nil, false
			}
		default:
			return p, nil, false
		}
	}
	return p, request, found && op.whole()
}

func publicationIn(m parts) (p consistency.Publication, ok bool) {
	hasService := false
	for m.next() {
		if m.kind != protowire.BytesType {
			return p, false
		}
		switch {
		case m.number == 1 && !hasService:
			hasService = true
			s := m.inner()
			for s.next() {
				if !s.textTo(&p.Service.Namespace, 1) && !s.textTo(&p.Service.Group, 2) && !s.textTo(&p.Service.Name, 3) {
					return p, false
				}
			}
			if !s.whole() {
				return p, false
			}
		case m.textTo(&p.Publisher, 2):
		case m.number == 3:
			i, ok := instanceIn(m.inner())
			if !ok {
				return p, false
			}
			p.Instances = append(p.Instances, i)
		default:
			return p, false
		}
	}
	return p, hasService && m.whole()
}

func instanceIn(m parts) (*naming.Instance, bool) {
	i := new(naming.Instance)
	last := "" // key of the metadata, which are sorted
	for m.next() {
		switch {
		case m.textTo(&i.ID, 1), m.textTo(&i.IP, 2), m.textTo(&i.Cluster, 4):
		case m.number == 3 && m.kind == protowire.VarintType:
			i.Port = int(uint32(m.bits))
		case m.number == 5 && m.kind == protowire.Fixed64Type:
			i.Weight = math.Float64frombits(m.bits)
		case m.number == 6 && m.kind == protowire.VarintType:
			i.Healthy = m.bits != 0
		case m.number == 7 && m.kind == protowire.VarintType:
			i.Enabled = m.bits != 0
		case m.number == 8 && m.kind == protowire.VarintType:
			i.Ephemeral = m.bits != 0
		case m.number == 9 && m.kind == protowire.BytesType:
			var key, value string
			pair := m.inner()
			for pair.next() {
				if !pair.textTo(&key, 1) && !pair.textTo(&value, 2) {
					return nil, false
				}
			}
			if !pair.whole() || i.Metadata != nil && key <= last {
				return nil, false
			}
			if i.Metadata == nil {
				i.Metadata = make(map[string]string)
			}
			i.Metadata[key], last = value, key
		default:
			return nil, false
		}
	}
	return i, m.whole()
}

// parts goes through the fields of an encoded message.
type parts struct {
	text string // the message
	rest []byte // what of it is still to be read
	bad  bool

	number protowire.Number
	kind   protowire.Type
	value  []byte // of BytesType, and where it begins in text
	at     int
	bits   uint64 // of the others
}

// next reads a field; false at the end and at what is none.
func (m *parts) next() bool {
	if len(m.rest) == 0 {
		return false
	}
	number, kind, n := protowire.ConsumeTag(m.rest)
	if n < 0 {
		m.bad = true
		return false
	}
	m.number, m.kind = number, kind
	m.rest = m.rest[n:]
	switch kind {
	case protowire.BytesType:
		m.value, n = protowire.ConsumeBytes(m.rest)
	case protowire.VarintType:
		m.bits, n = protowire.ConsumeVarint(m.rest)
	case protowire.Fixed64Type:
		m.bits, n = protowire.ConsumeFixed64(m.rest)
	default:
		n = -1
	}
	if n < 0 {
		m.bad = true
		return false
	}
	m.rest = m.rest[n:]
	m.at = len(m.text) - len(m.rest) - len(m.value)
	return true
}

// whole tells whether all was read.
func (m *parts) whole() bool { return len(m.rest) == 0 && !m.bad }

// inner is the message that the field is.
func (m *parts) inner() parts {
	return parts{text: m.text[m.at : m.at+len(m.value)], rest: m.value}
}

// textTo stores the field if it has this number, is a text and has not come before.
func (m *parts) textTo(to *string, number protowire.Number) bool {
	if m.number != number || m.kind != protowire.BytesType || *to != "" {
		return false
	}
	*to = m.text[m.at : m.at+len(m.value)]
	return utf8.ValidString(*to)
}
