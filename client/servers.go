package client

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

// defaultPort is the main port of a server that is named without one (C14).
const defaultPort = 8848

// server is one address of the registry.
type server struct {
	scheme string // http or https
	host   string // as it was given: a name, or an address
	ip     string // to connect to; empty until it is resolved
	port   int    // main port
	path   string // of the HTTP API, such as /nacos
}

// String returns host:port, with the address where the host is a name.
func (s server) String() string {
	if s.ip != "" && s.ip != s.host {
		return net.JoinHostPort(s.host, strconv.Itoa(s.port)) + " (" + s.ip + ")"
	}
	return net.JoinHostPort(s.host, strconv.Itoa(s.port))
}

// address returns ip:port at a distance from the main port.
func (s server) address(offset int) string {
	return net.JoinHostPort(cmp.Or(s.ip, s.host), strconv.Itoa(s.port+offset))
}

// at tells whether this is the server at an address and main port.
func (s server) at(ip string, port int) bool {
	return s.port == port && (s.ip == ip || s.host == ip)
}

// parseServer reads an entry of Config.Servers.
func parseServer(text string) (server, error) {
	bad := func(rule string) (server, error) {
		return server{}, fmt.Errorf("field Servers has %q: %s; write host:port or http://host:port/nacos", text, rule)
	}
	s := server{scheme: "http", path: "/nacos"}
	rest := strings.TrimSpace(text)
	if strings.Contains(rest, "://") {
		u, err := url.Parse(rest)
		if err != nil {
			return bad("it is no URL")
		}
		if s.scheme = u.Scheme; s.scheme != "http" && s.scheme != "https" {
			return bad("its scheme must be http or https")
		}
		if p := strings.TrimSuffix(u.Path, "/"); p != "" {
			s.path = p
		}
		rest = u.Host
	}
	if rest == "" || strings.ContainsAny(rest, " \t/,;") {
		return bad("there must be one host")
	}
	host, port, err := net.SplitHostPort(rest)
	if err != nil { // without a port
		host, port = strings.Trim(rest, "[]"), strconv.Itoa(defaultPort)
		if _, err := netip.ParseAddr(host); err != nil && strings.Contains(host, ":") {
			return bad("its port cannot be read")
		}
	}
	if s.port, err = strconv.Atoi(port); err != nil || s.port < 1 || s.port > 65535 {
		return bad("its port must be from 1 to 65535")
	}
	if host == "" {
		return bad("the host is missing")
	}
	if _, err := netip.ParseAddr(host); err == nil {
		s.ip = host
	}
	s.host = host
	return s, nil
}

// tour goes round the servers: a random one first, then one after the other, with
// names resolved anew at the begin of each round. It belongs to one goroutine.
type tour struct {
	given  []server
	lookup func(ctx context.Context, host string) ([]string, error)
	left   []server // of this round
	first  bool
}

func newTour(cfg Config) (*tour, error) {
	t := &tour{lookup: cfg.Lookup, first: true}
	if t.lookup == nil {
		t.lookup = new(net.Resolver).LookupHost
	}
	for _, text := range cfg.Servers {
		s, err := parseServer(text)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(t.given, s) {
			t.given = append(t.given, s)
		}
	}
	return t, nil
}

// next returns the next server to try; round tells that a round has begun, which is
// when a pause is due. It blocks while names are resolved.
func (t *tour) next(ctx context.Context) (s server, round bool, err error) {
	if len(t.left) == 0 {
		round = !t.first
		if t.left, err = t.resolve(ctx); err != nil {
			return server{}, true, err
		}
		if t.first { // later rounds go on in order
			n := rand.IntN(len(t.left))
			t.left = slices.Concat(t.left[n:], t.left[:n])
			t.first = false
		}
	}
	s, t.left = t.left[0], t.left[1:]
	return s, round, nil
}

// after makes the servers that follow s the next ones: a client that leaves a server
// goes on from there.
func (t *tour) after(ctx context.Context, s server) {
	all, err := t.resolve(ctx)
	if err != nil {
		return
	}
	if n := slices.Index(all, s); n >= 0 {
		t.left = slices.Concat(all[n+1:], all[:n+1])
	}
}

// find returns the server at an address and main port, if it is one of those given.
func (t *tour) find(ctx context.Context, ip string, port int) (server, bool) {
	all, _ := t.resolve(ctx)
	n := slices.IndexFunc(all, func(s server) bool { return s.at(ip, port) })
	if n < 0 {
		return server{}, false
	}
	return all[n], true
}

// resolve returns all addresses of all servers, each once. An error means that there
// is none.
func (t *tour) resolve(ctx context.Context) ([]server, error) {
	var all []server
	var errs []error
	for _, s := range t.given {
		if s.ip != "" {
			all = append(all, s)
			continue
		}
		ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
		ips, err := t.lookup(ctx, s.host)
		cancel()
		if err != nil {
			errs = append(errs, fmt.Errorf("resolve %s: %w", s.host, err))
			continue
		}
		slices.Sort(ips)
		for _, ip := range slices.Compact(ips) {
			s.ip = ip
			all = append(all, s)
		}
	}
	if len(all) == 0 {
		return nil, errors.Join(append(errs, errors.New("no server has an address"))...)
	}
	return all, nil
}

// lookupTimeout bounds the resolution of one name.
const lookupTimeout = 3 * time.Second

// backoff is a pause that grows, with a random part so that many clients do not
// come back together.
type backoff struct{ min, max, last time.Duration }

// next returns a pause between half of and the full length, which doubles each time.
func (b *backoff) next() time.Duration {
	b.last = min(max(2*b.last, b.min), b.max)
	return b.last/2 + rand.N(b.last/2+1)
}

func (b *backoff) reset() { b.last = 0 }
