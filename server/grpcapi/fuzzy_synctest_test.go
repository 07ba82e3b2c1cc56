package grpcapi

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server/wire"
)

// told is one message of a fuzzy watch, as the client reads it.
type told struct {
	typ       string
	RequestID string `json:"requestId"`
	SyncType  string
	Pattern   string `json:"groupKeyPattern"`
	Contexts  []struct {
		ServiceKey, ChangedType string
	}
	TotalBatch, CurrentBatch int
	ServiceKey, ChangedType  string
}

// notices returns what a fuzzy watch has told since it was called last, and
// acknowledges it if asked to.
func (c *client) notices(t *testing.T, ack bool) []told {
	t.Helper()
	var out []told
	for _, p := range c.messages() {
		n := told{typ: p.Type}
		require.NoError(t, json.Unmarshal(p.JSON(), &n))
		require.Equal(t, "10.0.0.1", p.ClientIP)
		if out = append(out, n); ack {
			c.say(t, "NamingFuzzyWatchChangeNotifyResponse", `{"resultCode":200,"errorCode":0,"requestId":"`+n.RequestID+`","success":true}`)
		}
	}
	pass(0)
	return out
}

// words writes notices shortly: "init 1/2 a+ b+", "finish", "a-".
func words(notices []told) (out []string) {
	sign := map[string]string{"ADD_SERVICE": "+", "DELETE_SERVICE": "-"}
	kinds := map[string]string{wire.FuzzyInit: "init", wire.FuzzyDiff: "diff", wire.FuzzyFinish: "finish"}
	for _, n := range notices {
		if n.typ == wire.TypeFuzzyChange {
			out = append(out, n.ServiceKey+sign[n.ChangedType])
			continue
		}
		w := fmt.Sprintf("%s %d/%d", kinds[n.SyncType], n.CurrentBatch, n.TotalBatch)
		for _, c := range n.Contexts {
			w += " " + c.ServiceKey + sign[c.ChangedType]
		}
		out = append(out, w)
	}
	return out
}

func (c *client) fuzzy(t *testing.T, typ, pattern, more string) string {
	t.Helper()
	return c.call(t, "NamingFuzzyWatchRequest", `{"namespace":"public","groupKeyPattern":"`+pattern+`","watchType":"`+typ+`"`+more+`}`)
}

const (
	fuzzyOK  = `NamingFuzzyWatchResponse {"resultCode":200,"errorCode":0,"success":true}`
	starting = `,"initializing":true,"receivedGroupKeys":[]`
)

func limits(patterns, matches int) func(*Config) {
	return func(c *Config) { c.FuzzyPatterns, c.FuzzyMatches, c.Idle = patterns, matches, time.Hour }
}

// change tells the server that services appeared or went.
func (n *node) change(there bool, services ...naming.ServiceKey) {
	n.registry.populate(there, services...)
	for _, svc := range services {
		n.Populated(svc)
	}
	pass(0)
}

func TestFuzzy_FirstRoundThenChanges(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.registry.populate(true, service("a"), service("b"), service("other"))
		c := n.join(t)
		require.Equal(t, fuzzyOK, c.fuzzy(t, "WATCH", "public>>g>>?", starting))
		require.Equal(t, fuzzyOK, c.fuzzy(t, "WATCH", "public>>g*>>*b*", starting))
		require.Empty(t, c.notices(t, true), "not before the answer")
		pass(fuzzyFirst)
		require.ElementsMatch(t, []string{"finish 1/1", "init 1/1 public@@g@@b+"}, words(c.notices(t, true)), "nothing is named ?")
		require.Equal(t, []string{"finish 1/1"}, words(c.notices(t, true)))

		n.change(true, service("bc"), service("x"))
		n.change(false, service("b"))
		require.Equal(t, []string{"public@@g@@bc+", "public@@g@@b-"}, words(c.notices(t, true)))
		n.change(true, service("bc"))
		pass(time.Minute)
		require.Empty(t, c.notices(t, true), "it is there already")

		require.Equal(t, fuzzyOK, c.fuzzy(t, "CANCEL_WATCH", "public>>g*>>*b*", ""))
		require.Equal(t, fuzzyOK, c.fuzzy(t, "CANCEL_WATCH", "public>>g*>>*b*", ""))
		n.change(false, service("bc"))
		pass(time.Minute)
		require.Empty(t, c.notices(t, true))
	}, limits(20, 500))
}

func TestFuzzy_WhatIsNotAcknowledgedComesAgainAsItIsThen(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.registry.populate(true, service("a"))
		c := n.join(t)
		c.fuzzy(t, "WATCH", "public>>g>>*", starting)
		pass(fuzzyFirst)
		require.Equal(t, []string{"init 1/1 public@@g@@a+"}, words(c.notices(t, false)))
		pass(fuzzyAck - ms)
		require.Empty(t, c.notices(t, false))
		pass(ms)
		require.Equal(t, []string{"init 1/1 public@@g@@a+"}, words(c.notices(t, true)))
		require.Equal(t, []string{"finish 1/1"}, words(c.notices(t, true)))

		n.change(true, service("b"))
		require.Equal(t, []string{"public@@g@@b+"}, words(c.notices(t, false)))
		n.registry.populate(false, service("b"))
		pass(fuzzyAck)
		require.Equal(t, []string{"public@@g@@b-"}, words(c.notices(t, true)))
		pass(time.Minute)
		require.Empty(t, c.notices(t, true))
	}, limits(20, 500))
}

func TestFuzzy_Batches(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		for k := range 23 {
			n.registry.populate(true, service(fmt.Sprintf("s%02d", k)))
		}
		c := n.join(t)
		c.fuzzy(t, "WATCH", "public>>g>>s*", starting)
		pass(fuzzyFirst)
		got := c.notices(t, true)
		require.Len(t, got, 3)
		for k, want := range []int{10, 10, 3} {
			require.Len(t, got[k].Contexts, want)
			require.Equal(t, []int{3, k + 1}, []int{got[k].TotalBatch, got[k].CurrentBatch})
		}
		require.Equal(t, []string{"finish 1/1"}, words(c.notices(t, true)), "once all are acknowledged")
	}, limits(20, 500))
}

func TestFuzzy_WhoComesBackIsToldTheDifference(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		n.registry.populate(true, service("a"), service("b"))
		c := n.join(t)
		c.fuzzy(t, "WATCH", "public>>g>>*", `,"initializing":false,"receivedGroupKeys":["public@@g@@a","public@@g@@gone","other@@g@@x","nonsense"]`)
		pass(fuzzyFirst)
		require.Equal(t, []string{"diff 1/1 public@@g@@b+ public@@g@@gone-"}, words(c.notices(t, true)))
		n.change(false, service("a"))
		require.Equal(t, []string{"public@@g@@a-"}, words(c.notices(t, true)), "what it had counts as told")
		pass(time.Minute)
		require.Empty(t, c.notices(t, true))
	}, limits(20, 500))
}

func TestFuzzy_Limits(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		const many = `NamingFuzzyWatchResponse {"resultCode":500,"errorCode":50310,"message":"fuzzy watch pattern over limit","success":false}`
		c, other := n.join(t), n.join(t)
		require.Equal(t, fuzzyOK, c.fuzzy(t, "WATCH", "public>>g>>1", starting))
		require.Equal(t, fuzzyOK, other.fuzzy(t, "WATCH", "public>>g>>2", starting))
		require.Equal(t, many, c.fuzzy(t, "WATCH", "public>>g>>3", starting))
		require.Equal(t, fuzzyOK, c.fuzzy(t, "WATCH", "public>>g>>2", starting), "one that is watched already is no other one")
		require.NoError(t, other.Close())
		pass(0)
		require.Equal(t, many, c.fuzzy(t, "WATCH", "public>>g>>3", starting))
		c.fuzzy(t, "CANCEL_WATCH", "public>>g>>2", "")
		require.Equal(t, fuzzyOK, c.fuzzy(t, "WATCH", "public>>g>>3", starting))
		c.fuzzy(t, "CANCEL_WATCH", "public>>g>>3", "")

		n.registry.populate(true, service("a"), service("b"), service("c"))
		require.Equal(t, `NamingFuzzyWatchResponse {"resultCode":500,"errorCode":50311,"message":"fuzzy watch pattern matched count over limit","success":false}`, c.fuzzy(t, "WATCH", "public>>g>>*", starting))
		pass(fuzzyFirst)
		c.notices(t, true)
		require.Equal(t, []string{"finish 1/1"}, words(c.notices(t, true)), "it watches as many as it may")
		n.change(true, service("d"))
		require.Empty(t, c.notices(t, true))
		n.change(false, service("a"))
		n.change(true, service("e"))
		require.Equal(t, []string{"public@@g@@a-", "public@@g@@e+"}, words(c.notices(t, true)))
	}, limits(2, 2))
}

func TestFuzzy_Refused(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		for _, pattern := range []string{"", "x", "a>>b", "a>>b>>", ">>b>>c", "a>>b>>c>>d"} {
			require.Contains(t, c.fuzzy(t, "WATCH", pattern, starting), `"errorCode":400,"message":"Param 'groupKeyPattern' is illegal`, pattern)
		}
		require.Contains(t, c.fuzzy(t, "other", "public>>g>>*", ""), `"errorCode":400,"message":"Unsupported request type other"`)
		pass(time.Minute)
		require.Empty(t, c.messages())
	}, limits(20, 500))
}

func TestMatchesItem(t *testing.T) {
	for item, want := range map[string]map[string]bool{
		"a":   {"a": true, "ab": false, "": false},
		"*":   {"": true, "a": true},
		".*":  {"a": true, ".a": true},
		"a*":  {"a": true, "ab": true, "ba": false},
		"*a":  {"a": true, "ba": true, "ab": false},
		"*a*": {"bab": true, "b": false},
		"a*b": {"ab": true, "acb": true, "a": false, "abc": false},
		"a*a": {"a": false, "aa": true},
	} {
		for s, matches := range want {
			require.Equal(t, matches, matchesItem(item, s), "%s %s", item, s)
		}
	}
}

func TestReset(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		id := c.id(t)
		require.False(t, n.Reset("other", "10.0.0.5", 8848))
		require.True(t, n.Reset(id, "10.0.0.5", 8848))
		require.True(t, n.Reset(id, "", 0))
		pass(0)
		got := c.messages()
		require.Len(t, got, 2)
		require.JSONEq(t, `{"headers":{},"requestId":"1","serverIp":"10.0.0.5","serverPort":"8848","connectionId":"`+id+`","module":"internal"}`, string(got[0].JSON()))
		require.JSONEq(t, `{"headers":{},"requestId":"2","module":"internal"}`, string(got[1].JSON()))
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"), "the client decides when it goes")

		n.join(t)
		require.Len(t, n.ConnectionList(), 2)
		require.Equal(t, 1, n.Shed(1, "10.0.0.5", 8848))
		require.Zero(t, n.Shed(2, "10.0.0.5", 8848))
	})
}

func TestConnectionLimits(t *testing.T) {
	setup := func(t *testing.T, n *node, ip string) *client {
		t.Helper()
		c := n.dial(t)
		c.open(t)
		require.NoError(t, c.stream.SendMsg(&wire.Payload{Type: "ConnectionSetupRequest", ClientIP: ip, Body: [][]byte{[]byte(namingSetup)}}))
		pass(closeGrace)
		return c
	}
	bubble(t, func(t *testing.T, n *node) {
		a := setup(t, n, "10.1.0.1")
		b := setup(t, n, "10.1.0.1")
		require.True(t, a.alive())
		require.NoError(t, a.ended())
		require.Error(t, b.ended(), "one of an address")
		c, d := setup(t, n, "10.1.0.2"), setup(t, n, "10.1.0.3")
		require.NoError(t, c.ended())
		require.Error(t, d.ended(), "two in all")
		require.NoError(t, a.Close())
		pass(0)
		require.NoError(t, setup(t, n, "10.1.0.1").ended(), "there is room again")
	}, func(cfg *Config) { cfg.MaxConnections, cfg.MaxConnectionsPerIP = 2, 1 })
}
