package wire

import (
	"errors"
	"fmt"

	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
)

// Payload is the one message of the gRPC protocol.
type Payload struct {
	Type     string            // simple class name of the JSON in Body
	ClientIP string            // the sender's own idea of its address; may be empty
	Headers  map[string]string // nil when there are none
	// Body is JSON, in pieces that are written one after the other. A received
	// payload has one piece or none.
	Body [][]byte
}

// JSON returns the body in one piece; it may be empty.
func (p *Payload) JSON() []byte {
	switch len(p.Body) {
	case 0:
		return nil
	case 1:
		return p.Body[0]
	}
	var b []byte
	for _, part := range p.Body {
		b = append(b, part...)
	}
	return b
}

// Field numbers of Metadata, Payload and google.protobuf.Any (grpc.md 1.1).
const (
	fieldType     = 3
	fieldHeaders  = 7
	fieldClientIP = 8
	fieldMetadata = 2
	fieldBody     = 3
	fieldAnyValue = 2
	fieldMapKey   = 1
	fieldMapValue = 2
)

// Codec reads and writes *Payload for gRPC. Its name is that of protobuf, which
// is what is on the wire.
type Codec struct{}

// Name returns "proto".
func (Codec) Name() string { return "proto" }

// Marshal writes a *Payload. The pieces of its body are not copied.
func (Codec) Marshal(v any) (mem.BufferSlice, error) {
	p, ok := v.(*Payload)
	if !ok {
		return nil, fmt.Errorf("marshal %T: this service sends payloads only", v)
	}
	body := 0
	for _, part := range p.Body {
		body += len(part)
	}
	meta := make([]byte, 0, 96)
	if p.Type != "" {
		meta = protowire.AppendTag(meta, fieldType, protowire.BytesType)
		meta = protowire.AppendString(meta, p.Type)
	}
	for k, value := range p.Headers {
		meta = protowire.AppendTag(meta, fieldHeaders, protowire.BytesType)
		entry := protowire.SizeTag(fieldMapKey) + protowire.SizeBytes(len(k)) + protowire.SizeTag(fieldMapValue) + protowire.SizeBytes(len(value))
		meta = protowire.AppendVarint(meta, uint64(entry))
		meta = protowire.AppendTag(meta, fieldMapKey, protowire.BytesType)
		meta = protowire.AppendString(meta, k)
		meta = protowire.AppendTag(meta, fieldMapValue, protowire.BytesType)
		meta = protowire.AppendString(meta, value)
	}
	if p.ClientIP != "" {
		meta = protowire.AppendTag(meta, fieldClientIP, protowire.BytesType)
		meta = protowire.AppendString(meta, p.ClientIP)
	}
	head := make([]byte, 0, len(meta)+24)
	head = protowire.AppendTag(head, fieldMetadata, protowire.BytesType)
	head = protowire.AppendBytes(head, meta)
	head = protowire.AppendTag(head, fieldBody, protowire.BytesType)
	anySize := protowire.SizeTag(fieldAnyValue) + protowire.SizeBytes(body)
	head = protowire.AppendVarint(head, uint64(anySize))
	head = protowire.AppendTag(head, fieldAnyValue, protowire.BytesType)
	head = protowire.AppendVarint(head, uint64(body))

	if body <= smallBody {
		for _, part := range p.Body {
			head = append(head, part...)
		}
		return mem.BufferSlice{mem.SliceBuffer(head)}, nil
	}
	out := make(mem.BufferSlice, 0, 1+len(p.Body))
	out = append(out, mem.SliceBuffer(head))
	for _, part := range p.Body {
		out = append(out, mem.SliceBuffer(part))
	}
	return out, nil
}

// smallBody is the size up to which one copied buffer is cheaper than several.
const smallBody = 512

var errMalformed = errors.New("malformed payload")

// Unmarshal reads a *Payload; it copies what it keeps.
func (Codec) Unmarshal(data mem.BufferSlice, v any) error {
	p, ok := v.(*Payload)
	if !ok {
		return fmt.Errorf("unmarshal %T: this service receives payloads only", v)
	}
	return p.Unmarshal(data.Materialize())
}

// Unmarshal reads the protobuf form and keeps parts of b.
func (p *Payload) Unmarshal(b []byte) error {
	*p = Payload{}
	return eachField(b, func(num protowire.Number, value []byte) error {
		switch num {
		case fieldMetadata:
			return eachField(value, p.metadataField)
		case fieldBody:
			return eachField(value, func(num protowire.Number, value []byte) error {
				if num == fieldAnyValue {
					p.Body = [][]byte{value}
				}
				return nil
			})
		}
		return nil
	})
}

func (p *Payload) metadataField(num protowire.Number, value []byte) error {
	switch num {
	case fieldType:
		p.Type = string(value)
	case fieldClientIP:
		p.ClientIP = string(value)
	case fieldHeaders:
		var k, val string
		err := eachField(value, func(num protowire.Number, value []byte) error {
			switch num {
			case fieldMapKey:
				k = string(value)
			case fieldMapValue:
				val = string(value)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if p.Headers == nil {
			p.Headers = make(map[string]string)
		}
		p.Headers[k] = val
	}
	return nil
}

// eachField calls fn for each length-delimited field and skips the others.
func eachField(b []byte, fn func(protowire.Number, []byte) error) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errMalformed
		}
		b = b[n:]
		if typ != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(num, typ, b); n < 0 {
				return errMalformed
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return errMalformed
		}
		if err := fn(num, value); err != nil {
			return err
		}
		b = b[n:]
	}
	return nil
}
