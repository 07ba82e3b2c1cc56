package compat

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Target is the node that scenarios are played against.
type Target struct {
	Host     string
	HTTPPort int // gRPC is at +1000, Raft at -1000
}

func (t Target) http() string { return net.JoinHostPort(t.Host, strconv.Itoa(t.HTTPPort)) }
func (t Target) grpc() string { return net.JoinHostPort(t.Host, strconv.Itoa(t.HTTPPort+1000)) }
func (t Target) raft() string { return net.JoinHostPort(t.Host, strconv.Itoa(t.HTTPPort-1000)) }

// Names returns the placeholders that stand for the node.
func (t Target) Names() *Names {
	return NewNames(map[string]string{
		"server":      t.http(),
		"httpPort":    strconv.Itoa(t.HTTPPort),
		"grpcPort":    strconv.Itoa(t.HTTPPort + 1000),
		"consolePort": strconv.Itoa(t.HTTPPort),
		"raftServer":  t.raft(),
		"raftPort":    strconv.Itoa(t.HTTPPort - 1000),
	})
}

// Player plays one scenario once. It is not safe for concurrent use; several
// players may play against one node.
type Player struct {
	target Target
	names  *Names
	client *http.Client
	// pace scales the waits and silences of a scenario; 1 is what was recorded.
	pace float64
	// before is called with each step as it begins.
	before func(i int, step Step)

	conns     map[string]*conn
	sockets   map[string]*socket
	listeners map[string]*listener
	happened  map[string]bool
}

// NewPlayer returns a player with new names.
func NewPlayer(target Target) *Player {
	return &Player{
		target: target,
		names:  target.Names(),
		client: &http.Client{
			Transport:     &http.Transport{DisableCompression: true},
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
			Timeout:       30 * time.Second,
		},
		pace:      1,
		before:    func(int, Step) {},
		conns:     map[string]*conn{},
		sockets:   map[string]*socket{},
		listeners: map[string]*listener{},
		happened:  map[string]bool{},
	}
}

// StepError tells which step of which scenario failed and why.
type StepError struct {
	Script Script
	Index  int
	// Request is what was sent, filled in; Got is what came back, if anything.
	Request  string
	Got      string
	Attempts []string
	Err      error
}

func (e *StepError) Unwrap() error { return e.Err }

// Error is a report over several lines.
func (e *StepError) Error() string {
	step := e.Script.Scenario.Steps[e.Index]
	var b strings.Builder
	fmt.Fprintf(&b, "%s: step %d of %d (%s)\n", e.Script.Name(), e.Index+1, len(e.Script.Scenario.Steps), step.describe())
	fmt.Fprintf(&b, "  about:    %s\n", e.Script.Scenario.About)
	for _, line := range [][2]string{
		{"note", step.Note},
		{"instead", step.Instead},
		{"deviates", e.Script.Scenario.Deviates},
		{"may", e.Script.Scenario.MayDiffer},
		{"request", e.Request},
		{"got", e.Got},
	} {
		if line[1] != "" {
			fmt.Fprintf(&b, "  %-9s %s\n", line[0]+":", line[1])
		}
	}
	for _, attempt := range e.Attempts {
		b.WriteString(attempt)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, "  failed:   %v\n", e.Err)
	}
	return strings.TrimRight(b.String(), "\n")
}

// describeAttempts shows what differs from each answer that would have done.
func describeAttempts(v verdict) []string {
	var out []string
	for _, a := range v.attempts {
		var b strings.Builder
		fmt.Fprintf(&b, "  differs from %s:\n", a.expected.Source)
		for i, d := range a.found {
			if i == 12 {
				fmt.Fprintf(&b, "    and %d more\n", len(a.found)-i)
				break
			}
			fmt.Fprintf(&b, "    %s\n", d)
		}
		out = append(out, b.String())
	}
	return out
}

// Play plays the scenario and returns a *StepError for the first step that
// does not go as it should. It frees everything it opened.
func (p *Player) Play(ctx context.Context, script Script) error {
	defer p.close()
	for i, step := range script.Scenario.Steps {
		p.before(i, step)
		failure := &StepError{Script: script, Index: i}
		if err := p.step(ctx, script, i, step, failure); err != nil {
			if own, ok := errors.AsType[*StepError](err); ok {
				return own
			}
			failure.Err = err
			return failure
		}
	}
	return nil
}

func (p *Player) close() {
	for _, c := range p.conns {
		c.close()
	}
	for _, s := range p.sockets {
		s.close()
	}
	for _, l := range p.listeners {
		l.close()
	}
	p.client.CloseIdleConnections()
}

func (p *Player) step(ctx context.Context, script Script, i int, step Step, failure *StepError) error {
	expected := script.expected(i, p.happened)
	switch step.Kind {
	case "http":
		return p.exchange(ctx, step, expected, failure, p.http)
	case "grpc":
		return p.exchange(ctx, step, expected, failure, p.unary)
	case "call":
		return p.exchange(ctx, step, expected, failure, p.call)
	case "connect":
		return p.connect(ctx, step)
	case "open":
		return p.open(step.Conn)
	case "stream":
		return p.stream(step.Conn)
	case "end-stream":
		return p.endStream(step.Conn)
	case "close":
		return p.drop(step.Conn)
	case "send":
		return p.send(step)
	case "push":
		return p.push(ctx, step, expected, failure)
	case "silence":
		return p.silence(ctx, step, expected, failure)
	case "closed":
		return p.closed(ctx, step)
	case "udp-open":
		return p.openSocket(step.Socket)
	case "udp":
		return p.datagram(ctx, step, expected, failure)
	case "udp-silence":
		return p.udpSilence(ctx, step, expected, failure)
	case "listen":
		return p.listen(step.Listener)
	case "listen-http":
		return p.listenHTTP(step.Listener, step.Status.HTTP)
	case "unlisten":
		return p.unlisten(step.Listener)
	case "probe":
		return p.probe(ctx, step)
	case "wait":
		return p.wait(ctx, p.scaled(step.Ms))
	}
	return fmt.Errorf("unknown kind of step %q", step.Kind)
}

// expected returns the answers that a step may have, given what happened
// before it: if variants depend on that, they alone count.
func (s Script) expected(i int, happened map[string]bool) []Expected {
	var always, chosen []Expected
	for _, v := range s.steps[i].variants {
		switch {
		case v.when == "":
			always = append(always, v.Expected)
		case happened[v.when]:
			chosen = append(chosen, v.Expected)
		}
	}
	if chosen != nil {
		return chosen
	}
	return slices.Concat(s.steps[i].recorded, always)
}

// exchange repeats a call as often as the step says and judges the last answer.
func (p *Player) exchange(ctx context.Context, step Step, expected []Expected, failure *StepError,
	call func(context.Context, Step, *StepError) (answer, error),
) error {
	for i := 1; i < step.Times; i++ {
		p.names.Bind("i", strconv.Itoa(i))
		if _, err := call(ctx, step, failure); err != nil {
			return fmt.Errorf("call %d of %d: %w", i, step.Times, err)
		}
	}
	if step.Times > 0 {
		p.names.Bind("i", strconv.Itoa(step.Times))
	}
	deadline := time.Now().Add(p.patience(step))
	pause := 20 * time.Millisecond
	for {
		got, err := call(ctx, step, failure)
		if err != nil {
			return err
		}
		v := p.judge(step, expected, got)
		if v.met != nil {
			p.met(v.met)
			return nil
		}
		if !step.Retry || time.Now().After(deadline) {
			failure.Attempts = describeAttempts(v)
			return failure
		}
		if err := p.wait(ctx, pause); err != nil {
			return err
		}
		pause = min(2*pause, 250*time.Millisecond)
	}
}

func (p *Player) met(e *Expected) {
	if e.Then != "" {
		p.happened[e.Then] = true
	}
}

// patience is how long something that took AfterMs on a real server may take.
func (p *Player) patience(step Step) time.Duration {
	return max(time.Duration(10*p.pace*float64(time.Second)), 2*time.Second) + 2*p.scaled(step.AfterMs)
}

func (p *Player) scaled(ms int) time.Duration {
	return time.Duration(float64(ms) * p.pace * float64(time.Millisecond))
}

func (p *Player) wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
