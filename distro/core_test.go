package distro

import (
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/naming"
)

// group is some cores with a network between them that loses nothing, unless told.
type group struct {
	t     *testing.T
	now   time.Time
	cores map[string]*core
	names []string
	drop  func(from, to string, m *message) bool
}

// groupOf returns cores that see each other and are ready.
func groupOf(t *testing.T, change func(*Config), names ...string) *group {
	t.Helper()
	g := &group{t: t, now: time.UnixMilli(simStart), cores: make(map[string]*core), names: names}
	for n, name := range names {
		g.start(name, uint64(n+1), change)
	}
	for _, a := range names {
		for _, b := range names {
			g.tell(a, b, true)
		}
	}
	g.pass(time.Second)
	for _, c := range g.cores {
		require.True(t, c.loaded)
	}
	return g
}

func (g *group) start(name string, boot uint64, change func(*Config)) *core {
	cfg := DefaultConfig()
	cfg.Node = name
	change(&cfg)
	c := newCore(cfg, origin{name, boot}, consistency.NewDataStore(), hooks{wake: func(string) {}}, g.now)
	g.cores[name] = c
	return c
}

func asIs(*Config) {}

// tell says to one node whether it sees another one.
func (g *group) tell(to, about string, alive bool) {
	if c := g.cores[to]; c != nil && to != about && g.cores[about] != nil {
		c.observe(g.now, Member{Name: about, Boot: g.cores[about].self.boot, Alive: alive})
	}
}

// die takes a node out of the group.
func (g *group) die(name string) {
	for _, o := range g.names {
		if g.cores[o] != nil {
			g.tell(o, name, false)
		}
	}
	delete(g.cores, name)
	g.names = slices.DeleteFunc(g.names, func(o string) bool { return o == name })
}

// pass lets time pass, and messages arrive.
func (g *group) pass(d time.Duration) {
	for end := g.now.Add(d); g.now.Before(end); {
		g.now = g.now.Add(10 * time.Millisecond)
		for _, name := range g.names {
			c := g.cores[name]
			if g.now.Sub(c.ticked) >= tickTime {
				c.tick(g.now)
			}
			for _, p := range c.alive {
				for range 50 {
					out, _ := c.next(g.now, p)
					if out.message == nil {
						break
					}
					m, err := decodeMessage(name, out.message)
					require.NoError(g.t, err)
					to := g.cores[p.name]
					if to == nil || g.drop != nil && g.drop(name, p.name, m) {
						continue
					}
					to.handle(g.now, name, m)
				}
			}
		}
	}
}

func (g *group) publish(node, publisher string, instances ...*naming.Instance) {
	c := g.cores[node]
	c.local(g.now, func() {
		c.publish(consistency.Publication{Service: service("s"), Publisher: publisher, Instances: instances}, false)
	})
}

// lose is what a node does when a connection is lost.
func (g *group) lose(node, publisher string) {
	c := g.cores[node]
	c.local(g.now, func() {
		c.publish(consistency.Publication{Service: service("s"), Publisher: publisher}, true)
	})
}

// shows returns how many instances a node shows.
func (g *group) shows(node string) int {
	s, _ := g.cores[node].table.Service(service("s"))
	return len(s.Instances)
}

// fill registers so many instances over connections to a node.
func (g *group) fill(node string, from, count int) {
	for n := from; n < from+count; n++ {
		g.publish(node, "c"+strconv.Itoa(n), host(n))
	}
}

func (g *group) equal() {
	g.t.Helper()
	first := g.cores[g.names[0]]
	for _, name := range g.names {
		c := g.cores[name]
		for _, o := range c.ordered {
			if o.live > 0 {
				require.NotNil(g.t, first.owners[o.origin])
				require.Equal(g.t, first.owners[o.origin].digest, o.digest, "%v on %s", o.origin, name)
			}
		}
		require.Equal(g.t, g.shows(g.names[0]), g.shows(name))
	}
}

func TestCore_OrphansStayForTheGrace(t *testing.T) {
	for _, c := range []struct {
		name   string
		member Member
		stays  time.Duration
	}{
		{"left", Member{Leaving: true}, 30 * time.Second},
		{"restarted", Member{Boot: 33, Alive: true}, 30 * time.Second},
		{"silent", Member{}, 3 * time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			g := groupOf(t, asIs, "n1", "n2", "n3")
			g.fill("n3", 0, 40)
			g.fill("n1", 100, 80)
			g.pass(time.Second)
			for _, name := range []string{"n1", "n2"} {
				m := c.member
				m.Name, m.Boot = "n3", max(m.Boot, 3)
				g.cores[name].observe(g.now, m)
			}
			delete(g.cores, "n3")
			g.names = []string{"n1", "n2"}
			if c.member.Alive {
				n3 := g.start("n3", 33, asIs)
				g.names = []string{"n1", "n2", "n3"}
				g.tell("n3", "n1", true)
				g.tell("n3", "n2", true)
				g.pass(100 * time.Millisecond)
				require.True(t, n3.loaded)
			}
			g.pass(c.stays - c.stays/10 - time.Second)
			require.Equal(t, 120, g.shows("n1"))
			require.Equal(t, 120, g.shows("n2"))
			g.pass(time.Second + c.stays/20)
			require.InDelta(t, 100, g.shows("n1"), 10, "a half after half of the time for removals")
			g.pass(c.stays/20 + 200*time.Millisecond)
			require.Equal(t, 80, g.shows("n1"))
			require.Equal(t, 80, g.shows("n2"))
			g.equal()
			require.True(t, g.cores["n1"].buried[origin{"n3", 3}])
		})
	}
}

func TestCore_RefusedByTwoIsProof(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3")
	g.fill("n3", 0, 5)
	g.fill("n1", 100, 95)
	g.pass(time.Second)
	g.die("n3")
	n1 := g.cores["n1"]
	n1.refusal(origin{"n3", 3}, "n1")
	require.Equal(t, silent, n1.owners[origin{"n3", 3}].why, "it may be a firewall")
	n1.refusal(origin{"n3", 2}, "n2")
	n1.refusal(origin{"n2", 2}, "n2")
	require.Equal(t, silent, n1.owners[origin{"n3", 3}].why)
	n1.refusal(origin{"n3", 3}, "n2")
	require.Equal(t, refused, n1.owners[origin{"n3", 3}].why)
	require.Equal(t, g.now.Add(30*time.Second), n1.owners[origin{"n3", 3}].deadline)
}

func TestCore_NothingIsRemovedWithoutContact(t *testing.T) {
	contact := false
	g := groupOf(t, func(cfg *Config) { cfg.InContact = func() bool { return contact } }, "n1", "n2", "n3")
	g.fill("n3", 0, 5)
	g.fill("n1", 100, 95)
	g.pass(time.Second)
	g.die("n3")
	g.pass(10 * time.Minute)
	require.Equal(t, 100, g.shows("n1"))
	contact = true
	g.pass(time.Second)
	require.Greater(t, g.shows("n1"), 95, "not all at once then")
	g.pass(18 * time.Second)
	require.Equal(t, 95, g.shows("n1"))
	g.equal()
}

func TestCore_ALargePartInSilenceStaysLonger(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3", "n4", "n5")
	g.fill("n5", 0, 40)
	g.fill("n1", 100, 60)
	g.pass(time.Second)
	g.die("n5")
	g.pass(9 * time.Minute)
	require.Equal(t, 100, g.shows("n2"))
	g.pass(90 * time.Second)
	require.Equal(t, 60, g.shows("n2"))
}

func TestCore_WhoComesBackTakesItsAddressOver(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3")
	g.fill("n3", 0, 4)
	g.fill("n1", 100, 16)
	g.pass(time.Second)
	g.publish("n2", "early", host(0)) // before the death is known
	g.pass(time.Second)
	var notices int
	g.cores["n1"].table.Listen(func(consistency.ServiceChanged) { notices++ })
	g.die("n3")
	g.publish("n2", "d1", host(1))
	changed := host(2)
	changed.Weight = 7
	g.publish("n2", "d2", changed)
	g.pass(time.Second)
	require.Equal(t, 1, notices, "only what looks different")
	require.Equal(t, 20, g.shows("n1"))
	g.publish("n2", "d1")
	g.publish("n2", "early")
	g.pass(time.Second)
	require.Equal(t, 18, g.shows("n1"), "it does not show again that was there before")
	g.pass(4 * time.Minute)
	require.Equal(t, 17, g.shows("n1"), "the last one did not come back")
	g.equal()
}

// A client is elsewhere before the nodes know that its first one is dead. What it does
// there counts, whenever that is known.
func TestCore_WhoMovesBeforeTheDeathIsKnownLeavesNoOrphan(t *testing.T) {
	for name, c := range map[string]struct {
		before, after func(g *group)
		shows         int
	}{
		"deregistered before": {func(g *group) { g.publish("n2", "d1") }, func(*group) {}, 19},
		"lost after":          {func(*group) {}, func(g *group) { g.lose("n2", "d1") }, 19},
		"lost before":         {func(g *group) { g.lose("n2", "d1") }, func(*group) {}, 20}, // it may be on its way from there, too
		"still there":         {func(*group) {}, func(*group) {}, 20},
	} {
		t.Run(name, func(t *testing.T) {
			g := groupOf(t, asIs, "n1", "n2", "n3")
			g.fill("n3", 0, 4)
			g.fill("n1", 100, 16)
			g.pass(time.Second)
			g.publish("n2", "d1", host(1))
			g.pass(200 * time.Millisecond)
			c.before(g)
			g.pass(200 * time.Millisecond)
			g.die("n3")
			g.pass(time.Second)
			c.after(g)
			g.pass(time.Second)
			require.Equal(t, c.shows, g.shows("n1"))
			require.Equal(t, c.shows, g.shows("n2"))
			g.equal()
		})
	}
}

// A client goes from one node to another, which a third one does not hear: there it is
// shown as long as it is anywhere.
func TestCore_WhoMovesStaysShownWhereItsNewNodeIsNotHeard(t *testing.T) {
	for name, before := range map[string]func(*core){
		"settled":       func(*core) {},
		"behind a cut":  func(a *core) { a.unsettle(afterCut) },
		"behind a stop": func(a *core) { a.unsettle(afterPause) },
	} {
		t.Run(name, func(t *testing.T) {
			g := groupOf(t, asIs, "a", "b", "c")
			g.publish("a", "conn-a", host(1))
			g.pass(time.Second)
			require.Equal(t, 1, g.shows("c"))
			g.drop = func(from, to string, _ *message) bool { return from == "b" && to == "c" }
			g.publish("b", "conn-b", host(1))
			g.pass(time.Second)
			before(g.cores["a"])
			g.lose("a", "conn-a")
			for range 200 {
				g.pass(100 * time.Millisecond)
				require.Equal(t, 1, g.shows("c"))
			}
			g.drop = nil
			g.pass(20 * time.Second)
			g.equal()
		})
	}
}

func TestCore_FalseDeathHeals(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3")
	g.fill("n3", 0, 5)
	g.fill("n1", 100, 95)
	g.pass(time.Second)
	apart := func(from, to string, _ *message) bool { return from == "n3" || to == "n3" }
	g.drop = apart
	for _, name := range []string{"n1", "n2"} {
		g.tell(name, "n3", false)
		g.tell("n3", name, false)
	}
	g.cores["n3"].cfg.InContact = func() bool { return false }
	g.fill("n3", 50, 1)
	g.publish("n3", "c0")
	g.pass(4 * time.Minute)
	require.Equal(t, 95, g.shows("n1"), "its time was over")
	require.Equal(t, 100, g.shows("n3"))
	g.drop = nil
	for _, name := range []string{"n1", "n2"} {
		g.tell(name, "n3", true)
		g.tell("n3", name, true)
	}
	g.pass(time.Second)
	require.Equal(t, 100, g.shows("n1"), "it tells what it has still")
	require.Equal(t, 100, g.shows("n2"))
	g.equal()
}

func TestCore_VerifyFindsWhatIsWrong(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3")
	g.fill("n1", 0, 3000)
	g.pass(time.Second)
	n2 := g.cores["n2"]
	o := n2.owners[origin{"n1", 1}]
	require.Equal(t, 3000, o.live)
	// n2 lacks one, has an older version of one, and one that never was.
	change := func(n int, do func(e *entry)) {
		s := n2.service(service("s"))
		do(n2.find(s, s.row(host(n).Key()), "c"+strconv.Itoa(n), host(n).Key()))
	}
	change(7, func(e *entry) { n2.assign(e, keyOnly(e.instance), value{time: 1, tombstone: true}, o) })
	change(8, func(e *entry) {
		old := host(8)
		old.Weight = 9
		n2.assign(e, old, value{time: 1}, o)
	})
	ghost := n2.enter(n2.service(service("s")), "ghost", host(9999))
	n2.assign(ghost, host(9999), value{time: 2}, o)
	n2.flush()
	require.Equal(t, 3000, g.shows("n2"))
	sent := 0
	g.drop = func(_, _ string, m *message) bool {
		sent += len(m.datums)
		return false
	}
	g.pass(15 * time.Second)
	g.equal()
	require.EqualValues(t, 1, n2.repaired)
	require.Less(t, sent, 50, "only what is in the buckets that differ")
	s, _ := n2.table.Service(service("s"))
	require.InDelta(t, 1, s.Find(host(8).Key()).Weight, 0)
}

func TestCore_OrphansAreCompletedBothWays(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3")
	unlucky := ""
	g.drop = func(_, to string, m *message) bool { // each lacks something
		return to == unlucky && m.kind == kindBatch || m.kind == kindAsk
	}
	for n := range 10 {
		unlucky = []string{"n1", "n2"}[n%2]
		g.fill("n3", n, 1)
		g.pass(50 * time.Millisecond)
	}
	g.die("n3")
	g.drop = nil
	require.Equal(t, 5, g.shows("n1"))
	require.Equal(t, 5, g.shows("n2"))
	g.pass(20 * time.Second)
	require.Equal(t, 10, g.shows("n1"))
	g.equal()
}

func TestCore_LostMessagesAreAskedFor(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2")
	lost := 0
	g.drop = func(_, _ string, m *message) bool {
		if m.kind == kindBatch && len(m.datums) > 0 && lost < 3 {
			lost++
			return true
		}
		return false
	}
	g.fill("n1", 0, 1) // the last one: only a mark shows that it is missing
	g.pass(2 * time.Second)
	require.Equal(t, 1, g.shows("n2"))
	require.Equal(t, 3, lost)
	require.Zero(t, g.cores["n2"].repairs)
	require.Equal(t, g.cores["n1"].seq, g.cores["n1"].peers["n2"].acked)
}

func TestCore_APauseHoldsDeletionsBack(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3")
	g.fill("n1", 0, 1)
	g.publish("n1", "asked", host(1))
	g.pass(time.Second)
	n2 := g.cores["n2"]
	delete(g.cores, "n2") // it does not run
	g.names = []string{"n1", "n3"}
	g.pass(2 * time.Second)
	g.cores["n2"], g.names = n2, []string{"n1", "n2", "n3"}
	require.True(t, n2.mayExpire())
	g.drop = func(from, to string, m *message) bool { return from == "n3" && to == "n2" && len(m.datums) > 0 }
	g.publish("n3", "other", host(0))
	g.lose("n1", "c0")
	g.publish("n1", "asked")
	g.pass(5 * time.Second)
	require.False(t, n2.mayExpire())
	require.Equal(t, 1, g.shows("n2"), "it was told that the client is lost, not where it is; the other one has said that it goes")
	g.drop = nil
	g.pass(10 * time.Second)
	require.Equal(t, 1, g.shows("n2"))
	g.publish("n3", "other")
	g.pass(time.Second)
	require.Zero(t, g.shows("n2"))
	g.pass(30 * time.Second)
	require.True(t, n2.mayExpire())
	g.equal()
}

// cutBehindAPause returns a group in which n2 was paused, and now hears nothing of n1,
// where the client is that n2 has a connection of.
func cutBehindAPause(t *testing.T) *group {
	t.Helper()
	g := groupOf(t, asIs, "n1", "n2", "n3")
	g.fill("n2", 0, 1)
	g.pass(time.Second)
	n2 := g.cores["n2"]
	delete(g.cores, "n2") // it does not run
	g.names = []string{"n1", "n3"}
	g.pass(12 * time.Second)
	g.publish("n1", "other", host(0))
	g.cores["n2"], g.names = n2, []string{"n1", "n2", "n3"}
	g.drop = func(from, to string, _ *message) bool { return from == "n1" && to == "n2" }
	return g
}

// A node was paused and lost a client's connection, and then hears nothing of the node
// that the client went to.
func TestCore_ACutBehindAPauseHoldsDeletionsBackLonger(t *testing.T) {
	g := cutBehindAPause(t)
	n2 := g.cores["n2"]
	g.pass(100 * time.Millisecond)
	g.lose("n2", "c0")
	for range 60 {
		g.pass(time.Second)
		require.Equal(t, 1, g.shows("n2"))
	}
	g.drop = nil
	g.pass(20 * time.Second)
	require.Equal(t, 1, g.shows("n2"))
	g.equal()

	// A client that is nowhere is gone once all nodes were heard, or after as long as a
	// silent one is waited for.
	g.publish("n1", "other")
	g.pass(time.Second)
	require.Zero(t, g.shows("n2"))
	g.publish("n2", "c1", host(1))
	g.pass(time.Second)
	n2.unsettle(afterCut)
	g.drop = func(from, to string, _ *message) bool { return from == "n1" && to == "n2" }
	g.lose("n2", "c1")
	g.pass(2 * time.Minute)
	require.Equal(t, 1, g.shows("n2"))
	g.pass(90 * time.Second)
	require.Zero(t, g.shows("n2"))
}

// The same for a client that had been asked to go to another node before the pause: its
// instance is kept for ten seconds, and given up when nothing else is held back.
func TestCore_ACutBehindAPauseHoldsLateDeletionsBack(t *testing.T) {
	g := cutBehindAPause(t)
	g.pass(afterPause + 50*time.Millisecond)
	g.lose("n2", "c0")
	for range 30 {
		require.Equal(t, 1, g.shows("n2"))
		g.pass(time.Second)
	}
	g.tell("n2", "n1", false)
	g.lose("n2", "c0")
	g.pass(20 * time.Second)
	require.Equal(t, 1, g.shows("n2"))
	g.tell("n2", "n1", true)
	g.drop = nil
	g.pass(20 * time.Second)
	require.Equal(t, 1, g.shows("n2"))
	g.publish("n1", "other")
	g.pass(time.Second)
	require.Zero(t, g.shows("n2"))
	g.equal()
}

// A node that is cut off when what it held back was to take effect cannot know where its
// clients have gone.
func TestCore_ANodeThatIsCutOffHoldsItsLossesBack(t *testing.T) {
	contact := true
	g := groupOf(t, func(cfg *Config) { cfg.InContact = func() bool { return contact } }, "n1", "n2", "n3")
	g.publish("n2", "c0", host(0))
	g.pass(time.Second)
	g.cores["n2"].unsettle(afterPause)
	g.pass(8 * time.Second) // all are heard again
	contact = false
	g.drop = func(from, to string, _ *message) bool { return from == "n1" && to == "n2" }
	g.lose("n2", "c0")
	g.publish("n1", "c0-again", host(0))
	for range 60 {
		g.pass(time.Second)
		require.Equal(t, 1, g.shows("n2"))
	}
	g.drop = nil
	g.pass(20 * time.Second)
	require.Equal(t, 1, g.shows("n2"))
	require.Empty(t, g.cores["n2"].held)
	g.equal()
}

// Clients of a node that was paused come back elsewhere in the seconds after it, and that
// node may be cut off then: not from the leader, which is this one perhaps.
func TestCore_WhoWentToANodeThatIsCutOffThenIsNotGone(t *testing.T) {
	for name, back := range map[string]bool{"it came back": true, "it is dead": false} {
		t.Run(name, func(t *testing.T) {
			g := groupOf(t, asIs, "n1", "n2", "n3")
			g.publish("n3", "c0", host(0))
			g.pass(time.Second)
			n3 := g.cores["n3"]
			n3.unsettle(afterPause)
			g.pass(100 * time.Millisecond)
			g.lose("n3", "c0")
			g.pass(7 * time.Second) // all are heard to the end
			g.drop = func(from, to string, _ *message) bool { return from == "n2" || to == "n2" }
			if back {
				g.publish("n2", "c0-again", host(0))
			}
			g.pass(3 * time.Second)
			n2 := g.cores["n2"]
			for _, node := range []string{"n1", "n3"} {
				g.cores[node].observe(g.now, Member{Name: "n2", Boot: n2.self.boot})
				n2.observe(g.now, Member{Name: node, Boot: g.cores[node].self.boot})
			}
			for range 30 {
				g.pass(time.Second)
				require.Equal(t, 1, g.shows("n3"))
				require.Equal(t, 1, g.shows("n1"))
			}
			g.drop = nil
			for _, node := range []string{"n1", "n3"} {
				g.tell(node, "n2", true)
				g.tell("n2", node, true)
			}
			g.pass(20 * time.Second)
			for _, node := range g.names {
				require.Equal(t, back, g.shows(node) == 1, node)
			}
			require.Empty(t, n3.held)
			g.equal()
		})
	}
}

// Nor can a node know that waits for a silent one which turns out to be dead: the clients
// that were there are on their way.
func TestCore_ADeadNodesClientsAreWaitedFor(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3")
	g.publish("n2", "c0", host(0))
	g.pass(time.Second)
	n2 := g.cores["n2"]
	n2.unsettle(afterPause)
	g.drop = func(from, _ string, _ *message) bool { return from == "n1" }
	g.lose("n2", "c0")
	boot := g.cores["n1"].self.boot
	g.pass(time.Second)
	g.die("n1")
	g.pass(20 * time.Second)
	require.Equal(t, 1, g.shows("n2"), "it may be there")
	n2.refusal(origin{"n1", boot}, "n2")
	n2.refusal(origin{"n1", boot}, "n3")
	g.pass(9 * time.Second)
	require.Equal(t, 1, g.shows("n2"))
	g.pass(7 * time.Second) // n3 says every five seconds how far it is
	require.Zero(t, g.shows("n2"))
}

// A node that changes all the time is never heard to its present end; what it had said
// when it told how far it was is enough.
func TestCore_DeletionsAreHeldBackNoLongerForANodeThatChangesAllTheTime(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2")
	g.fill("n2", 0, 1)
	g.pass(time.Second)
	n2 := g.cores["n2"]
	n2.unsettle(afterCut)
	g.lose("n2", "c0")
	change := func(d time.Duration) {
		for end := g.now.Add(d); g.now.Before(end); g.pass(10 * time.Millisecond) {
			busy := host(1)
			busy.Port = int(g.now.UnixMilli()%1000) + 1
			g.publish("n1", "busy", busy)
		}
	}
	change(afterCut - time.Second)
	require.Equal(t, 2, g.shows("n2"))
	change(10 * time.Second)
	require.Equal(t, 1, g.shows("n2"))
}

func TestCore_SilenceIsNotBelievedWhileANodeIsMissing(t *testing.T) {
	contact := true
	g := groupOf(t, func(cfg *Config) { cfg.InContact = func() bool { return contact } }, "n1", "n2", "n3")
	n1 := g.cores["n1"]
	may := func() bool {
		n1.at(g.now)
		return n1.mayExpire()
	}
	require.True(t, may())
	g.die("n3")
	g.pass(time.Second)
	require.False(t, may(), "it may hear them")
	g.pass(3 * time.Minute)
	require.True(t, may())
	contact = false
	require.False(t, may())
	contact = true
	g.drop = func(from, _ string, _ *message) bool { return from == "n2" } // alive by way of others
	g.pass(20 * time.Second)
	require.False(t, may())
}

func TestCore_AnInferredDeletionYields(t *testing.T) {
	const publisher = "10.0.0.5:8080"
	for _, heard := range []bool{true, false} {
		t.Run(fmt.Sprint("heard ", heard), func(t *testing.T) {
			g := groupOf(t, asIs, "n1", "n2")
			g.publish("n1", publisher, host(5))
			g.pass(time.Second)
			g.drop = func(_, to string, m *message) bool {
				for n := range m.datums {
					m.datums[n].heard = to == "n2" && heard
				}
				return false
			}
			n1 := g.cores["n1"]
			n1.local(g.now, func() {
				n1.publish(consistency.Publication{Service: service("s"), Publisher: publisher}, true)
			})
			g.pass(time.Second)
			want := 0
			if heard {
				want = 1
			}
			require.Equal(t, want, g.shows("n1"))
			g.equal()
		})
	}
	t.Run("said before, heard of later", func(t *testing.T) {
		g := groupOf(t, asIs, "n1", "n2")
		g.publish("n1", publisher, host(5))
		g.pass(time.Second)
		g.drop = func(string, string, *message) bool { return true }
		g.publish("n2", publisher, host(5))
		g.pass(30 * time.Second)
		n1 := g.cores["n1"]
		n1.local(g.now, func() {
			n1.publish(consistency.Publication{Service: service("s"), Publisher: publisher}, true)
		})
		g.drop = nil
		g.pass(10 * time.Second)
		require.Equal(t, 1, g.shows("n1"))
		g.equal()
	})
}

func TestCore_AnInferredSilenceYields(t *testing.T) {
	const publisher = "10.0.0.5:8080"
	for _, heard := range []bool{true, false} {
		t.Run(fmt.Sprint("heard ", heard), func(t *testing.T) {
			g := groupOf(t, asIs, "n1", "n2")
			g.publish("n1", publisher, host(5))
			g.pass(time.Second)
			g.drop = func(_, to string, m *message) bool {
				for n := range m.datums {
					m.datums[n].heard = to == "n2" && heard
				}
				return false
			}
			n1 := g.cores["n1"]
			n1.local(g.now, func() {
				s := n1.service(service("s"))
				i := host(5).With(func(i *naming.Instance) { i.Healthy = false })
				n1.put(n1.enter(s, publisher, i), i, n1.clock.next(g.now), true)
			})
			g.pass(time.Second)
			for _, name := range []string{"n1", "n2"} {
				s, _ := g.cores[name].table.Service(service("s"))
				require.Equal(t, heard, s.Instances[0].Healthy, name)
			}
			g.equal()
		})
	}
}

func TestCore_DatumsOverHTTPGetAnOwnerThatIsThere(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2", "n3")
	for n := range 300 {
		g.publish("n3", "10.0.1."+strconv.Itoa(n)+":80", host(n))
	}
	g.pass(time.Second)
	notices := 0
	g.cores["n1"].table.Listen(func(consistency.ServiceChanged) { notices++ })
	for _, name := range []string{"n1", "n2"} {
		g.cores[name].observe(g.now, Member{Name: "n3", Boot: 3, Leaving: true})
	}
	delete(g.cores, "n3")
	g.names = []string{"n1", "n2"}
	g.pass(35 * time.Second)
	n1 := g.cores["n1"]
	require.Nil(t, n1.owners[origin{"n3", 3}])
	require.Equal(t, 300, n1.owners[origin{"n1", 1}].live+n1.owners[origin{"n2", 2}].live)
	require.Equal(t, 300, g.shows("n2"))
	require.Zero(t, notices)
	g.equal()
}

// Runs of one node follow each other: what this one has written came after all that an
// earlier one did, though its clock was put back meanwhile.
func TestCore_ARestartedNodesWritesAreNewerThanBefore(t *testing.T) {
	for name, registered := range map[string]bool{"registered again": true, "deregistered": false} {
		t.Run(name, func(t *testing.T) {
			const publisher = "10.0.0.1:8080"
			write := func(g *group, registered bool) {
				var all []*naming.Instance
				if registered {
					all = append(all, host(1))
				}
				g.publish("n1", publisher, all...)
			}
			g := groupOf(t, asIs, "n1", "n2")
			before := g.cores["n1"]
			before.clock.last = hybrid(g.now.Add(20 * time.Minute))
			write(g, true)
			if registered {
				write(g, false)
			}
			g.pass(100 * time.Millisecond)
			g.die("n1")

			g.start("n1", 3, asIs)
			g.names = []string{"n1", "n2"}
			write(g, true) // it knows nothing yet
			if !registered {
				write(g, false)
			}
			g.tell("n1", "n2", true)
			g.tell("n2", "n1", true)
			g.pass(time.Second)
			for _, node := range g.names {
				require.Equal(t, registered, g.shows(node) == 1, node)
			}
			g.equal()
		})
	}
}

// A machine is replaced by one whose folder is empty and whose clock is behind: its run
// has a smaller number than the one before, and follows it all the same.
func TestCore_AReplacedNodeMayHaveASmallerNumber(t *testing.T) {
	for name, first := range map[string]func(g *group){
		"its word first":       func(g *group) { g.fill("n1", 0, 5); g.pass(100 * time.Millisecond); g.tell("n2", "n1", true) },
		"the membership first": func(g *group) { g.tell("n2", "n1", true); g.pass(100 * time.Millisecond); g.fill("n1", 0, 5) },
	} {
		t.Run(name, func(t *testing.T) {
			g := groupOf(t, asIs, "n1", "n2", "n3")
			g.die("n1")
			g.start("n1", 100, asIs)
			g.names = []string{"n1", "n2", "n3"}
			for _, a := range g.names {
				for _, b := range g.names {
					g.tell(a, b, true)
				}
			}
			g.fill("n1", 5, 5)
			g.pass(time.Second)
			g.die("n1")

			n1 := g.start("n1", 50, asIs)
			g.names = []string{"n1", "n2", "n3"}
			g.tell("n1", "n2", true)
			g.tell("n1", "n3", true)
			g.tell("n3", "n1", true)
			first(g)
			g.pass(time.Second)
			require.True(t, n1.loaded)
			require.Equal(t, 10, g.shows("n2"))
			g.pass(40 * time.Second)
			for _, node := range g.names {
				require.Equal(t, 5, g.shows(node), "%s: those of the earlier run are gone after the grace, the others stay", node)
			}
			g.pass(5 * time.Minute)
			for _, node := range g.names {
				require.Equal(t, 5, g.shows(node), node)
			}
			g.tell("n2", "n1", true) // once more
			g.pass(time.Second)
			require.Equal(t, 5, g.shows("n2"))
			g.equal()
		})
	}
}

func TestCore_TombstonesAreForgotten(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2")
	g.fill("n1", 0, 100)
	g.pass(time.Second)
	for n := range 100 {
		g.publish("n1", "c"+strconv.Itoa(n))
	}
	g.pass(time.Second)
	n2 := g.cores["n2"]
	require.Len(t, n2.graves, 100)
	g.pass(15 * time.Minute)
	require.Empty(t, n2.graves)
	require.Empty(t, n2.rows)
	require.Empty(t, n2.services)
	require.Zero(t, g.cores["n1"].queued)
}

func TestCore_ABatchIsNotSplit(t *testing.T) {
	g := groupOf(t, asIs, "n1", "n2")
	var all []*naming.Instance
	for n := range 2000 {
		all = append(all, host(n))
	}
	seen := make(map[int]bool)
	g.cores["n2"].table.Listen(func(consistency.ServiceChanged) { seen[g.shows("n2")] = true })
	g.publish("n1", "c", all...)
	g.pass(time.Second)
	g.publish("n1", "c", all[:500]...)
	g.pass(time.Second)
	require.Equal(t, map[int]bool{2000: true, 500: true}, seen)
}
