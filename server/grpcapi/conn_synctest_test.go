package grpcapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"rollcall/naming"
	"rollcall/server/wire"
)

const (
	healthy      = `HealthCheckResponse {"resultCode":200,"errorCode":0,"success":true}`
	unregistered = `ErrorResponse {"resultCode":500,"errorCode":301,"message":"Connection is unregistered.","success":false}`
	abandoned    = `ErrorResponse {"resultCode":500,"errorCode":500,"message":"Connection is unregistered.","success":false}`
	registerA    = `,"type":"registerInstance","instance":{"ip":"10.0.0.1","port":80}}`
)

// pass lets time pass and everything happen that is due.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// bubble runs a test on a front end in a bubble, where times are exact.
func bubble(t *testing.T, run func(t *testing.T, n *node), adjust ...func(*Config)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { run(t, start(t, adjust...)) })
}

// join returns a connection that is set up.
func (n *node) join(t *testing.T) *client {
	t.Helper()
	c := n.dial(t)
	c.open(t)
	c.say(t, "ConnectionSetupRequest", namingSetup)
	synctest.Wait()
	return c
}

// id asks a connection for its id.
func (c *client) id(t *testing.T) string {
	t.Helper()
	_, rest, _ := strings.Cut(c.call(t, "ServerCheckRequest", "{}"), `"connectionId":"`)
	id, _, ok := strings.Cut(rest, `"`)
	require.True(t, ok)
	return id
}

// conn returns the server's side of the only connection.
func (n *node) conn(t *testing.T) *conn {
	t.Helper()
	n.mu.Lock()
	defer n.mu.Unlock()
	require.Len(t, n.conns, 1)
	for c := range n.conns {
		return c
	}
	return nil
}

func TestConn_LifeOfAConnection(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.dial(t)
		check := c.call(t, "ServerCheckRequest", `{"headers":{},"module":"internal"}`)
		id := fmt.Sprintf("%d_10.0.0.7_40001", time.Now().UnixMilli())
		require.Equal(t, `ServerCheckResponse {"resultCode":200,"errorCode":0,"connectionId":"`+id+`","supportAbilityNegotiation":true,"success":true}`, check)
		require.Equal(t, unregistered, c.call(t, "HealthCheckRequest", "{}"))
		require.Equal(t, unregistered, c.call(t, "InstanceRequest", named("a")+registerA))
		c.open(t)
		c.say(t, "ConnectionSetupRequest", namingSetup)
		pass(0)
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
		require.Equal(t, id, c.id(t), "the connection is the transport")
		require.Empty(t, c.messages())
		require.Equal(t, 1, n.Connections())

		require.Equal(t, `InstanceResponse {"resultCode":200,"errorCode":0,"type":"registerInstance","success":true}`, c.call(t, "InstanceRequest", named("a")+registerA))
		c.call(t, "SubscribeServiceRequest", named("b")+`,"subscribe":true,"clusters":""}`)
		require.Equal(t, 1, n.engine.Subscriptions())
		require.NoError(t, c.Close())
		pass(0)
		require.Zero(t, n.Connections())
		require.Zero(t, n.engine.Subscriptions())
		require.Equal(t, []string{
			"Register public##g@@a " + id + ` {id="" 10.0.0.1:80 DEFAULT w=1 healthy=true enabled=true ephemeral=true map[]}`,
			"ConnectionLost " + id + " [public##g@@a]",
		}, n.registry.told())
		pass(time.Hour)
		require.Empty(t, n.registry.told())
	})
}

func TestConn_StreamFirst(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) { // as the Rust SDK does
		c := n.join(t)
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
		require.NotEmpty(t, c.id(t))
	})
}

func TestConn_SetupAckForWhoNegotiates(t *testing.T) {
	const persistent, fuzzy = `{"supportPersistentInstanceByGrpc":true}`, `{"supportPersistentInstanceByGrpc":true,"fuzzyWatch":true}`
	for setup, want := range map[string]string{ // the server's abilities; empty: none are told
		`{"labels":{"module":"naming"},"abilityTable":{"fuzzyWatch":true,"lock":true}}`: fuzzy,
		`{"labels":{"module":"naming"},"abilityTable":{"lock":true}}`:                   persistent,
		`{"labels":{"module":"naming"},"abilityTable":{}}`:                              persistent,
		`{"labels":{"module":"naming"},"abilityTable":null}`:                            "",
		namingSetup: "",
		`{"labels":{"module":"naming"},"abilities":{"namingAbility":{}}}`: "",
	} {
		bubble(t, func(t *testing.T, n *node) {
			c := n.dial(t)
			c.open(t)
			c.say(t, "ConnectionSetupRequest", setup)
			pass(0)
			got := c.messages()
			require.Equal(t, want != "", len(got) == 1, setup)
			if want != "" {
				require.Equal(t, "SetupAckRequest", got[0].Type)
				require.Equal(t, "10.0.0.1", got[0].ClientIP)
				require.JSONEq(t, `{"headers":{},"abilityTable":`+want+`,"module":"internal"}`, string(got[0].JSON()))
			}
		})
	}
}

func TestConn_Labels(t *testing.T) {
	const gone = `"errorCode":-401`
	for setup, naming := range map[string]bool{
		namingSetup:                            true,
		`{}`:                                   true, // a client that knows no modules
		`{"labels":null,"clientVersion":null}`: true,
		`{"labels":{"source":"sdk"}}`:          true,
		`{"labels":{"module":"config"}}`:       false,
		`{"labels":{"module":""}}`:             false,
	} {
		bubble(t, func(t *testing.T, n *node) {
			c := n.dial(t)
			c.open(t)
			c.say(t, "ConnectionSetupRequest", setup)
			pass(0)
			require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
			require.Contains(t, c.call(t, "ServiceQueryRequest", named("a")+"}"), "QueryServiceResponse")
			for typ, body := range map[string]string{
				"InstanceRequest":         registerA,
				"BatchInstanceRequest":    `,"type":"batchRegisterInstance","instances":[]}`,
				"SubscribeServiceRequest": `,"subscribe":true}`,
			} {
				require.Equal(t, naming, !strings.Contains(c.call(t, typ, named("a")+body), gone), "%s %s", setup, typ)
			}
			require.Contains(t, c.call(t, "InstanceRequest", named("a")+`,"type":"deregisterInstance","instance":{}}`), map[bool]string{true: "InstanceResponse", false: gone}[naming])
		})
	}
}

func TestConn_SetupThatIsNone(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.dial(t)
		c.open(t)
		for _, body := range []string{"", "x", "[]", `{"labels":[]}`} {
			c.say(t, "ConnectionSetupRequest", body)
		}
		pass(0)
		require.Equal(t, unregistered, c.call(t, "HealthCheckRequest", "{}"))
		c.say(t, "ConnectionSetupRequest", namingSetup)
		pass(0)
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"), "the connection has not suffered")
		c.say(t, "ConnectionSetupRequest", `{"labels":{"module":"config"}}`) // a second one changes nothing
		pass(0)
		require.Contains(t, c.call(t, "InstanceRequest", named("a")+registerA), "InstanceResponse")
	})
}

func TestConn_SubscriberIsDescribedByTheSetup(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		c.call(t, "SubscribeServiceRequest", named("a")+`,"subscribe":true,"clusters":"x"}`)
		peers := n.engine.Subscribers(service("a"))
		require.Len(t, peers, 1)
		require.Equal(t, "10.0.0.9", peers[0].IP, "what the client says")
		require.Equal(t, "Nacos-Go-Client:v2.3.5", peers[0].Agent)
		require.Equal(t, "shop", peers[0].App)
		require.Zero(t, peers[0].Port)
		require.Equal(t, "x", peers[0].Clusters)

		other := n.dial(t)
		other.open(t)
		require.NoError(t, other.stream.SendMsg(&wire.Payload{Type: "ConnectionSetupRequest", Body: [][]byte{[]byte("{}")}}))
		pass(0)
		other.call(t, "SubscribeServiceRequest", named("b")+`,"subscribe":true}`)
		peers = n.engine.Subscribers(service("b"))
		require.Equal(t, "10.0.0.7", peers[0].IP, "else what the transport shows")
	})
}

func TestConn_ACallWaitsForASetupOnItsWay(t *testing.T) {
	for name, c := range map[string]struct {
		wait   time.Duration
		stream bool
		age    time.Duration // of the connection
		setup  time.Duration // when it comes; 0: never
		answer string
		after  time.Duration
	}{
		"in time":             {100 * ms, true, 0, 60 * ms, healthy, 60 * ms},
		"never":               {100 * ms, true, 0, 0, unregistered, 100 * ms},
		"too late":            {100 * ms, true, 0, 150 * ms, unregistered, 100 * ms},
		"no waiting":          {0, true, 0, 60 * ms, unregistered, 0},
		"the stream may come": {100 * ms, false, 0, 0, unregistered, 100 * ms},
		"no stream":           {100 * ms, false, 2 * time.Second, 0, abandoned, 0},
		"an old stream":       {100 * ms, true, time.Minute, 60 * ms, healthy, 60 * ms},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				x := n.dial(t)
				x.id(t)
				if c.stream {
					x.open(t)
				}
				pass(c.age)
				if c.setup > 0 {
					time.AfterFunc(c.setup, func() {
						_ = x.stream.SendMsg(&wire.Payload{Type: "ConnectionSetupRequest", Body: [][]byte{[]byte("{}")}})
					})
				}
				begin := time.Now()
				require.Equal(t, c.answer, x.call(t, "HealthCheckRequest", "{}"))
				require.Equal(t, c.after, time.Since(begin))
				pass(time.Second)
			}, func(cfg *Config) { cfg.SetupWait = c.wait })
		})
	}
}

// The Python SDK's transport after a restart of the server: it reconnected without
// its stream, and only an answer other than 301 makes the SDK dial again.
func TestConn_AStreamlessTransportIsToldToDialAgain(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.dial(t)
		require.Equal(t, unregistered, c.call(t, "HealthCheckRequest", "{}"), "its stream may be on its way")
		pass(5 * time.Second)
		require.Equal(t, abandoned, c.call(t, "HealthCheckRequest", "{}"))
		require.Equal(t, unregistered, c.call(t, "InstanceRequest", named("a")+registerA), "other calls wait for the SDK to reconnect")
		c.open(t)
		c.say(t, "ConnectionSetupRequest", namingSetup)
		pass(0)
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"), "a stream and a setup help at any time")
	})
}

func TestConn_ACallRightBehindTheSetup(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		for range 200 { // the server's goroutines run as they like
			c := n.dial(t)
			c.open(t)
			c.say(t, "ConnectionSetupRequest", namingSetup)
			require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
			require.NoError(t, c.Close())
		}
	})
}

func TestConn_AWaitingCallThatIsCancelled(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.dial(t)
		c.open(t)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(30*ms, cancel)
		err := c.Invoke(ctx, "/Request/request", &wire.Payload{Type: "HealthCheckRequest"}, new(wire.Payload))
		require.Equal(t, codes.Canceled, status.Code(err))
		begin := time.Now()
		require.NoError(t, n.Close())
		require.Zero(t, time.Since(begin), "the handler has ended as well")
	})
}

func TestConn_ASilentClientIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		last := ""
		for range 5 {
			pass(7*time.Second - ms)
			require.Empty(t, c.messages())
			pass(ms)
			got := c.messages()
			require.Len(t, got, 1)
			require.Equal(t, "ClientDetectionRequest", got[0].Type)
			require.Equal(t, "10.0.0.1", got[0].ClientIP)
			require.NotEqual(t, last, string(got[0].JSON()), "each question has a number of its own")
			last = string(got[0].JSON())
			c.say(t, "ClientDetectionResponse", `{"resultCode":200,"success":false}`)
			pass(0)
		}
		require.NoError(t, c.ended())
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
	})
}

func TestConn_AnythingThatItSaysIsASignOfLife(t *testing.T) {
	for name, say := range map[string]func(*testing.T, *client){
		"a call":         func(t *testing.T, c *client) { c.call(t, "HealthCheckRequest", "{}") },
		"a refused call": func(t *testing.T, c *client) { c.call(t, "NoSuchRequest", "{}") },
		"an acknowledgement": func(t *testing.T, c *client) {
			c.say(t, "NotifySubscriberResponse", `{"resultCode":200,"requestId":"1"}`)
		},
		"a message without use": func(t *testing.T, c *client) { c.say(t, "?", "x") },
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				c := n.join(t)
				for range 10 {
					pass(6 * time.Second)
					say(t, c)
					synctest.Wait()
				}
				require.Empty(t, c.messages(), "nobody is asked")
				pass(7 * time.Second)
				require.Len(t, c.messages(), 1)
			})
		})
	}
}

func TestConn_WhoDoesNotAnswerIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		id := c.id(t)
		c.call(t, "InstanceRequest", named("a")+registerA)
		c.call(t, "SubscribeServiceRequest", named("a")+`,"subscribe":true}`)
		pass(10*time.Second - ms)
		require.NoError(t, c.ended())
		require.Len(t, n.registry.told(), 1)
		pass(ms)
		require.Equal(t, codes.Unavailable, status.Code(c.ended()), "the stream ends with an error")
		require.True(t, c.alive())
		require.Empty(t, n.registry.told(), "what it has goes with the transport")
		pass(100 * ms)
		require.False(t, c.alive(), "then the transport is closed")
		require.Equal(t, []string{"ConnectionLost " + id + " [public##g@@a]"}, n.registry.told())
		require.Zero(t, n.engine.Subscriptions())
		require.Equal(t, 1, n.counter(t, "rollcall_connections_ejected_total"))
		require.Zero(t, n.counter(t, "rollcall_connections"))
		pass(time.Hour)
		require.Empty(t, n.registry.told())
	})
}

func TestConn_SilentOnesAreAskedTogether(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		pass(10 * ms)
		first := n.join(t)
		pass(200 * ms)
		second := n.join(t)
		pass(100 * ms)
		pass(7*time.Second - 310*ms - ms)
		require.Empty(t, first.messages())
		require.Empty(t, second.messages())
		pass(ms)
		require.Len(t, first.messages(), 1)
		require.Len(t, second.messages(), 1)
	})
}

func TestConn_AnswersThatComeLate(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		pass(10*time.Second - ms)
		require.Len(t, c.messages(), 1)
		c.say(t, "ClientDetectionResponse", `{"resultCode":200}`)
		pass(time.Second)
		require.NoError(t, c.ended(), "in time is in time")
		pass(6 * time.Second)
		require.Len(t, c.messages(), 1)
	})
}

// A process that stood still between question and look knows nothing of the answer.
func TestConn_APauseIsNoSilence(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		pass(7 * time.Second)
		require.Len(t, c.messages(), 1)
		x := n.conn(t)
		x.silence.Stop() // the timer of a process that stands still
		pass(time.Minute)
		x.checkSilence()
		pass(0)
		require.Len(t, c.messages(), 1, "it is asked again")
		require.NoError(t, c.ended())
		pass(3 * time.Second)
		require.Error(t, c.ended())
	})
}

func TestConn_WithoutASetupNobodyIsAsked(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.dial(t)
		c.open(t)
		pass(time.Hour)
		require.Empty(t, c.messages())
		require.Equal(t, unregistered, c.call(t, "HealthCheckRequest", "{}"))
	})
}

func TestConn_EndOfTheStreamIsNotItsEnd(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		c.call(t, "InstanceRequest", named("a")+registerA)
		c.call(t, "SubscribeServiceRequest", named("a")+`,"subscribe":true}`)
		pass(time.Second)
		require.Len(t, c.messages(), 1)
		require.NoError(t, c.stream.CloseSend())
		pass(0)
		require.ErrorIs(t, c.ended(), io.EOF)
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
		require.Len(t, n.registry.told(), 1, "its instances stay")
		require.Equal(t, 1, n.engine.Subscriptions())

		n.registry.set(host("10.0.0.5")) // nobody is there to push to
		n.engine.Notify(service("a"))
		pass(time.Second)
		c.end = nil
		c.open(t) // another stream takes its place
		pass(0)
		got := c.messages()
		require.Len(t, got, 1)
		require.Contains(t, string(got[0].JSON()), "10.0.0.5")
	})
}

func TestConn_WithoutAStreamItIsClosedForSilence(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		require.NoError(t, c.stream.CloseSend())
		pass(6 * time.Second)
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
		pass(10*time.Second + 100*ms)
		require.False(t, c.alive())
		require.Zero(t, n.Connections())
	})
}

func TestConn_ASecondStreamEndsAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		first := c.stream
		second := &client{ClientConn: c.ClientConn, n: n}
		second.open(t)
		pass(0)
		require.ErrorIs(t, second.ended(), io.EOF)
		require.NoError(t, c.ended())
		require.NoError(t, first.SendMsg(&wire.Payload{Type: "x"}))
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
	})
}

func TestConn_TheSameAddressAgain(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		seen := make(map[string]bool)
		for range 5 { // within one millisecond
			n.listener.mu.Lock()
			n.listener.port = 50000
			n.listener.mu.Unlock()
			c := n.dial(t)
			id := c.id(t)
			require.False(t, seen[id])
			require.True(t, strings.HasSuffix(id, "_10.0.0.7_50001"))
			seen[id] = true
		}
		require.Equal(t, 5, n.Connections())
	})
}

func TestConn_APublicationThatEndsAfterTheConnection(t *testing.T) {
	for typ, body := range map[string]string{
		"InstanceRequest":      registerA,
		"BatchInstanceRequest": `,"type":"batchRegisterInstance","instances":[{"ip":"10.0.0.1"}]}`,
	} {
		t.Run(typ, func(t *testing.T) {
			bubble(t, func(t *testing.T, n *node) {
				c := n.join(t)
				id := c.id(t)
				release := make(chan struct{})
				n.registry.during = func() { <-release }
				failed := make(chan error, 1)
				go func() {
					failed <- c.Invoke(context.Background(), "/Request/request", &wire.Payload{Type: typ, Body: [][]byte{[]byte(named("a") + body)}}, new(wire.Payload))
				}()
				pass(0)
				n.registry.mu.Lock()
				n.registry.during = nil
				n.registry.mu.Unlock()
				require.NoError(t, c.Close())
				require.Error(t, <-failed)
				pass(0)
				told := n.registry.told()
				require.Len(t, told, 2)
				require.Equal(t, "ConnectionLost "+id+" [public##g@@a]", told[1])
				close(release)
				pass(0)
				require.Equal(t, []string{"ConnectionLost " + id + " [public##g@@a]"}, n.registry.told(), "cleaned up after it as well")
			})
		})
	}
}

func TestConn_ListOfServicesHoldsWhatWasPublished(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		id := c.id(t)
		for range 3 {
			c.call(t, "InstanceRequest", named("a")+registerA)
		}
		n.registry.fail(&naming.InvalidError{Fault: naming.FaultParam, Text: "no"})
		c.call(t, "InstanceRequest", named("refused")+registerA)
		c.call(t, "InstanceRequest", named("a")+registerA)
		n.registry.fail(nil)
		c.call(t, "InstanceRequest", named("a")+`,"type":"deregisterInstance","instance":{"ip":"10.0.0.1","port":80}}`)
		require.NoError(t, c.Close())
		pass(0)
		told := n.registry.told()
		require.Equal(t, "ConnectionLost "+id+" [public##g@@a]", told[len(told)-1])
	})
}

func TestConn_PushesAndTheirAcknowledgements(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		answer := c.call(t, "SubscribeServiceRequest", named("a")+`,"subscribe":true,"clusters":"c"}`)
		require.Contains(t, answer, `SubscribeServiceResponse {"resultCode":200,"errorCode":0,"message":"success","serviceInfo":{"name":"a"`)
		pass(100 * ms)
		seq := func(p *wire.Payload) string {
			require.Equal(t, "NotifySubscriberRequest", p.Type)
			require.Equal(t, "10.0.0.1", p.ClientIP)
			_, rest, _ := strings.Cut(string(p.JSON()), `"requestId":"`)
			seq, _, _ := strings.Cut(rest, `"`)
			return seq
		}
		got := c.messages()
		require.Len(t, got, 1)
		c.say(t, "NotifySubscriberResponse", `{"resultCode":200,"errorCode":0,"requestId":"`+seq(got[0])+`","success":false}`)

		pass(time.Second)
		i := host("10.0.0.5")
		i.Cluster = "c"
		n.registry.set(i)
		n.engine.Notify(service("a"))
		pass(0)
		got = c.messages()
		require.Len(t, got, 1)
		require.Contains(t, string(got[0].JSON()), `"clusters":"c","cacheMillis":10000,"hosts":[{"instanceId":"10.0.0.5#80#c#g@@a"`)
		for _, nonsense := range []string{"", "x", `{"resultCode":200}`, `{"resultCode":200,"requestId":"12"}`, `{"resultCode":200,"requestId":"abc"}`, `{"resultCode":{}}`} {
			c.say(t, "NotifySubscriberResponse", nonsense)
		}
		pass(5999 * ms)
		require.Empty(t, c.messages())
		pass(ms)
		again := c.messages()
		require.Len(t, again, 1, "not acknowledged: repeated")
		require.NotEqual(t, seq(got[0]), seq(again[0]))
		c.say(t, "NotifySubscriberResponse", `{"resultCode":500,"errorCode":500,"requestId":"`+seq(again[0])+`","success":true}`)
		pass(time.Second)
		again = c.messages()
		require.Len(t, again, 1, "refused: repeated")
		c.say(t, "NotifySubscriberResponse", `{"resultCode":200,"requestId":`+seq(again[0])+`}`)
		for range 10 {
			pass(5 * time.Second)
			c.call(t, "HealthCheckRequest", "{}")
		}
		require.Empty(t, c.messages())

		c.call(t, "SubscribeServiceRequest", named("a")+`,"subscribe":false,"clusters":"c"}`)
		require.Zero(t, n.engine.Subscriptions())
		n.registry.set()
		n.engine.Notify(service("a"))
		pass(time.Second)
		require.Empty(t, c.messages())
	})
}

// large returns a service that fills a stream that nobody reads.
func large() []*naming.Instance {
	var out []*naming.Instance
	for n := range 200 {
		i := host(fmt.Sprint("10.0.0.", n))
		i.Metadata = map[string]string{"k": strings.Repeat("x", 1000)}
		out = append(out, i)
	}
	return out
}

func TestConn_WhoDoesNotReadIsClosed(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		slow := n.dial(t)
		slow.openSilent(t)
		slow.say(t, "ConnectionSetupRequest", namingSetup)
		quick := n.join(t)
		for _, c := range []*client{slow, quick} {
			pass(0)
			c.call(t, "SubscribeServiceRequest", named("a")+`,"subscribe":true}`)
		}
		pass(time.Second)
		n.registry.set(large()...)
		n.engine.Notify(service("a"))
		for second := range 29 {
			pass(time.Second)
			n.registry.set(append(large(), host(fmt.Sprint("10.1.0.", second)))...)
			n.engine.Notify(service("a"))
			for _, c := range []*client{slow, quick} { // both are alive
				require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
			}
		}
		pass(0)
		require.GreaterOrEqual(t, len(quick.messages()), 30, "nobody waits for the slow one")
		require.Equal(t, 2, n.Connections())
		pass(2*time.Second + 100*ms) // the first message that waits is the second one
		require.Equal(t, 1, n.Connections())
		require.False(t, slow.alive())
		require.True(t, quick.alive())
		require.Equal(t, 1, n.engine.Subscriptions())
	})
}

func TestConn_TooManyMessagesThatWait(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.dial(t)
		c.openSilent(t)
		c.say(t, "ConnectionSetupRequest", namingSetup)
		pass(0)
		c.call(t, "SubscribeServiceRequest", named("a")+`,"subscribe":true}`)
		for second := range 5 { // the stream is full, the second push waits
			n.registry.set(append(large(), host(fmt.Sprint("10.1.0.", second)))...)
			n.engine.Notify(service("a"))
			pass(time.Second)
		}
		for range outQueue {
			c.say(t, "ConnectionSetupRequest", `{"abilityTable":{}}`) // each is answered
		}
		pass(time.Second)
		require.Equal(t, 1, n.Connections())
		c.say(t, "ConnectionSetupRequest", `{"abilityTable":{}}`)
		pass(100 * ms)
		require.Zero(t, n.Connections())
	})
}

func TestServer_Close(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		c.call(t, "SubscribeServiceRequest", named("a")+`,"subscribe":true}`)
		c.call(t, "InstanceRequest", named("a")+registerA)
		silent := n.dial(t)
		silent.id(t)
		require.Equal(t, 2, n.Connections())
		require.NoError(t, n.Close())
		require.NoError(t, n.Close())
		pass(0)
		require.Error(t, c.ended())
		require.Zero(t, n.Connections())
		require.Zero(t, n.engine.Subscriptions())
		require.Nil(t, n.accept(addressed{remote: n.listener.Addr()}))
		_, _, err := transport{n.Server}.ServerHandshake(addressed{remote: n.listener.Addr()})
		require.Error(t, err)
	})
}

func TestServer_CloseWithACallUnderWay(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		n.registry.during = func() { time.Sleep(3 * time.Second) }
		failed := make(chan error, 1)
		go func() {
			failed <- c.Invoke(context.Background(), "/Request/request", &wire.Payload{Type: "InstanceRequest", Body: [][]byte{[]byte(named("a") + registerA)}}, new(wire.Payload))
		}()
		pass(0)
		begin := time.Now()
		require.NoError(t, n.Close())
		require.Equal(t, 3*time.Second, time.Since(begin), "it waits for the handler")
		require.Error(t, <-failed)
	})
}

func TestServer_NotReady(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		n.registry.mu.Lock()
		n.registry.notReady = errors.New("loading")
		n.registry.mu.Unlock()
		for _, typ := range []string{"ServerCheckRequest", "HealthCheckRequest", "InstanceRequest", "NoSuchRequest"} {
			require.Equal(t, `ErrorResponse {"resultCode":500,"errorCode":300,"message":"Server is starting,please try later.","success":false}`, c.call(t, typ, "{}"))
		}
	})
}

func TestServer_OutsideTheProtocol(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		for _, method := range []string{"/RequestStream/requestStream", "/Request/other", "/nope/nope"} {
			err := c.Invoke(t.Context(), method, new(wire.Payload), new(wire.Payload))
			require.Equal(t, codes.Unimplemented, status.Code(err), method)
		}
		err := c.Invoke(t.Context(), "/RequestStream/requestStream", new(wire.Payload), new(wire.Payload))
		require.ErrorContains(t, err, "Method not found: RequestStream/requestStream")
		big := &wire.Payload{Type: "HealthCheckRequest", Body: [][]byte{make([]byte, maxMessage)}}
		require.Equal(t, codes.ResourceExhausted, status.Code(c.Invoke(t.Context(), "/Request/request", big, new(wire.Payload))))
		big.Body = [][]byte{make([]byte, maxMessage-100)}
		require.NoError(t, c.Invoke(t.Context(), "/Request/request", big, new(wire.Payload)))
		require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
	})
}
