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
	"slices"

	"github.com/hashicorp/raft"
	"google.golang.org/protobuf/encoding/protodelim"
	"google.golang.org/protobuf/proto"

	"rollcall/consistency"
)

const (
	snapshotMagic = "rollcall snapshot\n"
	// Format 1 had no name of the nodes, no time and no requests; format 2 no
	// namespaces and no settings of clusters.
	snapshotFormat = 3
	// maxRecord bounds what one record of a damaged snapshot can make us allocate.
	maxRecord = 64 << 20
)

var errNoSnapshot = errors.New("this is no snapshot of Rollcall")

// image is the state of the FSM at one index. The datums are shared with the
// table, which never alters a value.
type image struct {
	format   int    // that it was read in
	index    uint64 // of the last command in it
	timeMs   uint64
	cluster  string
	requests []request // oldest first
	datums   []consistency.Datum
}

// snapshot is an image on its way to the disk.
type snapshot struct {
	image
	written func(bytes int64) // called once all is written
}

// Persist writes the snapshot and closes the sink, or cancels it on an error.
func (s *snapshot) Persist(sink raft.SnapshotSink) error {
	counted := &countingWriter{out: sink}
	if err := s.write(counted); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	s.written(counted.bytes)
	return sink.Close()
}

// Release lets go of the datums.
func (s *snapshot) Release() { s.image = image{} }

// write writes the format that doc.go describes. Equal states give equal bytes.
func (i *image) write(w io.Writer) error {
	slices.SortFunc(i.datums, func(a, b consistency.Datum) int { return a.Compare(b.Key) })
	sum := sha256.New()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 64<<10)
	if _, err := out.WriteString(snapshotMagic); err != nil {
		return err
	}
	header := &SnapshotHeader{
		Format: snapshotFormat, Index: i.index, Records: uint64(len(i.requests) + len(i.datums)),
		Cluster: i.cluster, TimeMs: i.timeMs,
	}
	if _, err := protodelim.MarshalTo(out, header); err != nil {
		return fmt.Errorf("write snapshot header: %w", err)
	}
	var buf []byte
	record := func(r *SnapshotRecord) (err error) {
		if buf, err = (proto.MarshalOptions{Deterministic: true}).MarshalAppend(buf[:0], r); err != nil {
			return fmt.Errorf("encode record: %w", err)
		}
		if _, err = out.Write(binary.AppendUvarint(out.AvailableBuffer(), uint64(len(buf)))); err == nil {
			_, err = out.Write(buf)
		}
		if err != nil {
			return fmt.Errorf("write snapshot: %w", err)
		}
		return nil
	}
	for _, r := range i.requests {
		if err := record(&SnapshotRecord{Version: r.version, Content: &SnapshotRecord_Request{
			&RequestRecord{Request: r.id[:], TimeMs: r.timeMs},
		}}); err != nil {
			return err
		}
	}
	for _, d := range i.datums {
		if err := record(snapshotRecord(d)); err != nil {
			return fmt.Errorf("%s: %w", d.Service, err)
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
		r.Content = &SnapshotRecord_Instance{instanceOp(d)}
	case consistency.KindSettings:
		r.Content = &SnapshotRecord_Settings{settingsOp(d)}
	case consistency.KindOverride:
		r.Content = &SnapshotRecord_Override{overrideOp(d)}
	case consistency.KindSwitch:
		r.Content = &SnapshotRecord_Switch{switchOp(d)}
	case consistency.KindNamespace:
		r.Content = &SnapshotRecord_Namespace{namespaceOp(d)}
	case consistency.KindCluster:
		r.Content = &SnapshotRecord_Cluster{clusterSettingsOp(d)}
	}
	return r
}

// readSnapshot reads and verifies a whole snapshot.
func readSnapshot(r io.Reader) (*image, error) {
	in := &hashingReader{in: bufio.NewReaderSize(r, 64<<10), sum: sha256.New()}
	magic := make([]byte, len(snapshotMagic))
	if _, err := io.ReadFull(in, magic); err != nil {
		return nil, fmt.Errorf("read snapshot: %w", unexpectedEOF(err))
	}
	if string(magic) != snapshotMagic {
		return nil, errNoSnapshot
	}
	var header SnapshotHeader
	options := protodelim.UnmarshalOptions{MaxSize: maxRecord}
	if err := options.UnmarshalFrom(in, &header); err != nil {
		return nil, fmt.Errorf("read snapshot header: %w", unexpectedEOF(err))
	}
	if header.Format < 1 || header.Format > snapshotFormat {
		err := fmt.Errorf("snapshot format %d is unknown, this program knows formats up to %d", header.Format, snapshotFormat)
		if !endsWithChecksum(in) {
			return nil, err
		}
		return nil, fmt.Errorf("%w: %w", errNewer, err)
	}
	i := &image{
		format: int(header.Format), index: header.Index, timeMs: header.TimeMs, cluster: header.Cluster,
		datums: make([]consistency.Datum, 0, min(header.Records, 1<<20)),
	}
	for n := range header.Records {
		var record SnapshotRecord
		err := options.UnmarshalFrom(in, &record)
		if err == nil {
			err = i.add(&record)
		}
		if err != nil {
			return nil, fmt.Errorf("read record %d of %d: %w", n+1, header.Records, unexpectedEOF(err))
		}
	}
	want := in.sum.Sum(nil)
	have := make([]byte, len(want))
	if _, err := io.ReadFull(in, have); err != nil {
		return nil, fmt.Errorf("read checksum: %w", unexpectedEOF(err))
	}
	if !bytes.Equal(have, want) {
		return nil, errors.New("the SHA-256 checksum does not match")
	}
	if _, err := in.ReadByte(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there are bytes behind the checksum")
	}
	return i, nil
}

// endsWithChecksum reads to the end and returns whether the last bytes are the
// checksum of all before them, as in every format.
func endsWithChecksum(in *hashingReader) bool {
	var tail, buf []byte
	buf = make([]byte, 32<<10)
	for {
		n, err := in.in.Read(buf)
		tail = append(tail, buf[:n]...)
		if ahead := len(tail) - sha256.Size; ahead > 0 {
			in.sum.Write(tail[:ahead])
			tail = append(tail[:0], tail[ahead:]...)
		}
		if err != nil {
			return errors.Is(err, io.EOF) && bytes.Equal(tail, in.sum.Sum(nil))
		}
	}
}

// add adds what a record holds.
func (i *image) add(r *SnapshotRecord) error {
	if c, ok := r.GetContent().(*SnapshotRecord_Request); ok {
		if len(c.Request.GetRequest()) != requestBytes {
			return fmt.Errorf("a request of %d bytes", len(c.Request.GetRequest()))
		}
		i.requests = append(i.requests, request{
			id: [requestBytes]byte(c.Request.Request), timeMs: c.Request.TimeMs, version: r.GetVersion(),
		})
		return nil
	}
	d, err := recordDatum(r)
	i.datums = append(i.datums, d)
	return err
}

func recordDatum(r *SnapshotRecord) (d consistency.Datum, err error) {
	switch c := r.GetContent().(type) {
	case *SnapshotRecord_Instance:
		d, err = instanceDatum(c.Instance)
	case *SnapshotRecord_Settings:
		d, err = settingsDatum(c.Settings)
	case *SnapshotRecord_Override:
		d, err = overrideDatum(c.Override)
	case *SnapshotRecord_Switch:
		d, err = switchDatum(c.Switch)
	case *SnapshotRecord_Namespace:
		d, err = namespaceDatum(c.Namespace)
	case *SnapshotRecord_Cluster:
		d, err = clusterDatum(c.Cluster)
	default:
		err = errors.New("unknown kind of record")
	}
	d.Version = consistency.Version{Time: r.GetVersion()}
	return d, err
}

type countingWriter struct {
	out   io.Writer
	bytes int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.out.Write(p)
	c.bytes += int64(n)
	return n, err
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
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("the file is cut short: %w", io.ErrUnexpectedEOF)
	}
	return err
}
