package distro

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func randomDatum(random *rand.Rand, owner origin) datum {
	pick := func(texts ...string) string { return texts[random.IntN(len(texts))] }
	d := datum{
		service:   naming.ServiceKey{Namespace: pick("public", ""), Group: pick("DEFAULT_GROUP", "g"), Name: pick("a", "é@@")},
		publisher: pick("10.0.0.1:80", "1700000000000_10.0.0.1_1", ""),
		value:     value{time: 1 + random.Uint64N(maxTime-1), inferred: random.IntN(2) == 0},
		owner:     owner,
	}
	if random.IntN(3) == 0 {
		d.owner = origin{pick("n2", "n3"), random.Uint64()}
	}
	i := &naming.Instance{IP: pick("10.0.0.1", "fe80::1%eth0", ""), Port: random.IntN(65536), Cluster: pick("DEFAULT", "", "c")}
	d.instance = i
	if random.IntN(3) == 0 {
		d.tombstone, d.moved = true, random.IntN(2) == 0
		return d
	}
	i.Healthy, i.Enabled, i.Ephemeral = random.IntN(2) == 0, random.IntN(2) == 0, random.IntN(2) == 0
	i.Weight, i.ID = []float64{0, 1, 0.1, 10000}[random.IntN(4)], pick("", "", "an id")
	for n := range random.IntN(4) {
		if i.Metadata == nil {
			i.Metadata = make(map[string]string)
		}
		i.Metadata[pick("k", "", "version")+strconv.Itoa(n)] = pick("", "1.2.3", "\x00")
	}
	return d
}

func encodeBatch(owner origin, prev, last, tail uint64, datums []datum) []byte {
	enc := newEncoder(kindBatch, 0)
	enc.owner = owner
	enc.batch(owner.boot, prev, tail)
	for n := range datums {
		enc.datum(&datums[n])
	}
	enc.batchEnds(last)
	return enc.b
}

func TestEncoding_BatchRoundTrip(t *testing.T) {
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 5))
		owner := origin{"n1", random.Uint64()}
		want := &message{kind: kindBatch, boot: owner.boot, prev: 3, last: random.Uint64(), tail: random.Uint64()}
		for range random.IntN(20) {
			want.datums = append(want.datums, randomDatum(random, owner))
		}
		b := encodeBatch(owner, want.prev, want.last, want.tail, want.datums)
		got, err := decodeMessage("n1", b)
		require.NoError(t, err)
		require.Equal(t, want, got, "seed %d", seed)
		require.Equal(t, b, encodeBatch(owner, want.prev, want.last, want.tail, got.datums), "one text for one value")
		for n := range b {
			if _, err := decodeMessage("n1", b[:n]); err == nil { // it may end after any datum
				short, _ := decodeMessage("n1", b[:n])
				require.Less(t, len(short.datums), max(1, len(want.datums)))
			}
		}
	}
}

func TestEncoding_OtherMessages(t *testing.T) {
	digests := make([]uint64, bucketCount)
	for n := range digests {
		digests[n] = mix(uint64(n))
	}
	list := newEncoder(kindListing, 0)
	list.owner = origin{"n2", 2}
	list.listing(list.owner, true, true, 77, []uint16{0, 1023})
	d := randomDatum(rand.New(rand.NewPCG(1, 1)), list.owner)
	list.datum(&d)
	for _, c := range []struct {
		b    []byte
		want message
	}{
		{encodeHave(kindAsk, 7, 1<<40), message{kind: kindAsk, boot: 7, last: 1 << 40}},
		{encodeHave(kindAck, 7, 0), message{kind: kindAck, boot: 7}},
		{encodeRefused(origin{"n9", 3}), message{kind: kindRefused, owner: origin{"n9", 3}}},
		{encodeCompare(origin{"n9", 3}, digests), message{kind: kindCompare, owner: origin{"n9", 3}, digests: digests}},
		{
			encodeRoots(&message{boot: 1, tail: 2, heard: origin{boot: 3}, last: 4, roots: []root{{origin{"n1", 1}, 5, 6}, {origin{"n1", 2}, 0, 0}}}),
			message{kind: kindRoots, boot: 1, tail: 2, heard: origin{boot: 3}, last: 4, roots: []root{{origin{"n1", 1}, 5, 6}, {origin{"n1", 2}, 0, 0}}},
		},
		{list.b, message{kind: kindListing, owner: list.owner, final: true, done: true, asOf: 77, buckets: []uint16{0, 1023}, datums: []datum{d}}},
	} {
		got, err := decodeMessage("n1", c.b)
		require.NoError(t, err)
		require.Equal(t, &c.want, got)
	}
}

func TestEncoding_BadMessages(t *testing.T) {
	owner := origin{"n1", 1}
	d := randomDatum(rand.New(rand.NewPCG(4, 4)), owner)
	d.time = maxTime
	for name, b := range map[string][]byte{
		"empty":             {},
		"other format":      {9, byte(kindAsk), 0, 0},
		"other kind":        {messageVersion, 99},
		"too few digests":   encodeCompare(owner, make([]uint64, 3)),
		"time out of range": encodeBatch(owner, 0, 1, 1, []datum{d}),
		"huge count":        append([]byte{messageVersion, byte(kindRoots), 1, 1, 1, 1}, 0xff, 0xff, 0xff, 0xff, 0x7f),
	} {
		_, err := decodeMessage("n1", b)
		require.Error(t, err, name)
	}
}

func TestEncoding_RepeatedTextsAreSaidOnce(t *testing.T) {
	owner := origin{"n1", 1}
	var all []datum
	for n := range 100 {
		all = append(all, datum{service: service("a-service-with-a-long-name"), publisher: "c" + strconv.Itoa(n), instance: host(n), value: value{time: 1}, owner: owner})
	}
	b := encodeBatch(owner, 0, 1, 1, all)
	require.Less(t, len(b), 100*50)
	require.Equal(t, 1, bytes.Count(b, []byte("a-service-with-a-long-name")))
}

func FuzzMessage(f *testing.F) {
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 5))
		var all []datum
		for range random.IntN(5) {
			all = append(all, randomDatum(random, origin{"n1", 1}))
		}
		f.Add(encodeBatch(origin{"n1", 1}, 0, seed, seed, all))
	}
	f.Add(encodeHave(kindAsk, 1, 2))
	f.Add(encodeRefused(origin{"n1", 1}))
	f.Add(encodeCompare(origin{"n1", 1}, make([]uint64, bucketCount)))
	f.Add(encodeRoots(&message{boot: 1, roots: []root{{origin{"n1", 1}, 5, 6}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage("n1", b)
		if err != nil {
			return
		}
		c := quietCore(2) // whatever can be read can be taken
		c.handle(c.now, "n2", m)
		c.tick(c.now)
		c.handle(c.now, "n3", m)
		for _, p := range c.alive {
			c.next(c.now, p)
		}
		if m.kind == kindBatch {
			again, err := decodeMessage("n1", encodeBatch(origin{"n1", m.boot}, m.prev, m.last, m.tail, m.datums))
			if err != nil || fmt.Sprint(again.datums) == "" {
				t.Fatal(err)
			}
		}
	})
}
