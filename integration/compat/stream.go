package compat

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"rollcall/integration/wire"
)

// next waits for the next message of the stream; nil if none came in time.
func (p *Player) next(ctx context.Context, c *conn, patience time.Duration) (*wire.Payload, error) {
	if c.stream == nil {
		return nil, errors.New("the connection has no stream")
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case message := <-c.messages:
		return message, nil
	default:
	}
	select {
	case message := <-c.messages:
		return message, nil
	case <-timer.C:
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.ended:
		select {
		case message := <-c.messages:
			return message, nil
		default:
		}
		return nil, fmt.Errorf("the stream ended: %w", c.endErr)
	}
}

// push waits for the recorded message and answers it as the client did.
func (p *Player) push(ctx context.Context, step Step, expected []Expected, failure *StepError) error {
	c, err := p.conn(step.Conn)
	if err != nil {
		return err
	}
	patience := p.patience(step)
	optional := false
	var wanted, passed []Expected
	for _, e := range expected {
		switch {
		case e.PassOver:
			passed = append(passed, e)
		case e.Optional:
			optional = true
		default:
			wanted = append(wanted, e)
		}
	}
	if optional {
		patience = max(p.scaled(1500), 500*time.Millisecond)
	}
	for skips := 0; ; skips++ {
		message, err := p.next(ctx, c, patience)
		if err != nil {
			return err
		}
		if message == nil {
			if optional {
				return nil
			}
			return fmt.Errorf("no message within %v", patience)
		}
		got, err := payloadAnswer(message)
		if err != nil {
			return err
		}
		if asked, err := p.detected(step, got); asked || err != nil {
			if err != nil {
				return err
			}
			skips--
			continue
		}
		failure.Got = got.describeRPC()
		v := p.judge(step, wanted, got)
		if v.met != nil {
			p.met(v.met)
			return p.acknowledge(step, got)
		}
		if over := p.judge(step, passed, got); over.met != nil || skips < step.Skipped {
			if err := p.acknowledge(step, got); err != nil {
				return err
			}
			continue
		} else {
			v.attempts = append(v.attempts, over.attempts...)
		}
		failure.Attempts = describeAttempts(v)
		return failure
	}
}

// acknowledge sends the recorded answer with the message's own id.
func (p *Player) acknowledge(step Step, got answer) error {
	ack, ok := step.Ack.(map[string]any)
	if step.NoAck || !ok {
		return nil
	}
	kind, _ := ack["type"].(string)
	if object, ok := got.json.(map[string]any); ok {
		if id, ok := object["requestId"].(string); ok {
			p.names.Bind("requestId", id)
			defer p.names.Unbind("requestId")
		}
	}
	return p.sendMessage(step.Conn, kind, clientIP, ack["body"])
}

// silence fails if a message comes, unless it is one that may be passed over.
func (p *Player) silence(ctx context.Context, step Step, expected []Expected, failure *StepError) error {
	c, err := p.conn(step.Conn)
	if err != nil {
		return err
	}
	until := time.Now().Add(p.scaled(step.Ms))
	for {
		message, err := p.next(ctx, c, time.Until(until))
		if err != nil || message == nil {
			return err
		}
		got, err := payloadAnswer(message)
		if err != nil {
			return err
		}
		if asked, err := p.detected(step, got); asked || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		failure.Got = got.describeRPC()
		var passed []Expected
		for _, e := range expected {
			if e.PassOver {
				passed = append(passed, e)
			}
		}
		v := p.judge(step, passed, got)
		if v.met == nil {
			failure.Attempts = describeAttempts(v)
			failure.Err = errors.New("a message where there was silence")
			return failure
		}
		if err := p.acknowledge(standardAck(step.Conn, got.typ), got); err != nil {
			return err
		}
	}
}

// detected answers the question whether the client is alive, where the recording
// does not wait for it: Rollcall asks after 6 s of silence, Nacos after 20 s.
func (p *Player) detected(step Step, got answer) (bool, error) {
	const question = "ClientDetectionRequest"
	if got.typ != question || step.Type == question {
		return false, nil
	}
	return true, p.acknowledge(standardAck(step.Conn, got.typ), got)
}

// standardAck is a step whose acknowledgement is that of every client.
func standardAck(conn, request string) Step {
	return Step{Conn: conn, Ack: map[string]any{
		"type": replyType(request),
		"body": map[string]any{"resultCode": 200, "errorCode": 0, "requestId": "${requestId}", "success": true},
	}}
}

func replyType(request string) string {
	const suffix = "Request"
	if len(request) > len(suffix) && request[len(request)-len(suffix):] == suffix {
		return request[:len(request)-len(suffix)] + "Response"
	}
	return request
}

// closed waits until the server ended the stream, and its transport if that was
// recorded too.
func (p *Player) closed(ctx context.Context, step Step) error {
	c, err := p.conn(step.Conn)
	if err != nil {
		return err
	}
	if c.stream == nil {
		return errors.New("the connection has no stream")
	}
	timer := time.NewTimer(p.patience(step))
	defer timer.Stop()
	select {
	case <-c.ended:
	case <-timer.C:
		return fmt.Errorf("the stream is still open after %v", p.patience(step))
	case <-ctx.Done():
		return ctx.Err()
	}
	if !step.TransportClosed {
		if step.StreamError == "EOF" && !errors.Is(c.endErr, io.EOF) {
			return fmt.Errorf("the stream ended with %w, want a proper end", c.endErr)
		}
		return nil
	}
	select {
	case <-c.current().over:
		return nil
	case <-timer.C:
		return errors.New("the transport is still open")
	case <-ctx.Done():
		return ctx.Err()
	}
}
