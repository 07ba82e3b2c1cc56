package integration

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/naming"
)

// Two clients, one with 200 registrations and one that is subscribed to all of them,
// while real processes are killed, restarted and paused.

const (
	crowdSize = 200
	// backWithin is how long clients may take to have everything back once a server can
	// be reached.
	backWithin = 3 * time.Second
)

// crowd checks that what subscribers are told adds up.
type crowd struct {
	t                  *testing.T
	provider, consumer *client.Client
	services           []naming.ServiceKey

	mu      sync.Mutex
	seen    map[string]map[naming.InstanceKey]bool
	removed int
	faults  []string
}

func crowdHost(n int) naming.Instance { return naming.NewInstance(fmt.Sprintf("10.1.0.%d", n), 80) }

func newClientCrowd(t *testing.T, mode client.Mode, nodes ...*Node) *crowd {
	t.Helper()
	c := &crowd{
		t: t, provider: dialClient(t, mode, "", nodes...), consumer: dialClient(t, mode, "", nodes...),
		seen: make(map[string]map[naming.InstanceKey]bool),
	}
	base := uniqueName(t)
	ctx, cancel := context.WithTimeout(t.Context(), 4*soon)
	defer cancel()
	errs := make([]error, crowdSize)
	var wg sync.WaitGroup
	for n := range crowdSize {
		svc := naming.ServiceKey{Name: fmt.Sprintf("%s-%d", base, n)}
		c.services = append(c.services, svc)
		wg.Go(func() {
			if errs[n] = c.provider.Register(ctx, svc, crowdHost(n)); errs[n] == nil {
				_, errs[n] = c.consumer.Subscribe(ctx, svc, naming.Filter{}, c.take)
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	c.complete(soon, nodes...)
	return c
}

func (c *crowd) take(change client.Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := change.Service.Key.Name
	seen := c.seen[name]
	if seen == nil {
		seen = make(map[naming.InstanceKey]bool)
		c.seen[name] = seen
	}
	for _, i := range change.Added {
		if seen[i.Key()] {
			c.faults = append(c.faults, name+": added twice")
		}
		seen[i.Key()] = true
	}
	for _, i := range change.Removed {
		if !seen[i.Key()] {
			c.faults = append(c.faults, name+": removed twice")
		}
		delete(seen, i.Key())
		c.removed++
	}
	if len(seen) != len(change.Service.Instances) {
		c.faults = append(c.faults, fmt.Sprintf("%s: changes add up to %d, the list has %d", name, len(seen), len(change.Service.Instances)))
	}
}

// complete requires within a time that each service has its one instance, at one of the
// nodes and at the subscriber.
func (c *crowd) complete(d time.Duration, nodes ...*Node) {
	c.t.Helper()
	began := time.Now()
	eventually(c.t, d, func() error {
		err := errIncomplete
		for _, n := range nodes {
			if err = c.at(n); err == nil {
				break
			}
		}
		if err != nil {
			return err
		}
		c.mu.Lock()
		defer c.mu.Unlock()
		for n, svc := range c.services {
			host := crowdHost(n)
			if seen := c.seen[svc.Name]; len(seen) != 1 || !seen[host.Key()] {
				return fmt.Errorf("the subscriber of %s has seen %v", svc.Name, seen)
			}
		}
		return nil
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(c.t, c.faults)
	c.t.Logf("complete after %v", time.Since(began).Round(time.Millisecond))
}

// at asks a node over HTTP for all services.
func (c *crowd) at(n *Node) error {
	if !n.Running() {
		return fmt.Errorf("%w: the node does not run", errIncomplete)
	}
	for k, svc := range c.services {
		r, err := n.TryRaw(http.MethodGet, v1List, url.Values{"serviceName": {svc.Name}}.Encode(), "")
		if err != nil {
			return err
		}
		var info ServiceInfo
		if err := json.Unmarshal([]byte(r.Body), &info); err != nil {
			return err
		}
		host := crowdHost(k)
		if got := info.Addrs(); len(got) != 1 || got[0] != host.Key().Address() {
			return fmt.Errorf("%w: %s has %v", errIncomplete, svc.Name, got)
		}
	}
	return nil
}

// works requires that changes still come through.
func (c *crowd) works() {
	c.t.Helper()
	require.Zero(c.t, c.removals(), "nobody was seen to go")
	ctx, cancel := context.WithTimeout(c.t.Context(), soon)
	defer cancel()
	more := naming.NewInstance("10.2.0.1", 80)
	svc := c.services[crowdSize/2]
	count := func(want int) {
		c.t.Helper()
		eventually(c.t, 2*soon, func() error { // what goes right after a reconnect shows late, see Hold
			c.mu.Lock()
			defer c.mu.Unlock()
			if got := len(c.seen[svc.Name]); got != want {
				return fmt.Errorf("%d instances, want %d", got, want)
			}
			return nil
		})
	}
	require.NoError(c.t, c.consumer.Register(ctx, svc, more))
	count(2)
	require.NoError(c.t, c.consumer.Deregister(ctx, svc, more))
	count(1)
	require.Equal(c.t, 1, c.removals())
}

func (c *crowd) removals() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.removed
}

func eachClientMode(t *testing.T, test func(t *testing.T, mode client.Mode)) {
	t.Helper()
	for name, mode := range map[string]client.Mode{"grpc": client.ModeGRPC, "http": client.ModeHTTP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, mode)
		})
	}
}

func TestClient_KilledAndRestartedServer(t *testing.T) {
	long(t)
	eachClientMode(t, func(t *testing.T, mode client.Mode) {
		n := StartNode(t)
		c := newClientCrowd(t, mode, n)
		for round := range 3 {
			if round == 1 {
				n.Stop(t)
			} else {
				n.Kill(t)
			}
			n.Restart(t)
			c.complete(backWithin, n)
		}
		c.works()
	})
}

func TestClient_PausedServer(t *testing.T) {
	long(t)
	eachClientMode(t, func(t *testing.T, mode client.Mode) {
		n := StartNode(t)
		c := newClientCrowd(t, mode, n)
		n.Pause(t)
		eventually(t, 2*soon, func() error {
			if c.provider.Status() == client.Up || c.consumer.Status() == client.Up {
				return errIncomplete
			}
			return nil
		})
		n.Resume(t)
		c.complete(backWithin, n)
		c.works()
	})
}
