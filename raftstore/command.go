package raftstore

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"slices"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
	"rollcall/naming"
)

// commandVersion is the first byte of every log entry of ours. Entries of version 1
// had neither a checksum nor a time, those of version 2 no namespaces and no settings
// of clusters.
const commandVersion = 3

// positionBits is the part of a version that tells operations of one log entry
// apart; see [versionAt].
const positionBits = 16

// requestBytes is the length of what identifies a write that is remembered.
const requestBytes = 16

const checksumBytes = 4

// operationSize is a small operation's, in bytes: how many an entry holds is estimated
// with it.
const operationSize = 128

var (
	errMalformed = errors.New("malformed command")
	errNewer     = errors.New("a newer version of the program has written this, start that version")
)

// versionAt is the version of what the operation at a position within the log
// entry writes: index<<16 | position. It grows along the log and within an entry.
func versionAt(index uint64, position int) consistency.Version {
	return consistency.Version{Time: index<<positionBits | uint64(position)}
}

// encodeCommand puts a command together from operations that their callers have
// encoded: the version byte, the CRC-32C of the rest, and the message Command.
func encodeCommand(operations [][]byte, now time.Time) []byte {
	size := 1 + checksumBytes + 16
	for _, op := range operations {
		size += len(op) + 8
	}
	b := append(make([]byte, 0, size), commandVersion, 0, 0, 0, 0)
	for _, op := range operations {
		b = protowire.AppendTag(b, 1, protowire.BytesType)
		b = protowire.AppendBytes(b, op)
	}
	b = protowire.AppendTag(b, 2, protowire.VarintType)
	b = protowire.AppendVarint(b, uint64(max(0, now.UnixMilli())))
	binary.LittleEndian.PutUint32(b[1:], checksum(b[1+checksumBytes:]))
	return b
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }

// commandBody returns what is behind the version byte and the checksum, which it
// verifies.
func commandBody(b []byte) ([]byte, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: it is empty", errMalformed)
	}
	switch b[0] {
	case 1:
		return b[1:], nil
	case 2, commandVersion:
	default:
		return nil, fmt.Errorf("%w: command version %d is unknown, this program knows versions up to %d", errNewer, b[0], commandVersion)
	}
	if len(b) < 1+checksumBytes {
		return nil, fmt.Errorf("%w: it is cut short", errMalformed)
	}
	body := b[1+checksumBytes:]
	if binary.LittleEndian.Uint32(b[1:]) != checksum(body) {
		return nil, fmt.Errorf("%w: the checksum does not match", errMalformed)
	}
	return body, nil
}

// command is what a log entry holds.
type command struct {
	operations []operation // never empty
	timeMs     uint64      // wall clock of the leader that made the entry
}

// operation is one write: a publication, or what other holds.
type operation struct {
	request     []byte
	publication consistency.Publication
	other       *Operation // nil: a publication
}

// decodeCommand returns a command.
func decodeCommand(b []byte) (c command, err error) {
	rest, err := commandBody(b)
	if err != nil {
		return c, err
	}
	c.operations = make([]operation, 0, len(rest)/operationSize+1)
	for len(rest) > 0 {
		number, kind, n := protowire.ConsumeTag(rest)
		if n < 0 {
			return c, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		rest = rest[n:]
		switch {
		case number == 1 && kind == protowire.BytesType:
			var encoded []byte
			if encoded, n = protowire.ConsumeBytes(rest); n < 0 {
				break
			}
			op, err := decodeOperation(encoded)
			if err != nil {
				return c, fmt.Errorf("operation %d: %w", len(c.operations), err)
			}
			c.operations = append(c.operations, op)
		case number == 2 && kind == protowire.VarintType:
			c.timeMs, n = protowire.ConsumeVarint(rest)
		default:
			return c, fmt.Errorf("%w: field %d is unknown", errMalformed, number)
		}
		if n < 0 {
			return c, fmt.Errorf("%w: %w", errMalformed, protowire.ParseError(n))
		}
		rest = rest[n:]
	}
	if len(c.operations) == 0 || len(c.operations) > 1<<positionBits {
		return c, fmt.Errorf("%w: %d operations", errMalformed, len(c.operations))
	}
	return c, nil
}

func decodeOperation(b []byte) (operation, error) {
	if p, request, ok := readPublication(b); ok {
		return operation{request: request, publication: p}, nil
	}
	op := new(Operation)
	if err := proto.Unmarshal(b, op); err != nil {
		return operation{}, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return operation{request: op.GetRequest(), other: op}, nil
}

// encodeOperation encodes an operation, and the same one always in the same way.
func encodeOperation(op *Operation) ([]byte, error) {
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(op)
	if err != nil {
		return nil, fmt.Errorf("encode operation: %w", err)
	}
	return b, checkSize(b)
}

func checkSize(operation []byte) error {
	if len(operation) > maxOperationBytes {
		return fmt.Errorf("a write of %d bytes is too large, %d are the limit", len(operation), maxOperationBytes)
	}
	return nil
}

// marked is an encoded operation with the id of a request, if there is one: the same
// operation of the same request is applied once.
func marked(b []byte, request string) []byte {
	if request == "" {
		return b
	}
	sum := sha256.New()
	_, _ = io.WriteString(sum, request)
	sum.Write([]byte{0})
	sum.Write(b)
	b = protowire.AppendTag(slices.Clip(b), 15, protowire.BytesType)
	return protowire.AppendBytes(b, sum.Sum(nil)[:requestBytes])
}

// putOperation returns the operation that stores a datum. It refuses a datum
// whose kind and value do not fit together.
func putOperation(d consistency.Datum) (*Operation, error) {
	switch {
	case d.Kind == consistency.KindInstance && d.Instance != nil:
		return &Operation{Change: &Operation_PutInstance{instanceOp(d)}}, nil
	case d.Kind == consistency.KindSettings && d.Settings != nil:
		return &Operation{Change: &Operation_PutSettings{settingsOp(d)}}, nil
	case d.Kind == consistency.KindOverride && d.Override != nil:
		return &Operation{Change: &Operation_PutOverride{overrideOp(d)}}, nil
	case d.Kind == consistency.KindSwitch && d.Switch != "":
		return &Operation{Change: &Operation_PutSwitch{switchOp(d)}}, nil
	case d.Kind == consistency.KindNamespace && d.Namespace != nil:
		return &Operation{Change: &Operation_PutNamespace{namespaceOp(d)}}, nil
	case d.Kind == consistency.KindCluster && d.Cluster != nil:
		return &Operation{Change: &Operation_PutCluster{clusterSettingsOp(d)}}, nil
	}
	return nil, fmt.Errorf("datum of kind %d without its value", d.Kind)
}

// deleteOperation returns the operation that removes a datum.
func deleteOperation(k consistency.Key) (*Operation, error) {
	op := &DeleteOp{Service: serviceMessage(k.Service)}
	switch k.Kind {
	case consistency.KindInstance:
		op.Kind, op.Publisher, op.Instance = DatumKind_DATUM_KIND_INSTANCE, k.Publisher, instanceKeyMessage(k.Instance)
	case consistency.KindSettings:
		op.Kind = DatumKind_DATUM_KIND_SETTINGS
	case consistency.KindOverride:
		op.Kind, op.Instance = DatumKind_DATUM_KIND_OVERRIDE, instanceKeyMessage(k.Instance)
	case consistency.KindSwitch:
		op.Kind, op.Switch = DatumKind_DATUM_KIND_SWITCH, k.Switch
	case consistency.KindNamespace:
		op.Kind = DatumKind_DATUM_KIND_NAMESPACE
	case consistency.KindCluster:
		op.Kind, op.Instance = DatumKind_DATUM_KIND_CLUSTER, instanceKeyMessage(k.Instance)
	default:
		return nil, fmt.Errorf("key of unknown kind %d", k.Kind)
	}
	return &Operation{Change: &Operation_Delete{op}}, nil
}

// clusterOperation returns the operation that names the nodes.
func clusterOperation(id string) *Operation {
	return &Operation{Change: &Operation_SetCluster{&ClusterOp{Id: id}}}
}

// applyOperation writes an operation to the table. It depends on nothing but its
// arguments, so every node does the same.
func applyOperation(table *consistency.DataStore, decoded operation, v consistency.Version) error {
	op := decoded.other
	if op == nil {
		table.Publish(decoded.publication, v)
		return nil
	}
	switch c := op.GetChange().(type) {
	case *Operation_Publish:
		if c.Publish.GetService() == nil {
			return fmt.Errorf("%w: publication without a service", errMalformed)
		}
		p := consistency.Publication{
			Service:   serviceKey(c.Publish.Service),
			Publisher: c.Publish.Publisher,
			Instances: make([]*naming.Instance, len(c.Publish.Instances)),
		}
		for n, m := range c.Publish.Instances {
			p.Instances[n] = instance(m)
		}
		table.Publish(p, v)
		return nil
	case *Operation_Delete:
		k, err := deletedKey(c.Delete)
		if err != nil {
			return err
		}
		table.Delete(k)
		return nil
	}
	d, err := putDatum(op)
	if err != nil {
		return err
	}
	d.Version = v
	table.Put(d)
	return nil
}

func putDatum(op *Operation) (consistency.Datum, error) {
	switch c := op.GetChange().(type) {
	case *Operation_PutInstance:
		return instanceDatum(c.PutInstance)
	case *Operation_PutSettings:
		return settingsDatum(c.PutSettings)
	case *Operation_PutOverride:
		return overrideDatum(c.PutOverride)
	case *Operation_PutSwitch:
		return switchDatum(c.PutSwitch)
	case *Operation_PutNamespace:
		return namespaceDatum(c.PutNamespace)
	case *Operation_PutCluster:
		return clusterDatum(c.PutCluster)
	}
	return consistency.Datum{}, fmt.Errorf("%w: unknown operation", errMalformed)
}

func deletedKey(m *DeleteOp) (consistency.Key, error) {
	if m.GetService() == nil {
		return consistency.Key{}, fmt.Errorf("%w: deletion without a service", errMalformed)
	}
	k := consistency.Key{Service: serviceKey(m.Service)}
	switch m.Kind {
	case DatumKind_DATUM_KIND_INSTANCE:
		k.Kind, k.Publisher, k.Instance = consistency.KindInstance, m.Publisher, instanceKey(m.Instance)
	case DatumKind_DATUM_KIND_SETTINGS:
		k.Kind = consistency.KindSettings
	case DatumKind_DATUM_KIND_OVERRIDE:
		k.Kind, k.Instance = consistency.KindOverride, instanceKey(m.Instance)
	case DatumKind_DATUM_KIND_SWITCH:
		k.Kind, k.Switch = consistency.KindSwitch, m.Switch
	case DatumKind_DATUM_KIND_NAMESPACE:
		k = consistency.NamespaceKey(m.Service.GetNamespace())
	case DatumKind_DATUM_KIND_CLUSTER:
		k = consistency.ClusterKey(k.Service, m.GetInstance().GetCluster())
	default:
		return k, fmt.Errorf("%w: deletion of kind %d", errMalformed, m.Kind)
	}
	return k, nil
}
