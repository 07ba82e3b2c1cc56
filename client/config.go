package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"rollcall/naming"
)

// Mode is the protocol that a client speaks.
type Mode uint8

// The modes.
const (
	// ModeGRPC is the protocol of servers from 2.0 on: one connection that carries
	// calls and pushes.
	ModeGRPC Mode = iota
	// ModeHTTP is the protocol of 1.x servers: calls, heartbeats, polling, and
	// pushes over UDP.
	ModeHTTP
)

// Config of a [Client]. Start from [DefaultConfig].
type Config struct {
	// Servers are the registry's servers: host, host:port or a URL
	// http://host:port/context. The port is the main port, 8848 if it is left out; a
	// host name stands for all its addresses, and is resolved anew whenever the
	// client looks for a server. https means TLS for HTTP calls.
	Servers []string
	// Mode is the protocol; ModeGRPC unless set.
	Mode Mode
	// Namespace is the id of the one namespace that the client works in.
	Namespace string
	// App names the application to operators of the server; may be empty.
	App string

	// Username and Password log in at the server; both empty: no login.
	Username, Password string
	// Token is sent with each request in place of a login; empty: none.
	Token string
	// TLS is used for gRPC, and for HTTP with servers that are given as https; nil:
	// plain text for gRPC, the system's certificates for https.
	TLS *tls.Config

	// Logger gets what happens; nil: nothing is logged.
	Logger *slog.Logger
	// Metrics gets the client's metrics until Close; nil: none. Clients that share a
	// registerer need labels of their own, see prometheus.WrapRegistererWith.
	Metrics prometheus.Registerer
	// Lookup resolves a host name to addresses; nil: the system's resolver.
	Lookup func(ctx context.Context, host string) ([]string, error)

	// CacheDir is the folder of the disk cache and of failover files, laid out as
	// other SDKs do (semantics.md 12.3, 12.4); empty: neither.
	CacheDir string
	// LoadCacheAtStart serves what is in the disk cache until a server has answered.
	LoadCacheAtStart bool
	// EmptyProtection keeps the list that is there when a server sends one without
	// any instance that could be selected.
	EmptyProtection bool

	// GRPCOffset is the distance of the server's gRPC port from its main port.
	GRPCOffset int
	// ConnectWait is how long New waits for the first connection.
	ConnectWait time.Duration
	// ConnectTimeout bounds one attempt to connect to one server.
	ConnectTimeout time.Duration
	// CallTimeout bounds one request to a server.
	CallTimeout time.Duration
	// HealthInterval is how long a connection may be idle before the client asks
	// whether it is alive, and HealthTimeout how long the answer may take: together
	// the time after which a silent server is left.
	HealthInterval, HealthTimeout time.Duration
	// BackoffMin and BackoffMax are the shortest and longest pause between two
	// attempts; each pause is a random part of up to twice the former one.
	BackoffMin, BackoffMax time.Duration
	// Hold is how long after a reconnect what was listed stays listed, whatever the
	// server says: instances are missing there while their providers reconnect, like
	// this client. Of what is missing after that the server is asked once more. 0: not
	// at all. Java providers of 2.x take up to 3 s to come back.
	Hold time.Duration
	// CloseTimeout bounds Close.
	CloseTimeout time.Duration
	// Calls is how many requests to the server are under way at once while wishes
	// are replayed.
	Calls int
	// Callbacks is how many callbacks of subscriptions run at once; one that blocks
	// keeps its place.
	Callbacks int

	// BeatInterval is the time between heartbeats (ModeHTTP) until the server or the
	// instance says otherwise, PollInterval the shortest time between two polls of a
	// service.
	BeatInterval, PollInterval time.Duration
	// UDPPushes asks for pushes over UDP (ModeHTTP).
	UDPPushes bool
	// FailoverInterval is how often the switch file of failover is looked at.
	FailoverInterval time.Duration
}

// DefaultConfig returns the settings of a client of one server on this machine.
func DefaultConfig() Config {
	return Config{
		Servers: []string{"127.0.0.1:8848"}, Namespace: naming.DefaultNamespace,
		GRPCOffset:  1000,
		ConnectWait: 3 * time.Second, ConnectTimeout: 3 * time.Second, CallTimeout: 3 * time.Second,
		HealthInterval: 5 * time.Second, HealthTimeout: 3 * time.Second,
		BackoffMin: 50 * time.Millisecond, BackoffMax: 2 * time.Second,
		Hold: 2 * time.Second, CloseTimeout: 5 * time.Second,
		Calls: 16, Callbacks: 4,
		BeatInterval: naming.DefaultBeatInterval, PollInterval: time.Second, UDPPushes: true,
		FailoverInterval: 5 * time.Second,
	}
}

// Validate refuses values that cannot work, each by its name.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Servers) == 0 {
		bad("Servers is empty: name at least one server as host:port")
	}
	for _, s := range c.Servers {
		if _, err := parseServer(s); err != nil {
			errs = append(errs, err)
		}
	}
	if c.Mode > ModeHTTP {
		bad("Mode is %d: it must be ModeGRPC or ModeHTTP", c.Mode)
	}
	if err := naming.CheckNamespace(c.Namespace); err != nil {
		bad("Namespace is %q: %w; use a namespace id, such as public", c.Namespace, err)
	}
	if (c.Username == "") != (c.Password == "") {
		bad("Username and Password must be given together; leave both empty for no login")
	}
	if c.Username != "" && c.Token != "" {
		bad("Token and Username are both given: choose one")
	}
	if c.GRPCOffset < -65535 || c.GRPCOffset > 65535 {
		bad("GRPCOffset is %d: it must be the distance of two ports, as 1000 is", c.GRPCOffset)
	}
	for _, d := range []struct {
		name string
		d    time.Duration
	}{
		{"ConnectTimeout", c.ConnectTimeout},
		{"CallTimeout", c.CallTimeout},
		{"HealthInterval", c.HealthInterval},
		{"HealthTimeout", c.HealthTimeout},
		{"BackoffMin", c.BackoffMin},
		{"BackoffMax", c.BackoffMax},
		{"CloseTimeout", c.CloseTimeout},
		{"BeatInterval", c.BeatInterval},
		{"PollInterval", c.PollInterval},
		{"FailoverInterval", c.FailoverInterval},
	} {
		if d.d <= 0 {
			bad("%s is %v: it must be above zero; see DefaultConfig", d.name, d.d)
		}
	}
	if c.BackoffMax < c.BackoffMin {
		bad("BackoffMax is %v, below BackoffMin %v: pauses grow from the one to the other", c.BackoffMax, c.BackoffMin)
	}
	if c.Hold < 0 || c.ConnectWait < 0 {
		bad("Hold is %v and ConnectWait is %v: they must not be negative", c.Hold, c.ConnectWait)
	}
	if c.Calls < 1 || c.Calls > 1024 || c.Callbacks < 1 || c.Callbacks > 1024 {
		bad("Calls is %d and Callbacks is %d: they must be from 1 to 1024", c.Calls, c.Callbacks)
	}
	if c.LoadCacheAtStart && c.CacheDir == "" {
		bad("LoadCacheAtStart needs CacheDir: name the folder that holds the cache")
	}
	return errors.Join(errs...)
}
