package compat

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Payload is the one message of the gRPC protocol. The fields stand in
// nacos_grpc_service.proto as Payload{2: Metadata{3: type, 7: headers, 8:
// clientIp}, 3: Any{2: value}}. It is written by hand because two generated
// copies of that file in one process do not go together.
type Payload struct {
	Type     string
	Headers  map[string]string
	ClientIP string
	Body     []byte
}

const (
	payloadMetadata  = 2
	payloadBody      = 3
	metadataType     = 3
	metadataHeaders  = 7
	metadataClientIP = 8
	mapKey           = 1
	mapValue         = 2
	anyValue         = 2
)

func appendText(b []byte, field protowire.Number, text string) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendString(b, text)
}

func appendMessage(b []byte, field protowire.Number, message []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, message)
}

func (p *Payload) marshal() []byte {
	metadata := appendText(nil, metadataType, p.Type)
	for key, value := range p.Headers {
		metadata = appendMessage(metadata, metadataHeaders, appendText(appendText(nil, mapKey, key), mapValue, value))
	}
	if p.ClientIP != "" {
		metadata = appendText(metadata, metadataClientIP, p.ClientIP)
	}
	out := appendMessage(nil, payloadMetadata, metadata)
	return appendMessage(out, payloadBody, appendMessage(nil, anyValue, p.Body))
}

// eachField calls fn with every length-delimited field and passes over others.
func eachField(b []byte, fn func(field protowire.Number, value []byte) error) error {
	for len(b) > 0 {
		field, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if kind != protowire.BytesType {
			n = protowire.ConsumeFieldValue(field, kind, b)
			if n < 0 {
				return protowire.ParseError(n)
			}
			b = b[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(b)
		if n < 0 {
			return protowire.ParseError(n)
		}
		b = b[n:]
		if err := fn(field, value); err != nil {
			return err
		}
	}
	return nil
}

func (p *Payload) unmarshal(b []byte) error {
	*p = Payload{}
	return eachField(b, func(field protowire.Number, value []byte) error {
		switch field {
		case payloadMetadata:
			return p.unmarshalMetadata(value)
		case payloadBody:
			return eachField(value, func(field protowire.Number, value []byte) error {
				if field == anyValue {
					p.Body = append([]byte(nil), value...)
				}
				return nil
			})
		default:
			return nil
		}
	})
}

func (p *Payload) unmarshalMetadata(b []byte) error {
	return eachField(b, func(field protowire.Number, value []byte) error {
		switch field {
		case metadataType:
			p.Type = string(value)
		case metadataClientIP:
			p.ClientIP = string(value)
		case metadataHeaders:
			var key, text string
			err := eachField(value, func(field protowire.Number, value []byte) error {
				switch field {
				case mapKey:
					key = string(value)
				case mapValue:
					text = string(value)
				default: // a map entry has no other fields
				}
				return nil
			})
			if err != nil {
				return err
			}
			if p.Headers == nil {
				p.Headers = map[string]string{}
			}
			p.Headers[key] = text
		default: // the unused fields of old versions
		}
		return nil
	})
}

// codec carries Payloads over gRPC without a generated type.
type codec struct{}

func (codec) Marshal(v any) ([]byte, error) {
	p, ok := v.(*Payload)
	if !ok {
		return nil, fmt.Errorf("marshal %T: not a payload", v)
	}
	return p.marshal(), nil
}

func (codec) Unmarshal(b []byte, v any) error {
	p, ok := v.(*Payload)
	if !ok {
		return fmt.Errorf("unmarshal %T: not a payload", v)
	}
	return p.unmarshal(b)
}

// Name is that of the ordinary codec, so that servers see nothing unusual.
func (codec) Name() string { return "proto" }
