package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"time"

	"rollcall/server/wire"
)

// auth holds the token that goes with each request.
type auth struct {
	username, password string
	web                *web
	turn               chan struct{} // capacity 1: one login at a time

	mu    sync.Mutex
	value string
	renew time.Time // when the token is to be replaced; zero: never
	tried time.Time
}

// loginGap is the shortest time between two logins that a refused token causes.
const loginGap = 5 * time.Second

func newAuth(cfg Config, w *web) *auth {
	return &auth{username: cfg.Username, password: cfg.Password, value: cfg.Token, web: w, turn: make(chan struct{}, 1)}
}

// token returns the token; empty if there is none.
func (a *auth) token() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.value
}

// login gets a token if there is none or it is about to expire.
func (a *auth) login(ctx context.Context, s server) error {
	if !a.due() {
		return nil
	}
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-a.turn }()
	if !a.due() {
		return nil
	}
	return a.ask(ctx, s)
}

func (a *auth) due() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.username != "" && (a.value == "" || !a.renew.IsZero() && time.Now().After(a.renew))
}

// again replaces a token that the server refused, unless that was done a moment ago. An
// error means that the old one is still there.
func (a *auth) again(ctx context.Context, s server) error {
	if a.username == "" {
		return errors.New("there is no user to log in")
	}
	a.mu.Lock()
	recent := time.Since(a.tried) < loginGap
	a.mu.Unlock()
	if recent {
		return errors.New("the last login was a moment ago")
	}
	select {
	case a.turn <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	defer func() { <-a.turn }()
	return a.ask(ctx, s)
}

// ask logs in. Servers of 3.x may offer their own path alone.
func (a *auth) ask(ctx context.Context, s server) error {
	a.mu.Lock()
	a.tried = time.Now()
	a.mu.Unlock()
	form := url.Values{"username": {a.username}, "password": {a.password}}
	var answer struct {
		Token wire.Str `json:"accessToken"`
		TTL   wire.Int `json:"tokenTtl"` // seconds
	}
	err := a.web.call(ctx, s, http.MethodPost, "/v1/auth/users/login", form, "", &answer)
	var refusal *ServerError
	if errors.As(err, &refusal) && (refusal.Code == http.StatusNotFound || refusal.Code == http.StatusGone || refusal.Code == http.StatusNotImplemented) {
		err = a.web.call(ctx, s, http.MethodPost, "/v3/auth/user/login", form, "", &answer)
	}
	if err == nil && answer.Token == "" {
		err = errors.New("the answer has no accessToken")
	}
	if err != nil {
		return fmt.Errorf("log in as %s: %w", a.username, err)
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.value, a.renew = string(answer.Token), time.Time{}
	if ttl := time.Duration(answer.TTL) * time.Second; ttl > 0 {
		a.renew = time.Now().Add(ttl - ttl/10)
	}
	return nil
}
