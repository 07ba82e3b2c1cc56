package distro

import (
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

func TestIsAddress(t *testing.T) {
	for _, s := range []string{"10.0.0.1:80", "fe80::1:80", "fe80::1%eth0:8080", "host.example:0", "my_host:80", ":1"} {
		require.True(t, isAddress(s), s)
	}
	for _, s := range []string{"", "1700000000000_127.0.0.1_52004", "1700000000000_fe80::1_52004", "10.0.0.1", "host:", "host:8o"} {
		require.False(t, isAddress(s), s)
	}
}

func TestOwner_OnlyTheKeysOfALostNodeMove(t *testing.T) {
	var all []candidate
	for n := range 9 {
		name := "n" + strconv.Itoa(n)
		all = append(all, candidate{name, hashText(0, name)})
	}
	share := make(map[string]int)
	const keys = 20_000
	for n := range keys {
		publisher := "10.0." + strconv.Itoa(n>>8) + "." + strconv.Itoa(n&0xff) + ":80"
		before, after := ownerOf(all, publisher), ownerOf(all[1:], publisher)
		share[before]++
		if before != "n0" {
			require.Equal(t, before, after)
		}
	}
	for name, n := range share {
		require.InDelta(t, keys/9, n, keys/90, "node %s", name)
	}
}

func TestCore_TookWhatOthersOwned(t *testing.T) {
	now := time.UnixMilli(simStart)
	cfg := DefaultConfig()
	cfg.Node = "n1"
	c := newCore(cfg, origin{"n1", 1}, consistency.NewDataStore(), hooks{wake: func(string) {}}, now)
	tickAll := func() (took map[string]bool) {
		took = make(map[string]bool)
		for range 20 {
			now = now.Add(tickTime)
			c.tick(now)
			for _, e := range c.takeTook() {
				require.False(t, took[e.publisher], "once")
				took[e.publisher] = true
			}
		}
		return took
	}
	publishers := func() (mine, theirs []string) {
		for n := range 300 {
			p := "10.0.0." + strconv.Itoa(n) + ":80"
			if c.isOwner(p) {
				mine = append(mine, p)
			} else {
				theirs = append(theirs, p)
			}
		}
		return mine, theirs
	}
	c.observe(now, Member{Name: "n2", Boot: 1, Alive: true})
	mine, theirs := publishers()
	require.NotEmpty(t, mine)
	require.NotEmpty(t, theirs)
	require.Empty(t, tickAll())
	require.True(t, c.mayExpire())
	var all []datum
	for n := range 300 {
		i := host(n)
		all = append(all, datum{service: service("s"), publisher: "10.0.0." + strconv.Itoa(n) + ":80", instance: i, value: value{time: 1 + uint64(n)}, owner: origin{"n2", 1}})
	}
	m, err := decodeMessage("n2", encodeBatch(origin{"n2", 1}, 0, 300, 300, all))
	require.NoError(t, err)
	c.handle(now, "n2", m)
	require.Len(t, tickAll(), len(mine), "what another node has taken for it")

	c.observe(now, Member{Name: "n2", Boot: 1, Alive: true, Draining: true})
	require.False(t, c.mayExpire(), "not before it is known what it owns now")
	took := tickAll()
	require.Len(t, took, len(theirs))
	for _, p := range theirs {
		require.True(t, took[p])
	}
	c.observe(now, Member{Name: "n2", Boot: 1, Alive: true})
	require.Empty(t, tickAll())
	c.drain(now, true)
	mine, _ = publishers()
	require.Empty(t, mine)
	c.observe(now, Member{Name: "n2", Boot: 1, Leaving: true})
	require.Len(t, tickAll(), 300, "nobody else is there")
}
