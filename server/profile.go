package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"
)

// profiles serves the profiles of this process under /debug/pprof/, for go tool pprof.
type profiles struct {
	listener net.Listener
	http     *http.Server
	wg       sync.WaitGroup
}

func newProfiles(address string) (*profiles, error) {
	l, err := new(net.ListenConfig).Listen(context.Background(), "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen for profiles: %w; choose another --pprof", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	return &profiles{listener: l, http: &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}}, nil
}

func (p *profiles) start() error {
	p.wg.Go(func() { _ = p.http.Serve(p.listener) }) // ends with close
	return nil
}

func (p *profiles) close() error {
	err := errors.Join(p.http.Close(), ignoreClosed(p.listener.Close()))
	p.wg.Wait()
	return err
}
