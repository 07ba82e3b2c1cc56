package compat

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// listener is a TCP or HTTP port of the test, for health checks.
type listener struct {
	ln       net.Listener
	server   *http.Server
	requests chan *http.Request
	workers  sync.WaitGroup
}

func (l *listener) close() {
	if l.server != nil {
		_ = l.server.Close()
	}
	_ = l.ln.Close()
	l.workers.Wait()
}

// bindListener opens a port; a listener that was closed gets its old port again.
func (p *Player) bindListener(name string) (*listener, error) {
	port, ok := p.names.Value("port:" + name)
	if !ok {
		port = "0"
	}
	ln, err := new(net.ListenConfig).Listen(context.Background(), "tcp4", "127.0.0.1:"+port)
	if err != nil {
		return nil, err
	}
	if local, ok := ln.Addr().(*net.TCPAddr); ok {
		p.names.Bind("port:"+name, strconv.Itoa(local.Port))
	}
	l := &listener{ln: ln, requests: make(chan *http.Request, 64)}
	p.listeners[name] = l
	return l, nil
}

func (p *Player) listen(name string) error {
	l, err := p.bindListener(name)
	if err != nil {
		return err
	}
	l.workers.Go(func() {
		for {
			accepted, err := l.ln.Accept()
			if err != nil {
				return
			}
			_ = accepted.Close()
		}
	})
	return nil
}

func (p *Player) listenHTTP(name string, status int) error {
	l, err := p.bindListener(name)
	if err != nil {
		return err
	}
	l.server = &http.Server{
		ReadHeaderTimeout: 10 * time.Second,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			select {
			case l.requests <- r.Clone(context.Background()):
			default: // probes that nobody waits for
			}
			w.WriteHeader(status)
		}),
	}
	l.workers.Go(func() { _ = l.server.Serve(l.ln) })
	return nil
}

func (p *Player) unlisten(name string) error {
	l, ok := p.listeners[name]
	if !ok {
		return fmt.Errorf("listener %s is not open", name)
	}
	l.close()
	delete(p.listeners, name)
	return nil
}

// probe waits for a health check that asks as recorded. Probes from before the
// checker was set may look otherwise and are passed over.
func (p *Player) probe(ctx context.Context, step Step) error {
	l, ok := p.listeners[step.Listener]
	if !ok {
		return fmt.Errorf("listener %s is not open", step.Listener)
	}
	patience := max(p.patience(step), time.Duration(30*p.pace*float64(time.Second)))
	timer := time.NewTimer(patience)
	defer timer.Stop()
	last := errors.New("no probe came")
	for {
		select {
		case r := <-l.requests:
			if last = p.probeError(step, r); last == nil {
				return nil
			}
		case <-timer.C:
			return fmt.Errorf("within %v: %w", patience, last)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (p *Player) probeError(step Step, r *http.Request) error {
	var found []string
	check := func(what, want, got string) {
		if wanted, ok := p.names.MatchText(want, got); !ok {
			found = append(found, fmt.Sprintf("%s: want %s, got %s", what, wanted, orAbsent(got)))
		}
	}
	check("method", step.Method, r.Method)
	check("path", step.Path, r.URL.RequestURI())
	check("host", step.Host, r.Host)
	for _, name := range slices.Sorted(maps.Keys(step.Headers)) {
		if name == "Connection" {
			// The two versions write it differently; it says what is the default.
			continue
		}
		check(name, step.Headers[name], r.Header.Get(name))
	}
	if found != nil {
		return errors.New("a probe that differs: " + strings.Join(found, "; "))
	}
	return nil
}
