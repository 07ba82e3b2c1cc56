package raftstore

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"rollcall/consistency"
)

// The functions below carry a write to the node that leads. The bytes are an
// encoded [Operation]; see command.proto.

// EncodePut encodes a datum that is to be stored, for [Store.Write].
func EncodePut(d consistency.Datum) ([]byte, error) {
	op, err := putOperation(d)
	if err != nil {
		return nil, err
	}
	return encodeOperation(op)
}

// EncodeDelete encodes the key of a datum that is to be removed, for [Store.Write].
func EncodeDelete(k consistency.Key) ([]byte, error) {
	op, err := deleteOperation(k)
	if err != nil {
		return nil, err
	}
	return encodeOperation(op)
}

// Write makes a write that another node has encoded. It blocks and fails as the
// methods of [consistency.Store] do. What this program does not understand it
// refuses with ErrNotReady: in the log it would stop every node.
func (s *Store) Write(ctx context.Context, encoded []byte) error {
	if _, request, ok := readPublication(encoded); ok && request == nil {
		return s.write(ctx, func() ([]byte, error) { return encoded, nil })
	}
	op := new(Operation)
	err := proto.Unmarshal(encoded, op)
	if err != nil {
		err = fmt.Errorf("%w: %w", errMalformed, err)
	} else {
		err = checkForwarded(op)
	}
	if err != nil {
		return fmt.Errorf("%w: the node that leads does not understand the one that asks, their versions may differ: %w", consistency.ErrNotReady, err)
	}
	return s.write(ctx, func() ([]byte, error) { return encodeOperation(op) })
}

// checkForwarded returns an error unless the operation is one that [EncodePublish],
// [EncodePut] or [EncodeDelete] of this version could have made.
func checkForwarded(op *Operation) error {
	if len(op.Request) > 0 || hasUnknown(op.ProtoReflect()) {
		return fmt.Errorf("%w: it has fields that this program does not know", errMalformed)
	}
	switch c := op.GetChange().(type) {
	case *Operation_Publish:
		if c.Publish.GetService() == nil {
			return fmt.Errorf("%w: publication without a service", errMalformed)
		}
		return nil
	case *Operation_Delete:
		_, err := deletedKey(c.Delete)
		return err
	}
	_, err := putDatum(op)
	return err
}

// hasUnknown returns whether a message, or one in it, has fields that are not known.
func hasUnknown(m protoreflect.Message) bool {
	if len(m.GetUnknown()) > 0 {
		return true
	}
	found := false
	m.Range(func(d protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case d.Message() == nil || d.IsMap():
		case d.IsList():
			for n := range v.List().Len() {
				found = found || hasUnknown(v.List().Get(n).Message())
			}
		default:
			found = hasUnknown(v.Message())
		}
		return !found
	})
	return found
}
