package consistency_test

import (
	"math/rand/v2"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

func changeOf(svc, publisher string, i *naming.Instance, version uint64, remove bool) consistency.Change {
	c := consistency.Change{Datum: consistency.Datum{
		Key: consistency.Key{
			Service: naming.ServiceKey{Namespace: "public", Group: "g", Name: svc}, Kind: consistency.KindInstance,
			Publisher: publisher, Instance: i.Key(),
		},
		Version: consistency.Version{Time: version}, Instance: i,
	}}
	if remove {
		c.Instance = nil
	}
	return c
}

// TestDataStore_ApplyIsPutAndDelete compares batches with the same changes one by one.
func TestDataStore_ApplyIsPutAndDelete(t *testing.T) {
	for _, size := range []int{1, 4, 100} { // large batches take another way
		random := rand.New(rand.NewPCG(uint64(size), 2))
		one, other := consistency.NewDataStore(), consistency.NewDataStore()
		version := uint64(0)
		for range 300 {
			var batch []consistency.Change
			for range 1 + random.IntN(size) {
				version++
				i := instance("10.0.0."+strconv.Itoa(random.IntN(20)), true, float64(random.IntN(3)))
				c := changeOf("s"+strconv.Itoa(random.IntN(2)), "p"+strconv.Itoa(random.IntN(2)), i, version, random.IntN(3) == 0)
				batch = append(batch, c)
				if c.Instance == nil {
					other.Delete(c.Key)
				} else {
					other.Put(c.Datum)
				}
			}
			one.Apply(batch)
			require.ElementsMatch(t, other.Datums(), one.Datums())
			for _, k := range other.Services("") {
				require.Equal(t, other.Stat(k), one.Stat(k))
			}
			require.Equal(t, other.Services(""), one.Services(""))
		}
	}
}

func TestDataStore_ApplyGivesOneNoticeForEachService(t *testing.T) {
	d := consistency.NewDataStore()
	heard := make(map[string]int)
	d.Listen(func(c consistency.ServiceChanged) {
		require.Equal(t, 2, d.Stat(c.Service).Instances, "all changes are made before the first notice")
		heard[c.Service.Name]++
	})
	i, j := instance("10.0.0.1", true, 1), instance("10.0.0.2", true, 1)
	var batch []consistency.Change
	for _, svc := range []string{"a", "b", "a", "b", "quiet"} {
		if len(batch) > 1 {
			i = j
		}
		batch = append(batch, changeOf(svc, "p", i, 1, false))
	}
	batch[4].Quiet = true
	d.Apply(batch)
	require.Equal(t, map[string]int{"a": 1, "b": 1}, heard)
	d.Apply(nil)
	require.Len(t, heard, 2)
}

func TestForwarded(t *testing.T) {
	require.False(t, consistency.Forwarded(t.Context()))
	require.True(t, consistency.Forwarded(consistency.WithForwarded(t.Context())))
	require.False(t, consistency.Inferred(consistency.WithForwarded(t.Context())))
	require.True(t, consistency.Inferred(consistency.WithInferred(t.Context())))
}
