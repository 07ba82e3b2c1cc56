// Package wire is the one message of the gRPC protocol, for clients that send any
// bytes. It is encoded by hand: the official Go SDK registers the same protobuf names
// as the server does, and one process cannot hold both; and the server's own reader is
// what these clients judge.
package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Payload is the one message of the protocol: a type, headers, and a JSON body
// (grpc.md 1.1).
type Payload struct {
	Type     string
	ClientIP string
	Headers  map[string]string
	Body     []byte

	// NoMetadata leaves the metadata out altogether.
	NoMetadata bool
	// TypeURL is written into the Any of the body when it is not empty.
	TypeURL string
}

// Field numbers of Payload, Metadata, the entries of its map, and Any.
const (
	fieldPayloadMetadata  = 2
	fieldPayloadBody      = 3
	fieldMetadataType     = 3
	fieldMetadataHeaders  = 7
	fieldMetadataClientIP = 8
	fieldEntryKey         = 1
	fieldEntryValue       = 2
	fieldAnyTypeURL       = 1
	fieldAnyValue         = 2
)

func appendText(b []byte, field protowire.Number, text string) []byte {
	if text == "" {
		return b
	}
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, text)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, message)
}

func (p *Payload) marshal() []byte {
	var out []byte
	if !p.NoMetadata {
		meta := appendText(nil, fieldMetadataType, p.Type)
		for k, v := range p.Headers {
			entry := appendText(nil, fieldEntryKey, k)
			entry = appendText(entry, fieldEntryValue, v)
			meta = appendMessage(meta, fieldMetadataHeaders, entry)
		}
		meta = appendText(meta, fieldMetadataClientIP, p.ClientIP)
		out = appendMessage(out, fieldPayloadMetadata, meta)
	}
	body := appendText(nil, fieldAnyTypeURL, p.TypeURL)
	body = appendText(body, fieldAnyValue, string(p.Body))
	return appendMessage(out, fieldPayloadBody, body)
}

func (p *Payload) unmarshal(data []byte) error {
	*p = Payload{}
	return eachBytes(data, func(field protowire.Number, value []byte) error {
		switch field {
		case fieldPayloadMetadata:
			return eachBytes(value, p.setMetadata)
		case fieldPayloadBody:
			return eachBytes(value, func(field protowire.Number, value []byte) error {
				switch field {
				case fieldAnyValue:
					p.Body = append([]byte(nil), value...)
				case fieldAnyTypeURL:
					p.TypeURL = string(value)
				}
				return nil
			})
		}
		return nil
	})
}

func (p *Payload) setMetadata(field protowire.Number, value []byte) error {
	switch field {
	case fieldMetadataType:
		p.Type = string(value)
	case fieldMetadataClientIP:
		p.ClientIP = string(value)
	case fieldMetadataHeaders:
		var k, v string
		err := eachBytes(value, func(field protowire.Number, value []byte) error {
			switch field {
			case fieldEntryKey:
				k = string(value)
			case fieldEntryValue:
				v = string(value)
			}
			return nil
		})
		if err != nil {
			return err
		}
		if p.Headers == nil {
			p.Headers = map[string]string{}
		}
		p.Headers[k] = v
	}
	return nil
}

// eachBytes calls fn for every length-delimited field and skips the others.
func eachBytes(data []byte, fn func(protowire.Number, []byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if kind != protowire.BytesType {
			n = protowire.ConsumeFieldValue(field, kind, data)
			if n < 0 {
				return protowire.ParseError(n)
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return protowire.ParseError(n)
		}
		data = data[n:]
		if err := fn(field, value); err != nil {
			return err
		}
	}
	return nil
}

// Codec puts Payloads and raw bytes on the wire.
type Codec struct{}

// Name is empty, which gives the content type application/grpc, as SDKs send it.
func (Codec) Name() string { return "" }

// Marshal takes a *Payload, or []byte that is sent as it is.
func (Codec) Marshal(v any) ([]byte, error) {
	switch m := v.(type) {
	case *Payload:
		return m.marshal(), nil
	case []byte:
		return m, nil
	}
	return nil, fmt.Errorf("marshal %T", v)
}

// Unmarshal reads into a *Payload.
func (Codec) Unmarshal(data []byte, v any) error {
	m, ok := v.(*Payload)
	if !ok {
		return fmt.Errorf("unmarshal into %T", v)
	}
	return m.unmarshal(data)
}
