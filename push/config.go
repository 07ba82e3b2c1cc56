package push

import (
	"fmt"
	"time"
)

// Config are the times of the engine.
type Config struct {
	// Quiet is how long a service must have been without a change for the next
	// change to be pushed at once, and for merged changes to be pushed.
	Quiet time.Duration `koanf:"quiet" doc:"a service without a change for this long is pushed at once when it changes; changes that follow closer are merged until it is quiet again"`
	// Max is how long changes are merged at the longest.
	Max time.Duration `koanf:"max" doc:"changes are merged for this long at the longest"`
	// First is when a new subscription gets its first push, changes since then
	// included. Earlier ones could overtake the answer to the subscription within
	// the client: one SDK calls back in either order.
	First time.Duration `koanf:"first" doc:"a new subscription gets a first push after this time, changes since then included; earlier ones could overtake the answer within the client"`
	// Ack is how long a gRPC client may take to acknowledge a push.
	Ack time.Duration `koanf:"ack" doc:"a push over gRPC that is not acknowledged within this time has failed"`
	// Retry is when a failed push over gRPC is repeated, with the newest data.
	Retry time.Duration `koanf:"retry" doc:"a failed push over gRPC is repeated after this time, with the newest data"`
	// UDPAck is how long a UDP client may take to acknowledge a datagram, before
	// it is sent once more, and after that before it counts as failed.
	UDPAck time.Duration `koanf:"udp-ack" doc:"a datagram that is not acknowledged within this time is sent once more"`
	// UDPLease is how long a UDP client stays subscribed without asking again.
	UDPLease time.Duration `koanf:"udp-lease" doc:"a UDP subscriber that has not asked for a list for this long is dropped"`
}

// DefaultConfig returns the times of design and protocol.
func DefaultConfig() Config {
	return Config{
		Quiet: 100 * time.Millisecond, Max: 500 * time.Millisecond, First: 30 * time.Millisecond,
		Ack: 5 * time.Second, Retry: time.Second,
		UDPAck: 10 * time.Second, UDPLease: 30 * time.Second,
	}
}

// Validate refuses times that are not positive, and a maximum below the quiet time.
func (c Config) Validate() error {
	for _, f := range []struct {
		name string
		d    time.Duration
	}{
		{"quiet", c.Quiet},
		{"max", c.Max},
		{"first", c.First},
		{"ack", c.Ack},
		{"retry", c.Retry},
		{"udp-ack", c.UDPAck},
		{"udp-lease", c.UDPLease},
	} {
		if f.d <= 0 {
			return fmt.Errorf("push.%s is %v: it must be above zero", f.name, f.d)
		}
	}
	if c.Max < c.Quiet {
		return fmt.Errorf("push.max is %v, below push.quiet %v: changes must be merged at least as long as the quiet time", c.Max, c.Quiet)
	}
	return nil
}
