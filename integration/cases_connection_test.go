package integration

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/integration/wire"
)

// Section J of the cases: the life of a gRPC connection.
//
// Left: C133 (several nodes; that an identical registration pushes nothing is
// TestO2a).

// runChild is a client in a process of its own: it registers an instance and
// waits to be killed.
func runChild(job string) int {
	addr, service, _ := strings.Cut(job, " ")
	c, err := TryConnect(addr)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	reply, err := c.TryRegister(Service{Name: service}, Instance("10.0.0.1", 8080))
	if err != nil || reply.ErrorCode != 0 {
		fmt.Fprintln(os.Stderr, err, reply.Body)
		return 1
	}
	<-c.Ended()
	return 0
}

func TestC129_ClientKilled(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, live := range map[string]func(t *testing.T, s Service) (die func()){
		"process killed": func(t *testing.T, s Service) func() {
			t.Helper()
			cmd := exec.CommandContext(context.Background(), os.Args[0])
			cmd.Env = append(os.Environ(), childEnv+"="+n.GRPCAddr()+" "+s.Name)
			cmd.Stderr = os.Stderr
			cmd.SysProcAttr = childAttr()
			require.NoError(t, cmd.Start())
			return func() {
				require.NoError(t, cmd.Process.Kill())
				_ = cmd.Wait()
			}
		},
		"reset": func(t *testing.T, s Service) func() {
			t.Helper()
			c := Connect(t, n.GRPCAddr())
			c.Register(t, s, Instance("10.0.0.1", 8080)).OK(t)
			return func() { c.Abort(t) }
		},
		"closed": func(t *testing.T, s Service) func() {
			t.Helper()
			c := Connect(t, n.GRPCAddr())
			c.Batch(t, s, Instance("10.0.0.1", 8080)).OK(t)
			return c.Close
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			within(t, secs(2), func() time.Duration {
				s := newService(t)
				sub := subscriber(t, n, s, "")
				die := live(t, s)
				sub.PushUntil(t, secs(30), has("10.0.0.1:8080"))
				began := time.Now()
				die()
				sub.PushUntil(t, soon, has())
				eventually(t, soon, hostsAre(t, n, s))
				return time.Since(began)
			})
		})
	}
}

// provider is a client that registers one instance in each of its services and
// does so again over a new connection whenever it lost the old one, as SDKs do.
type provider struct {
	addr     string
	services []Service
	port     int
	stop     chan struct{}
	wg       sync.WaitGroup
}

func startProvider(t *testing.T, addr string, services []Service, port int) *provider {
	t.Helper()
	p := &provider{addr: addr, services: services, port: port, stop: make(chan struct{})}
	p.wg.Go(p.run)
	t.Cleanup(func() {
		close(p.stop)
		p.wg.Wait()
	})
	return p
}

func (p *provider) run() {
	for {
		c, err := TryConnect(p.addr)
		if err == nil && p.registerAll(c) == nil {
			select {
			case <-c.Ended():
			case <-p.stop:
				c.Close()
				return
			}
		}
		if c != nil {
			c.Close()
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-p.stop:
			return
		}
	}
}

func (p *provider) registerAll(c *Conn) error {
	for _, s := range p.services {
		reply, err := c.TryRegister(s, Instance("10.0.0.1", p.port))
		if err != nil {
			return err
		}
		if reply.ErrorCode != 0 {
			return fmt.Errorf("register: %s", reply.Body)
		}
	}
	return nil
}

func TestC131_EveryoneComesBackAfterARestart(t *testing.T) {
	t.Parallel()
	const connections, servicesEach = 20, 100
	n := StartNode(t)
	services := make([]Service, servicesEach)
	for i := range services {
		services[i] = Service{Name: "svc-" + strconv.Itoa(i)}
	}
	for i := range connections {
		startProvider(t, n.GRPCAddr(), services, 1000+i)
	}
	complete := func() error {
		total := 0
		for _, s := range services {
			info := list(t, n, s.Params())
			seen := map[string]bool{}
			for _, h := range info.Hosts {
				if seen[h.Addr()] {
					return fmt.Errorf("%s twice in %s", h.Addr(), s.Name)
				}
				seen[h.Addr()] = true
			}
			total += len(info.Hosts)
		}
		if total != connections*servicesEach {
			return fmt.Errorf("%d instances", total)
		}
		return nil
	}
	eventually(t, secs(30), complete)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for round := range 3 {
		pause(t, time.Duration(random.IntN(1500))*time.Millisecond)
		if random.IntN(2) == 0 || round == 2 {
			n.Kill(t)
		} else {
			n.Stop(t)
		}
		n.Restart(t)
	}
	eventually(t, secs(15), complete)
	always(t, secs(3), complete)
}

func TestC135_GarbageOnTheGRPCPort(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	c := Connect(t, n.GRPCAddr())
	c.Register(t, s, Instance("10.0.0.1", 8080)).OK(t)
	c.Subscribe(t, s, "")
	c.NextPush(t, soon)

	json := []byte(`{"headers":{},"module":"internal"}`)
	for name, garbage := range map[string]struct {
		message any
		codes   []int
	}{
		"unknown type":        {&wire.Payload{Type: "NoSuchRequest", Body: json}, []int{302}},
		"no type":             {&wire.Payload{Body: json}, []int{302}},
		"no metadata":         {&wire.Payload{NoMetadata: true, Body: json}, []int{302}},
		"nothing at all":      {[]byte{}, []int{302}},
		"a response":          {&wire.Payload{Type: "InstanceResponse", Body: json}, []int{302}},
		"a full class name":   {&wire.Payload{Type: "com.alibaba.nacos.api.naming.remote.request.InstanceRequest", Body: json}, []int{302}},
		"a peer's request":    {&wire.Payload{Type: "DistroDataRequest", Body: json}, []int{302, 502}},
		"empty body":          {&wire.Payload{Type: "InstanceRequest"}, []int{502}},
		"no JSON":             {&wire.Payload{Type: "InstanceRequest", Body: []byte("{bad")}, []int{502}},
		"binary":              {&wire.Payload{Type: "InstanceRequest", Body: []byte{0, 1, 2, 0xff, 0xfe}}, []int{502}},
		"null":                {&wire.Payload{Type: "InstanceRequest", Body: []byte("null")}, []int{502}},
		"an array":            {&wire.Payload{Type: "InstanceRequest", Body: []byte("[]")}, []int{502}},
		"a text":              {&wire.Payload{Type: "SubscribeServiceRequest", Body: []byte(`"x"`)}, []int{502}},
		"a number":            {&wire.Payload{Type: "BatchInstanceRequest", Body: []byte("7")}, []int{502}},
		"an empty object":     {&wire.Payload{Type: "InstanceRequest", Body: []byte("{}")}, []int{400}},
		"empty batch object":  {&wire.Payload{Type: "BatchInstanceRequest", Body: []byte("{}")}, []int{400}},
		"wrong field types":   {&wire.Payload{Type: "InstanceRequest", Body: []byte(`{"serviceName":{},"groupName":[],"instance":7}`)}, []int{400, 502}},
		"null instance":       {&wire.Payload{Type: "InstanceRequest", Body: []byte(`{"serviceName":"x","groupName":"g","namespace":"n","type":"registerInstance","instance":null}`)}, []int{400}},
		"null in a batch":     {&wire.Payload{Type: "BatchInstanceRequest", Body: []byte(`{"serviceName":"x","groupName":"g","namespace":"n","type":"batchRegisterInstance","instances":[null]}`)}, []int{400, 502}},
		"deeply nested":       {&wire.Payload{Type: "InstanceRequest", Body: []byte(strings.Repeat(`{"a":`, 9000) + "1" + strings.Repeat("}", 9000))}, []int{400, 502}},
		"no JSON health":      {&wire.Payload{Type: "HealthCheckRequest", Body: []byte("{bad")}, []int{502}},
		"invalid UTF-8 names": {&wire.Payload{Type: "InstanceRequest", Body: []byte("{\"serviceName\":\"\xff\xfe\",\"groupName\":\"g\",\"namespace\":\"n\",\"type\":\"registerInstance\",\"instance\":{\"ip\":\"10.0.0.1\",\"port\":1}}")}, []int{400, 502}},
	} {
		for range 100 {
			reply, err := c.Invoke(garbage.message)
			require.NoError(t, err, name)
			require.Contains(t, garbage.codes, reply.ErrorCode, "%s: %s %s", name, reply.Type, reply.Body)
			require.NotEqual(t, 200, reply.ResultCode, "%s: %s", name, reply.Body)
			require.False(t, reply.Success, name)
		}
		require.True(t, c.Alive(), name)
	}

	// Bytes that are no protobuf at all fail the call, not the connection.
	for range 100 {
		_, err := c.Invoke([]byte{0xff, 0xff, 0xff, 0xff, 0x7f, 1, 2, 3})
		if err == nil {
			continue // an answer that says so is fine, too
		}
		require.True(t, c.Alive())
	}

	// On the stream nothing is answered and nothing breaks.
	for range 100 {
		c.Send(t, "NoSuchRequest", "{bad")
		c.Send(t, "", "")
		c.Send(t, "NotifySubscriberResponse", "{bad")
		c.Send(t, "NotifySubscriberResponse", Fields{"requestId": "no number", "resultCode": "x"})
		c.Send(t, "ConnectionSetupRequest", "{bad")
	}
	require.Equal(t, []string{"10.0.0.1:8080"}, c.List(t, s, "", false).Addrs())
	register(t, n, s.at("10.0.0.2", 8080))
	c.PushUntil(t, soon, has("10.0.0.1:8080", "10.0.0.2:8080"))

	// Before the setup everything but the server check is refused with 301, or 302
	// when the type is unknown.
	bare := Dial(t, n.GRPCAddr())
	for range 100 {
		reply, err := bare.Invoke(&wire.Payload{Type: "InstanceRequest", Body: []byte("{bad")})
		require.NoError(t, err)
		require.Equal(t, 301, reply.ErrorCode, reply.Body)
		reply, err = bare.Invoke(&wire.Payload{NoMetadata: true})
		require.NoError(t, err)
		require.Equal(t, 302, reply.ErrorCode, reply.Body)
	}
	require.Zero(t, bare.Call(t, "ServerCheckRequest", Fields{}).ErrorCode)

	// What isn't HTTP/2 is dropped; the port goes on serving.
	for _, text := range []string{"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x00\x01\x02\x03", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\ngarbage", strings.Repeat("A", 100_000)} {
		var dialer net.Dialer
		raw, err := dialer.DialContext(t.Context(), "tcp", n.GRPCAddr())
		require.NoError(t, err)
		_, _ = raw.Write([]byte(text))
		require.NoError(t, raw.Close())
	}
	Connect(t, n.GRPCAddr()).Register(t, s, Instance("10.0.0.3", 8080)).OK(t)
	require.True(t, c.Alive())
	require.Equal(t, []string{"10.0.0.1:8080", "10.0.0.2:8080", "10.0.0.3:8080"}, c.List(t, s, "", false).Addrs())
}
