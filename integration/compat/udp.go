package compat

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// gzipFrom is the size of a text from which a datagram is compressed.
const gzipFrom = 1024

// socket is a UDP socket that reads in the background.
type socket struct {
	pc        *net.UDPConn
	datagrams chan datagram
	readers   sync.WaitGroup
	previous  []byte
}

type datagram struct {
	raw  []byte
	from net.Addr
}

func (s *socket) close() {
	_ = s.pc.Close()
	s.readers.Wait()
}

// hadPort holds the ports that sockets of this process have had.
//
//nolint:gochecknoglobals // of the process, as its ports are
var hadPort sync.Map

// listenUDP opens a socket at a port that none had before: a server goes on pushing for
// a while to one that was closed.
func listenUDP() (pc *net.UDPConn, port int, err error) {
	for {
		if pc, err = net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)}); err != nil {
			return nil, 0, err
		}
		if local, ok := pc.LocalAddr().(*net.UDPAddr); ok {
			if _, had := hadPort.LoadOrStore(local.Port, true); !had {
				return pc, local.Port, nil
			}
		}
		_ = pc.Close()
	}
}

func (p *Player) openSocket(name string) error {
	pc, port, err := listenUDP()
	if err != nil {
		return err
	}
	s := &socket{pc: pc, datagrams: make(chan datagram, 4096)}
	p.sockets[name] = s
	p.names.Bind("udpPort:"+name, strconv.Itoa(port))
	s.readers.Go(func() {
		buffer := make([]byte, 65536)
		for {
			n, from, err := pc.ReadFrom(buffer)
			if err != nil {
				close(s.datagrams)
				return
			}
			select {
			case s.datagrams <- datagram{bytes.Clone(buffer[:n]), from}:
			default: // nobody sends thousands; the step that waits will say so
			}
		}
	})
	return nil
}

func (p *Player) socket(name string) (*socket, error) {
	if s, ok := p.sockets[name]; ok {
		return s, nil
	}
	return nil, fmt.Errorf("socket %s is not open", name)
}

// receive waits for the next datagram; nil if none came in time.
func (s *socket) receive(ctx context.Context, patience time.Duration) (*datagram, error) {
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case d, ok := <-s.datagrams:
		if !ok {
			return nil, errors.New("the socket is closed")
		}
		return &d, nil
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// read takes a datagram apart: the outer object, the inner one that it carries
// as a text, and whether it was compressed by the rule.
func (d *datagram) read() (answer, error) {
	text, compressed := d.raw, bytes.HasPrefix(d.raw, []byte{0x1f, 0x8b})
	if compressed {
		var err error
		if text, err = gunzip(d.raw); err != nil {
			return answer{}, fmt.Errorf("uncompress the datagram: %w", err)
		}
	}
	if compressed != (len(text) >= gzipFrom) {
		return answer{}, fmt.Errorf("a text of %d bytes: compressed %v", len(text), compressed)
	}
	outer, err := parseJSON(text)
	if err != nil {
		return answer{}, fmt.Errorf("a datagram that is no JSON: %w: %s", err, shorten(string(text), 400))
	}
	got := answer{outer: outer, body: text}
	object, _ := outer.(map[string]any)
	inner, ok := object["data"].(string)
	if !ok {
		return answer{}, fmt.Errorf("a datagram without a data text: %s", shorten(string(text), 400))
	}
	if got.json, err = parseJSON([]byte(inner)); err != nil {
		return answer{}, fmt.Errorf("data that is no JSON: %w: %s", err, shorten(inner, 400))
	}
	got.hasJSON = true
	return got, nil
}

// datagram waits for the recorded datagram and acknowledges it as recorded.
func (p *Player) datagram(ctx context.Context, step Step, expected []Expected, failure *StepError) error {
	s, err := p.socket(step.Socket)
	if err != nil {
		return err
	}
	var wanted, passed []Expected
	for _, e := range expected {
		if e.PassOver {
			passed = append(passed, e)
		} else {
			wanted = append(wanted, e)
		}
	}
	for {
		d, err := s.receive(ctx, p.patience(step))
		if err != nil {
			return err
		}
		if d == nil {
			return fmt.Errorf("no datagram within %v", p.patience(step))
		}
		got, err := d.read()
		if err != nil {
			return err
		}
		failure.Got = shorten(string(got.body), 2000)
		v := p.judge(step, wanted, got)
		if v.met == nil {
			over := p.judge(step, passed, got)
			if over.met == nil {
				v.attempts = append(v.attempts, over.attempts...)
				failure.Attempts = describeAttempts(v)
				return failure
			}
		} else {
			p.met(v.met)
		}
		if step.SameAsPrevious && !bytes.Equal(d.raw, s.previous) {
			return errors.New("not byte for byte the datagram before")
		}
		s.previous = d.raw
		if err := p.acknowledgeDatagram(s, step, d, got); err != nil {
			return err
		}
		if v.met != nil {
			return nil
		}
	}
}

// acknowledgeDatagram answers with the recorded text and the datagram's own time.
func (p *Player) acknowledgeDatagram(s *socket, step Step, d *datagram, got answer) error {
	text, ok := step.Ack.(string)
	if !ok {
		return nil
	}
	if object, ok := got.outer.(map[string]any); ok {
		p.names.Bind("nanos", fmt.Sprint(object["lastRefTime"]))
		defer p.names.Unbind("nanos")
	}
	filled, err := p.names.Fill(text)
	if err != nil {
		return err
	}
	_, err = s.pc.WriteTo([]byte(filled), d.from)
	return err
}

// udpSilence fails if a datagram comes, unless it is one that may be passed over.
func (p *Player) udpSilence(ctx context.Context, step Step, expected []Expected, failure *StepError) error {
	s, err := p.socket(step.Socket)
	if err != nil {
		return err
	}
	until := time.Now().Add(p.scaled(step.Ms))
	for {
		d, err := s.receive(ctx, time.Until(until))
		if err != nil || d == nil {
			return err
		}
		got, err := d.read()
		if err != nil {
			return err
		}
		failure.Got = shorten(string(got.body), 2000)
		var passed []Expected
		for _, e := range expected {
			if e.PassOver {
				passed = append(passed, e)
			}
		}
		if v := p.judge(step, passed, got); v.met == nil {
			failure.Attempts = describeAttempts(v)
			failure.Err = errors.New("a datagram where there was silence")
			return failure
		}
	}
}
