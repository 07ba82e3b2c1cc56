package distro

import (
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"rollcall/naming"
)

// messageVersion is the format of the messages between the stores of two nodes. A
// node passes over messages of another format.
const messageVersion = 1

// messageKind says what a message is about.
type messageKind byte

const (
	kindBatch   messageKind = 1 // changes that the sender made, in order
	kindAsk     messageKind = 2 // send your changes from there on
	kindRoots   messageKind = 3 // what the sender holds of each owner, in short
	kindCompare messageKind = 4 // the same of one owner, bucket by bucket
	kindListing messageKind = 5 // all that the sender holds in some buckets of an owner
	kindDatums  messageKind = 6 // datums that the receiver lacks or has an older version of
	kindRefused messageKind = 7 // the sender was refused by the port of a node that is gone
	kindAck     messageKind = 8 // your changes up to there have arrived
)

// origin names one run of a node: after a restart it knows nothing of what it was
// told before.
type origin struct {
	node string
	boot uint64
}

// datum is the last that its owner said of one published instance.
type datum struct {
	service   naming.ServiceKey
	publisher string
	instance  *naming.Instance // of a tombstone only its key
	value
	owner origin
	// heard is set by the receiver: it hears the client that the sender holds to be
	// silent.
	heard bool
}

// value is what changes from version to version of a datum, but for the instance.
type value struct {
	time      uint64 // hybrid logical time; with the owner's name the version
	tombstone bool
	// inferred: nobody asked for this version; see consistency.WithInferred.
	inferred bool
	// moved marks the tombstone of an instance whose client has come back
	// elsewhere: it travels with what is shown in its place.
	moved bool
}

// message is one message; which fields are set depends on its kind.
type message struct {
	kind messageKind
	boot uint64 // of the sender; of an ask or ack: of the receiver

	// Batch: the changes after prev, up to last; tail is the newest that there is.
	// Ask, ack: all up to last have arrived. Roots: the newest is tail.
	prev, last, tail uint64

	heard   origin // roots: how far the changes of the receiver have arrived: boot and last
	roots   []root // roots
	owner   origin // compare, listing: whose datums; refused: who
	final   bool   // listing: the sender is the owner
	done    bool   // listing: the last of a comparison
	asOf    uint64 // listing: its hybrid logical time
	buckets []uint16
	digests []uint64
	datums  []datum
}

// root is what a node holds of one owner, in short.
type root struct {
	origin
	live   int
	digest uint64
}

// Flags of a datum.
const (
	datumTombstone = 1 << iota
	datumInferred
	datumMoved
	datumHealthy
	datumEnabled
	datumEphemeral
	datumWeight
	datumID
	datumMetadata
	datumForeign // of another owner than the message's
)

// maxWords bounds the texts of a message that are written once and then referred to.
const maxWords = 1 << 14

// maxTime bounds the times that are believed: with what is far beyond, the clock
// could not go on.
const maxTime = 1 << 62

// encoder writes one message.
type encoder struct {
	b     []byte
	owner origin // of datums that do not say
	words map[string]uint64
	keys  []string
}

func newEncoder(k messageKind, size int) *encoder {
	e := &encoder{b: make([]byte, 0, size), words: make(map[string]uint64)}
	e.b = append(e.b, messageVersion, byte(k))
	return e
}

func (e *encoder) uint(v uint64)  { e.b = binary.AppendUvarint(e.b, v) }
func (e *encoder) fixed(v uint64) { e.b = binary.BigEndian.AppendUint64(e.b, v) }

// text writes a text, or the number of an equal one before it. 0 stands before a
// new text, 1 for the empty one.
func (e *encoder) text(s string) {
	if s == "" {
		e.uint(1)
		return
	}
	if n, ok := e.words[s]; ok {
		e.uint(n)
		return
	}
	e.uint(0)
	e.uint(uint64(len(s)))
	e.b = append(e.b, s...)
	if len(e.words) < maxWords {
		e.words[s] = uint64(len(e.words)) + 2
	}
}

func (e *encoder) origin(o origin) {
	e.text(o.node)
	e.uint(o.boot)
}

func (e *encoder) datum(d *datum) {
	i := d.instance
	var flags uint64
	for n, set := range [...]bool{
		d.tombstone, d.inferred, d.moved, !d.tombstone && i.Healthy, !d.tombstone && i.Enabled, !d.tombstone && i.Ephemeral,
		!d.tombstone && i.Weight != 1, !d.tombstone && i.ID != "", !d.tombstone && len(i.Metadata) > 0, d.owner != e.owner,
	} {
		if set {
			flags |= 1 << n
		}
	}
	e.uint(flags)
	for _, s := range [...]string{d.service.Namespace, d.service.Group, d.service.Name, d.publisher, i.Cluster, i.IP} {
		e.text(s)
	}
	e.uint(uint64(i.Port))
	e.fixed(d.time)
	if flags&datumForeign != 0 {
		e.origin(d.owner)
	}
	if flags&datumWeight != 0 {
		e.fixed(math.Float64bits(i.Weight))
	}
	if flags&datumID != 0 {
		e.text(i.ID)
	}
	if flags&datumMetadata != 0 {
		e.uint(uint64(len(i.Metadata)))
		e.keys = slices.AppendSeq(e.keys[:0], maps.Keys(i.Metadata))
		slices.Sort(e.keys)
		for _, k := range e.keys {
			e.text(k)
			e.text(i.Metadata[k])
		}
	}
}

// batch begins a batch; finish it with batchEnds.
func (e *encoder) batch(boot, prev, tail uint64) {
	e.uint(boot)
	e.fixed(prev)
	e.fixed(0)
	e.fixed(tail)
}

// batchEnds enters which change was the last.
func (e *encoder) batchEnds(last uint64) {
	_, n := binary.Uvarint(e.b[2:])
	binary.BigEndian.PutUint64(e.b[2+n+8:], last)
}

func encodeHave(k messageKind, boot, last uint64) []byte {
	e := newEncoder(k, 24)
	e.uint(boot)
	e.uint(last)
	return e.b
}

func encodeRoots(m *message) []byte {
	e := newEncoder(kindRoots, 64+48*len(m.roots))
	e.uint(m.boot)
	e.uint(m.tail)
	e.uint(m.heard.boot)
	e.uint(m.last)
	e.uint(uint64(len(m.roots)))
	for _, r := range m.roots {
		e.origin(r.origin)
		e.uint(uint64(r.live))
		e.fixed(r.digest)
	}
	return e.b
}

func encodeCompare(o origin, digests []uint64) []byte {
	e := newEncoder(kindCompare, 64+8*len(digests))
	e.origin(o)
	e.uint(uint64(len(digests)))
	for _, d := range digests {
		e.fixed(d)
	}
	return e.b
}

// listing writes the head of a listing; datums follow until its end.
func (e *encoder) listing(o origin, final, done bool, asOf uint64, buckets []uint16) {
	e.origin(o)
	var flags uint64
	if final {
		flags |= 1
	}
	if done {
		flags |= 2
	}
	e.uint(flags)
	e.fixed(asOf)
	e.uint(uint64(len(buckets)))
	for _, b := range buckets {
		e.uint(uint64(b))
	}
}

func encodeRefused(o origin) []byte {
	e := newEncoder(kindRefused, 32)
	e.origin(o)
	return e.b
}

var (
	errCutOff = errors.New("message is cut off")
	errValue  = errors.New("message has a value out of range")
)

// decoder reads one message. After an error it returns zero values.
type decoder struct {
	b     []byte
	owner origin
	words []string
	err   error
}

func (d *decoder) fail(err error) {
	if d.err == nil {
		d.err = err
	}
	d.b = nil
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.b)
	if n <= 0 {
		d.fail(errCutOff)
		return 0
	}
	d.b = d.b[n:]
	return v
}

func (d *decoder) fixed() uint64 {
	if len(d.b) < 8 {
		d.fail(errCutOff)
		return 0
	}
	v := binary.BigEndian.Uint64(d.b)
	d.b = d.b[8:]
	return v
}

// below reads a number and checks that it is below the limit.
func (d *decoder) below(limit uint64) int {
	v := d.uint()
	if v >= limit {
		d.fail(errValue)
		return 0
	}
	return int(v)
}

// count reads the number of parts that follow, each of which takes so many bytes
// at least.
func (d *decoder) count(size int) int { return d.below(uint64(len(d.b)/size) + 1) }

func (d *decoder) text() string {
	n := d.uint()
	switch {
	case d.err != nil, n == 1:
		return ""
	case n > 1:
		if n-2 >= uint64(len(d.words)) {
			d.fail(errValue)
			return ""
		}
		return d.words[n-2]
	}
	size := d.uint()
	if d.err != nil || size == 0 || size > uint64(len(d.b)) {
		d.fail(errCutOff)
		return ""
	}
	s := string(d.b[:size])
	d.b = d.b[size:]
	if len(d.words) < maxWords {
		d.words = append(d.words, s)
	}
	return s
}

func (d *decoder) origin() origin { return origin{d.text(), d.uint()} }

func (d *decoder) datum() (x datum) {
	flags := d.uint()
	x.tombstone, x.inferred, x.moved = flags&datumTombstone != 0, flags&datumInferred != 0, flags&datumMoved != 0
	i := &naming.Instance{
		Weight: 1, Healthy: flags&datumHealthy != 0, Enabled: flags&datumEnabled != 0, Ephemeral: flags&datumEphemeral != 0,
	}
	for _, s := range [...]*string{&x.service.Namespace, &x.service.Group, &x.service.Name, &x.publisher, &i.Cluster, &i.IP} {
		*s = d.text()
	}
	if i.Cluster == naming.DefaultCluster {
		i.Cluster = naming.DefaultCluster // which takes no memory
	}
	i.Port = d.below(1 << 16)
	x.instance, x.time, x.owner = i, d.fixed(), d.owner
	if flags&datumForeign != 0 {
		x.owner = d.origin()
	}
	if flags&datumWeight != 0 {
		i.Weight = math.Float64frombits(d.fixed())
	}
	if flags&datumID != 0 {
		i.ID = d.text()
	}
	if flags&datumMetadata != 0 {
		n := d.count(2)
		i.Metadata = make(map[string]string, n)
		for range n {
			k := d.text()
			i.Metadata[k] = d.text()
		}
	}
	if x.tombstone {
		x.instance = keyOnly(i)
	}
	if x.time == 0 || x.time >= maxTime || x.owner.node == "" || math.IsNaN(i.Weight) || math.IsInf(i.Weight, 0) {
		d.fail(errValue)
	}
	return x
}

// keyOnly returns an instance that has nothing but the key of i.
func keyOnly(i *naming.Instance) *naming.Instance {
	return &naming.Instance{Cluster: i.Cluster, IP: i.IP, Port: i.Port}
}

// rest reads datums until the end.
func (d *decoder) rest() (all []datum) {
	for len(d.b) > 0 && d.err == nil {
		all = append(all, d.datum())
	}
	return all
}

// decodeMessage reads a message of the node from. It keeps nothing of b.
func decodeMessage(from string, b []byte) (*message, error) {
	if len(b) < 2 {
		return nil, errCutOff
	}
	if b[0] != messageVersion {
		return nil, fmt.Errorf("message of format %d", b[0])
	}
	d := decoder{b: b[2:]}
	m := &message{kind: messageKind(b[1])}
	switch m.kind {
	case kindBatch:
		m.boot = d.uint()
		m.prev, m.last, m.tail = d.fixed(), d.fixed(), d.fixed()
		d.owner = origin{from, m.boot}
		m.datums = d.rest()
	case kindAsk, kindAck:
		m.boot, m.last = d.uint(), d.uint()
	case kindRoots:
		m.boot, m.tail = d.uint(), d.uint()
		m.heard.boot, m.last = d.uint(), d.uint()
		for range d.count(11) {
			m.roots = append(m.roots, root{d.origin(), d.below(1 << 40), d.fixed()})
		}
	case kindCompare:
		m.owner = d.origin()
		for range d.count(8) {
			m.digests = append(m.digests, d.fixed())
		}
		if len(m.digests) != bucketCount {
			d.fail(errValue)
		}
	case kindListing:
		m.owner = d.origin()
		flags := d.uint()
		m.final, m.done = flags&1 != 0, flags&2 != 0
		m.asOf = d.fixed()
		for range d.count(1) {
			m.buckets = append(m.buckets, uint16(d.below(bucketCount)))
		}
		d.owner = m.owner
		m.datums = d.rest()
	case kindDatums:
		m.datums = d.rest()
	case kindRefused:
		m.owner = d.origin()
	default:
		return nil, fmt.Errorf("message of kind %d", m.kind)
	}
	if d.err != nil {
		return nil, d.err
	}
	return m, nil
}
