package client

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// play applies events by name and returns the steps that they led to. "late" is an
// answer to a call that was given up.
func play(t *testing.T, w *wish, events string) string {
	t.Helper()
	names := map[step]string{
		stepNone: ".", stepRegister: "register", stepDeregister: "deregister", stepForget: "forget", stepPause: "pause",
	}
	var steps []string
	for event := range strings.FieldsSeq(events) {
		var s step
		switch event {
		case "register":
			s = w.register()
		case "deregister":
			s = w.deregister()
		case "connect":
			s = w.connect()
		case "disconnect":
			s = w.disconnect()
		case "ok":
			s = w.ok(w.call)
		case "late":
			s = w.ok(w.lastCall)
		case "error":
			s = w.failed(w.call)
		case "refuse":
			s, _ = w.refused(w.call)
		case "timer":
			s = w.expire()
		case "lost":
			s = w.lost()
		case "doubt":
			s = w.doubt()
		case "close":
			s = w.close()
		default:
			t.Fatalf("no event %q", event)
		}
		steps = append(steps, names[s])
	}
	return strings.Join(steps, " ")
}

func TestWish_Orders(t *testing.T) {
	for _, c := range []struct{ name, events, steps string }{
		{"registered while connected", "connect register ok", "forget register ."},
		{"registered before there is a connection", "register connect ok", ". register ."},
		{"withdrawn before there is a connection", "register deregister", ". forget"},
		{"deregistered", "connect register ok deregister ok", "forget register . deregister forget"},
		{"deregistered while the registration is under way", "connect register deregister ok ok", "forget register . deregister forget"},
		{"registered again while the registration is under way", "connect register register ok ok", "forget register . register ."},
		{"registered while the deregistration is under way", "connect register ok deregister register ok ok", "forget register . deregister . register ."},
		{"replayed on the next connection", "connect register ok disconnect connect ok", "forget register . . register ."},
		{"replayed on each connection", "connect register ok disconnect connect ok disconnect connect ok", "forget register . . register . . register ."},
		{"cut off registration", "connect register disconnect connect ok", "forget register . register ."},
		{"cut off deregistration is finished", "connect register ok deregister disconnect connect ok", "forget register . deregister . deregister forget"},
		{"deregistered while disconnected", "connect register ok disconnect deregister connect ok", "forget register . . . deregister forget"},
		{"deregistered while a cut off registration is unknown", "connect register disconnect deregister connect ok", "forget register . . deregister forget"},
		{"deregistered and registered while disconnected", "connect register ok disconnect deregister register connect ok", "forget register . . . . register ."},
		{"late answer of the former connection", "connect register disconnect late connect ok", "forget register . . register ."},
		{"error, then again", "connect register error timer ok", "forget register pause register ."},
		{"error of a deregistration, then again", "connect register ok deregister error timer ok", "forget register . deregister pause deregister forget"},
		{"error while the wish changed", "connect register deregister error timer ok", "forget register . pause deregister forget"},
		{"no pause for who asks anew", "connect register error register ok timer", "forget register pause register . ."},
		{"pause ends with the connection", "connect register error disconnect connect ok timer", "forget register pause . register . ."},
		{"refused at first", "connect register refuse", "forget register forget"},
		{"refused change leaves what was accepted", "connect register ok register refuse", "forget register . register ."},
		{"refused when replayed: tried again", "connect register ok disconnect connect refuse timer ok", "forget register . . register pause register ."},
		{"refused while deregistered", "connect register deregister refuse", "forget register . forget"},
		{"refused change of a replay goes back and is replayed", "connect register ok disconnect register connect refuse ok", "forget register . . . register register ."},
		{"refused while a newer one waits", "connect register register refuse ok", "forget register . register ."},
		{"refused deregistration is tried again", "connect register ok deregister refuse timer ok", "forget register . deregister pause deregister forget"},
		{"lost by the server", "connect register ok lost ok", "forget register . register ."},
		{"doubted", "connect register ok doubt ok", "forget register . register ."},
		{"doubted while it is asked", "connect register doubt ok", "forget register . ."},
		{"closed while registered", "connect register ok close deregister connect", "forget register . . . ."},
		{"closed while a call is under way", "connect register close late disconnect", "forget register . . ."},
		{"closed while paused", "connect register error close timer", "forget register pause . ."},
	} {
		t.Run(c.name, func(t *testing.T) {
			require.Equal(t, c.steps, play(t, new(wish), c.events))
		})
	}
}

// model is a wish with a server that holds something for as long as a connection.
type model struct {
	w       wish
	next    step
	holds   bool   // the server, on this connection
	holdsAt uint64 // the revision that it holds
	want    bool   // what the application may expect
	wantRev uint64
	good    uint64 // the revision accepted last, 0: none
	calls   int
}

func (m *model) do(s step) {
	if s == stepRegister || s == stepDeregister {
		m.calls++
	}
	m.next = s
}

// serve lets the server carry out the call that is under way.
func (m *model) serve() {
	if m.w.call == 0 {
		return
	}
	m.holds, m.holdsAt = m.w.calls, m.w.callRev
}

func (m *model) accept() {
	if m.w.calls && m.want {
		m.good = m.w.callRev
	}
}

// apply plays one of the events that can happen in this state; false: it cannot.
func (m *model) apply(event byte) bool {
	call := m.w.call
	switch event {
	case 'r':
		m.do(m.w.register())
		m.want, m.wantRev = true, m.w.rev
	case 'd':
		m.do(m.w.deregister())
		m.want, m.wantRev, m.good = false, m.w.rev, 0
	case 'c':
		if m.w.online {
			return false
		}
		m.do(m.w.connect())
	case 'x', 'X': // X: the call under way was carried out, its answer was lost
		if !m.w.online || event == 'X' && call == 0 {
			return false
		}
		m.holds = false
		m.do(m.w.disconnect())
	case 'o':
		if call == 0 {
			return false
		}
		m.serve()
		m.accept()
		m.do(m.w.ok(call))
	case 'e', 'E': // E: it was carried out, the answer was lost
		if call == 0 {
			return false
		}
		if event == 'E' {
			m.serve()
		}
		m.do(m.w.failed(call))
	case 'n':
		if call == 0 {
			return false
		}
		fresh := m.w.calls && m.want && m.w.callRev == m.wantRev && m.w.callRev != m.good
		next, back := m.w.refused(call)
		if back != fresh {
			panic(fmt.Sprintf("went back: %t, want %t", back, fresh))
		}
		if back {
			if m.wantRev = m.good; m.good == 0 {
				m.want = false
			}
		}
		m.do(next)
	case 't':
		if !m.w.paused {
			return false
		}
		m.do(m.w.expire())
	}
	return true
}

// settle lets everything succeed from here on.
func (m *model) settle() {
	if !m.w.online {
		m.apply('c')
	}
	for range 10 {
		if !m.apply('t') && !m.apply('o') {
			return
		}
	}
}

// Every order of events up to a length: nothing wanted is lost, nothing unwanted
// stays, nothing is sent twice, and nothing is sent after close.
func TestWish_EveryOrderConverges(t *testing.T) {
	const events, length = "rdcxXoeEnt", 9
	count := 0
	var walk func(m model, path string)
	walk = func(m model, path string) {
		count++
		end := m
		end.settle()
		if end.holds != end.want || end.want && (end.holdsAt != end.wantRev || !end.w.met(end.wantRev)) {
			t.Fatalf("%s: the server holds %t (revision %d), wanted is %t (revision %d)", path, end.holds, end.holdsAt, end.want, end.wantRev)
		}
		if calls := end.calls; end.apply('t') || end.apply('o') || end.calls != calls {
			t.Fatalf("%s: more calls than needed", path)
		}
		if !end.want && path != "" && end.next != stepForget {
			t.Fatalf("%s: the record of what is gone stays", path)
		}
		closed := m
		closed.w.close()
		for _, e := range []byte("rdcxt") {
			calls := closed.calls
			closed.apply(e)
			if closed.calls != calls {
				t.Fatalf("%s: a call after close and %c", path, e)
			}
		}
		if len(path) == length {
			return
		}
		for _, e := range []byte(events) {
			if next := m; next.apply(e) {
				walk(next, path+string(e))
			}
		}
	}
	walk(model{}, "")
	t.Logf("%d orders", count)
}
