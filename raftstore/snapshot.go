package raftstore

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"hash"
	"io"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
)

const (
	snapshotMagic  = "rollcall snapshot\n"
	snapshotFormat = 1
	// maxRecord bounds what one record of a damaged snapshot can make us allocate.
	maxRecord = 64 << 20
)

// snapshot is the state at one index. The datums are shared with the table, which
// never alters a value.
type snapshot struct {
	index  uint64
	datums []consistency.Datum
}

// Persist writes the snapshot and closes the sink, or cancels it on an error.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	if err := writeSnapshot(sink, s.index, s.datums); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

// Release lets go of the datums.
func (s *snapshot) Release() { s.datums = nil }

// writeSnapshot writes the format that doc.go describes.
func writeSnapshot(w io.Writer, index uint64, datums []consistency.Datum) error {
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	if _, err := out.WriteString(snapshotMagic); err != nil {
		return err
	}
	header := &SnapshotHeader{Format: snapshotFormat, Index: index, Records: uint64(len(datums))}
	if _, err := protodelim.MarshalTo(out, header); err != nil {
		return fmt.Errorf("write snapshot header: %w", err)
	}
	var buf []byte
	for _, d := range datums {
		var err error
		if buf, err = (proto.MarshalOptions{}).MarshalAppend(buf[:0], snapshotRecord(d)); err != nil {
			return fmt.Errorf("encode %s: %w", d.Service, err)
		}
		if _, err = out.Write(binary.AppendUvarint(out.AvailableBuffer(), uint64(len(buf)))); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		if _, err = out.Write(buf); err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return fmt.Errorf("write snapshot: %w", err)
	}
	_, err := w.Write(sum.Sum(nil))
	return err
}

func snapshotRecord(d consistency.Datum) *SnapshotRecord {
	r := &SnapshotRecord{Version: d.Version.Time}
	switch d.Kind {
	case consistency.KindInstance:
		r.Datum = &SnapshotRecord_Instance{instanceOp(d)}
	case consistency.KindSettings:
		r.Datum = &SnapshotRecord_Settings{settingsOp(d)}
	case consistency.KindOverride:
		r.Datum = &SnapshotRecord_Override{overrideOp(d)}
	case consistency.KindSwitch:
		r.Datum = &SnapshotRecord_Switch{switchOp(d)}
	}
	return r
}

// readSnapshot reads and verifies a whole snapshot.
func readSnapshot(r io.Reader) (index uint64, datums []consistency.Datum, err error) {
	in := &hashingReader{in: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(in, magic); err != nil {
		return 0, nil, fmt.Errorf("read snapshot: %w", unexpectedEOF(err))
	}
	if string(magic) != snapshotMagic {
		return 0, nil, errors.New("this is no snapshot of Rollcall")
	}
	var header SnapshotHeader
	options := protodelim.UnmarshalOptions{MaxSize: maxRecord}
	if err := options.UnmarshalFrom(in, &header); err != nil {
		return 0, nil, fmt.Errorf("read snapshot header: %w", unexpectedEOF(err))
	}
	if header.Format != snapshotFormat {
		return 0, nil, fmt.Errorf("snapshot format %d is unknown, this program knows format %d", header.Format, snapshotFormat)
	}
	datums = make([]consistency.Datum, 0, min(header.Records, 1<<20))
	for n := range header.Records {
		var record SnapshotRecord
		if err := options.UnmarshalFrom(in, &record); err != nil {
			return 0, nil, fmt.Errorf("read record %d of %d: %w", n+1, header.Records, unexpectedEOF(err))
		}
		d, err := recordDatum(&record)
		if err != nil {
			return 0, nil, fmt.Errorf("read record %d of %d: %w", n+1, header.Records, err)
		}
		datums = append(datums, d)
	}
	want := in.sum.Sum(nil)
	have := make([]byte, len(want))
	if _, err := io.ReadFull(in, have); err != nil {
		return 0, nil, fmt.Errorf("read checksum: %w", unexpectedEOF(err))
	}
	if !bytes.Equal(have, want) {
		return 0, nil, errors.New("the SHA-256 checksum does not match")
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return 0, nil, errors.New("there are bytes behind the checksum")
	}
	return header.Index, datums, nil
}

func recordDatum(r *SnapshotRecord) (d consistency.Datum, err error) {
	switch c := r.GetDatum().(type) {
	case *SnapshotRecord_Instance:
		d, err = instanceDatum(c.Instance)
	case *SnapshotRecord_Settings:
		d, err = settingsDatum(c.Settings)
	case *SnapshotRecord_Override:
		d, err = overrideDatum(c.Override)
	case *SnapshotRecord_Switch:
		d, err = switchDatum(c.Switch)
	default:
		err = errors.New("unknown kind of datum")
	}
	d.Version = consistency.Version{Time: r.GetVersion()}
	return d, err
}

// hashingReader hashes what is read from it. It has ReadByte for protodelim.
type hashingReader struct {
	in  *bufio.Reader
	sum hash.Hash
	one [1]byte
}

func (h *hashingReader) Read(p []byte) (int, error) {
	n, err := h.in.Read(p)
	h.sum.Write(p[:n])
	return n, err
}

func (h *hashingReader) ReadByte() (byte, error) {
	b, err := h.in.ReadByte()
	if err == nil {
		h.one[0] = b
		h.sum.Write(h.one[:])
	}
	return b, err
}

// unexpectedEOF tells the end of a truncated file from a regular end.
func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
