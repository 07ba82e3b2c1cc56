package raftstore

import (
	"context"
	"fmt"

	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
)

// The functions below carry a write to the node that leads. The bytes are an
// encoded [Operation]; see command.proto.

// EncodePublish encodes a publication for [Store.Write].
func EncodePublish(p consistency.Publication) ([]byte, error) {
	return proto.Marshal(publishOperation(p))
}

// EncodePut encodes a datum that is to be stored, for [Store.Write].
func EncodePut(d consistency.Datum) ([]byte, error) {
	op, err := putOperation(d)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(op)
}

// EncodeDelete encodes the key of a datum that is to be removed, for [Store.Write].
func EncodeDelete(k consistency.Key) ([]byte, error) {
	op, err := deleteOperation(k)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(op)
}

// Write makes a write that another node has encoded. It blocks and fails as the
// methods of [consistency.Store] do.
func (s *Store) Write(ctx context.Context, encoded []byte) error {
	op := new(Operation)
	if err := proto.Unmarshal(encoded, op); err != nil {
		return fmt.Errorf("%w: %w", errMalformed, err)
	}
	return s.write(ctx, op)
}
