package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"runtime"
	"sync"
	"time"
)

// profiles serves the profiles of this process under /debug/pprof/, for go tool pprof.
type profiles struct {
	listener net.Listener
	http     *http.Server
	wg       sync.WaitGroup
	before   int // what part of waits for locks was noted before
}

// lockShare is what part of waits for locks is noted while there are profiles: one of
// so many.
const lockShare = 100

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
	p.before = runtime.SetMutexProfileFraction(lockShare)
	p.wg.Go(func() { _ = p.http.Serve(p.listener) }) // ends with close
	return nil
}

func (p *profiles) close() error {
	err := errors.Join(p.http.Close(), ignoreClosed(p.listener.Close()))
	p.wg.Wait()
	runtime.SetMutexProfileFraction(p.before)
	return err
}
