//go:build unix

package server_test

import (
	"bytes"
	"fmt"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
	"rollcall/server"
	"rollcall/server/wire"
)

// pushTimeout bounds the wait for pushes.
const pushTimeout = 2 * time.Minute

// subscription is the request that subscribes to a service.
func subscription(b *testing.B, service string) []byte {
	b.Helper()
	return encode(b, wire.TypeSubscribeService, fmt.Sprintf(`{"headers":{},"namespace":"public","serviceName":%q,"groupName":"DEFAULT_GROUP","subscribe":true,"clusters":"","module":"naming"}`, service))
}

// receive takes pushes from the stream until it ends, acknowledges them as SDKs
// do if ack is set, and tells the number that the instance in each of them
// carries, -1 for none.
func (s *session) receive(ack bool, pushed func(n int)) {
	var message []byte
	for {
		var p wire.Payload
		if err := s.stream.RecvMsg(&message); err != nil || p.Unmarshal(message) != nil {
			return
		}
		body := p.JSON()
		pushed(numberIn(body))
		if !ack {
			continue
		}
		_, rest, _ := bytes.Cut(body, []byte(`"requestId":"`))
		seq, _, _ := bytes.Cut(rest, []byte(`"`))
		answer := &wire.Payload{Type: "NotifySubscriberResponse", Body: [][]byte{
			[]byte(`{"resultCode":200,"errorCode":0,"requestId":"`), seq, []byte(`","success":true}`),
		}}
		data, err := wire.Codec{}.Marshal(answer)
		if err != nil || s.stream.SendMsg(data.Materialize()) != nil {
			return
		}
	}
}

// numberIn returns the number in the metadata of a push's first instance.
func numberIn(body []byte) int {
	_, rest, found := bytes.Cut(body, []byte(`"metadata":{"n":"`))
	text, _, _ := bytes.Cut(rest, []byte(`"`))
	n, err := strconv.Atoi(string(text))
	if !found || err != nil {
		return -1
	}
	return n
}

// publisher registers an instance that carries a number.
type publisher struct {
	send   op
	digits []byte
}

// number is what publishers put into the instances, to be overwritten.
const number = "00000000"

func newPublisher(b *testing.B, s *session, service, ip string) *publisher {
	b.Helper()
	request := encode(b, wire.TypeInstance, registration(service, ip, number, 1))
	return &publisher{
		send:   call(b, s.conn, registered(b), request),
		digits: request[bytes.LastIndex(request, []byte(number)):][:len(number)],
	}
}

func (p *publisher) publish(n int) error {
	putNumber(p.digits, n)
	return p.send()
}

// spread is one change on its way to all subscribers.
type spread struct {
	begin time.Time
	left  atomic.Int64
	done  chan struct{}
	took  []time.Duration // by subscriber; 0: not yet
}

func newSpread(subscribers int) *spread {
	s := &spread{begin: time.Now(), done: make(chan struct{}), took: make([]time.Duration, subscribers)}
	s.left.Store(int64(subscribers))
	return s
}

// arrived notes that a subscriber has the change, and returns false if it had it
// before. Each subscriber calls it from one goroutine.
func (s *spread) arrived(subscriber int) bool {
	if s.took[subscriber] != 0 {
		return false
	}
	s.took[subscriber] = time.Since(s.begin)
	if s.left.Add(-1) == 0 {
		close(s.done)
	}
	return true
}

func (s *spread) wait() error {
	timeout := time.NewTimer(pushTimeout)
	defer timeout.Stop()
	select {
	case <-s.done:
		return nil
	case <-timeout.C:
		return fmt.Errorf("%d of %d subscribers have no push after %v", s.left.Load(), len(s.took), pushTimeout)
	}
}

// audience are subscribers of the same services. Change n is one of service n
// modulo the number of services.
type audience struct {
	address  string
	services int
	size     int // number of subscribers
	change   func(n int) error
	current  atomic.Pointer[changes]
	next     int // number of the next change
	wg       sync.WaitGroup
}

// changes are those that are on their way, from number first on.
type changes struct {
	first   int
	spreads []atomic.Pointer[spread] // nil: not made yet
}

// join starts to receive on the sessions, until the benchmark ends.
func (a *audience) join(b *testing.B, sessions []*session, ack bool) {
	b.Helper()
	a.size = len(sessions)
	for k, s := range sessions {
		a.wg.Go(func() { s.receive(ack, func(n int) { a.arrived(k, n) }) })
	}
	b.Cleanup(a.wg.Wait)
}

// arrived notes that a subscriber was told of change n, and so of those of the same
// service before it.
func (a *audience) arrived(subscriber, n int) {
	c := a.current.Load()
	for ; n >= c.first && n < c.first+len(c.spreads); n -= a.services {
		if s := c.spreads[n-c.first].Load(); s == nil || !s.arrived(subscriber) {
			return
		}
	}
}

// expect announces the next n changes.
func (a *audience) expect(n int) *changes {
	c := &changes{first: a.next, spreads: make([]atomic.Pointer[spread], n)}
	a.next += n
	a.current.Store(c)
	return c
}

// begin starts the clock of change first+k.
func (a *audience) begin(c *changes, k int) *spread {
	s := newSpread(a.size)
	c.spreads[k].Store(s)
	return s
}

// spreadNext makes the next change and waits until everybody has it.
func (a *audience) spreadNext() (*spread, error) {
	c := a.expect(1)
	s := a.begin(c, 0)
	if err := a.change(c.first); err != nil {
		return nil, err
	}
	return s, s.wait()
}

// newAudience starts a node with so many services, each with one instance, and no
// subscribers yet.
func newAudience(b *testing.B, services int, adjust func(*server.Config)) *audience {
	b.Helper()
	const publishing = 8 // connections
	node := startNode(b, adjust)
	conns := openAll(b, node.GRPCAddr(), publishing)
	publishers := make([]*publisher, services)
	for k := range publishers {
		publishers[k] = newPublisher(b, conns[k%publishing], fmt.Sprintf("pushed-%d", k), hostIP(k))
		require.NoError(b, publishers[k].publish(k))
	}
	return &audience{
		address: node.GRPCAddr(), services: services,
		change: func(n int) error { return publishers[n%services].publish(n) },
	}
}

// subscribe makes the sessions subscribers of all services and waits for the push
// that follows each subscription.
func (a *audience) subscribe(b *testing.B, sessions []*session) {
	b.Helper()
	first := a.expect(a.services)
	a.size = len(sessions)
	for k := range a.services {
		a.begin(first, k)
	}
	a.join(b, sessions, true)
	for k := range a.services {
		request := subscription(b, fmt.Sprintf("pushed-%d", k))
		require.NoError(b, each(len(sessions), func(n int) error {
			var answer []byte
			return sessions[n].conn.Invoke(b.Context(), unaryMethod, request, &answer)
		}))
	}
	for k := range a.services {
		require.NoError(b, first.spreads[k].Load().wait())
	}
}

// bareAudience opens n streams of a bare server, to which each change writes the
// bytes of a push.
func bareAudience(b *testing.B, n int) *audience {
	b.Helper()
	bare := startBare(b, nil)
	i := naming.NewInstance(hostIP(0), 8080)
	i.Metadata = map[string]string{"n": number}
	svc := naming.ServiceKey{Namespace: naming.DefaultNamespace, Group: naming.DefaultGroup, Name: "pushed-0"}
	info := naming.Filter{}.View(&naming.Service{Key: svc, Instances: []*naming.Instance{&i}})
	info.LastRefTimeMs = time.Now().UnixMilli()
	data, err := wire.Codec{}.Marshal(wire.NotifySubscriber("127.0.0.1", uint64(time.Now().UnixMicro()), info))
	require.NoError(b, err)
	message := data.Materialize()
	a := &audience{address: bare.address, services: 1, change: func(n int) error {
		message := bytes.Clone(message)
		putNumber(message[bytes.LastIndex(message, []byte(number)):][:len(number)], n)
		bare.broadcast(message)
		return nil
	}}
	a.current.Store(new(changes))
	a.join(b, openAll(b, bare.address, n), false)
	return a
}

// BenchmarkPushFanOut changes one service that many connections subscribe to, and
// beside that writes the same bytes to as many streams of the bare server. The
// node's pushes are acknowledged, the bare ones are not. One operation is one
// change at all subscribers; the times are medians of those to the first, the
// middle, the 99 % and the last subscriber.
func BenchmarkPushFanOut(b *testing.B) {
	for _, subscribers := range []int{100, 1000, 10_000} {
		b.Run(fmt.Sprintf("subscribers=%d", subscribers), func(b *testing.B) {
			var node cost
			b.Run("rollcall", func(b *testing.B) {
				n := affordable(b, subscribers)
				// Each change here waits for the one before: none may be merged with it.
				a := newAudience(b, 1, func(c *server.Config) { c.Push.Quiet = time.Millisecond })
				a.subscribe(b, openAll(b, a.address, n))
				node = fanOut(b, a)
			})
			b.Run("bare", func(b *testing.B) {
				bare := fanOut(b, bareAudience(b, affordable(b, subscribers)))
				if node.wall > 0 {
					b.ReportMetric(node.wall.Seconds()/bare.wall.Seconds(), "ratio")
					b.ReportMetric(node.cpu.Seconds()/bare.cpu.Seconds(), "cpu-ratio")
				}
			})
		})
	}
}

// fanOut measures changes one after the other. It returns the medians of the time
// to the last subscriber and of the processor time until then.
func fanOut(b *testing.B, a *audience) cost {
	b.Helper()
	b.ReportAllocs()
	var first, half, most, last, cpu []time.Duration
	runtime.GC() // of what opening the connections left
	for b.Loop() {
		before := processorTime(b)
		s, err := a.spreadNext()
		require.NoError(b, err)
		b.StopTimer()
		cpu = append(cpu, processorTime(b)-before)
		took := slices.Sorted(slices.Values(s.took))
		first = append(first, took[0])
		half = append(half, took[a.size/2])
		most = append(most, took[a.size*99/100])
		last = append(last, took[a.size-1])
		b.StartTimer()
	}
	b.ReportMetric(milliseconds(quantile(first, 0.5)), "first-ms")
	b.ReportMetric(milliseconds(quantile(half, 0.5)), "half-ms")
	b.ReportMetric(milliseconds(quantile(most, 0.5)), "p99-ms")
	b.ReportMetric(milliseconds(quantile(last, 0.5)), "last-ms")
	b.ReportMetric(float64(a.size), "conns")
	return cost{quantile(last, 0.5), quantile(cpu, 0.5)}
}

// quantile returns a quantile of the times, which it sorts.
func quantile(times []time.Duration, q float64) time.Duration {
	slices.Sort(times)
	return times[int(q*float64(len(times)-1))]
}

func milliseconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }

// affordable returns how many connections this process can have both ends of.
func affordable(b *testing.B, conns int) int {
	b.Helper()
	const reserve = 100
	need := uint64(2*conns + reserve)
	var limit syscall.Rlimit
	require.NoError(b, syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit))
	if limit.Cur >= need || syscall.Setrlimit(syscall.RLIMIT_NOFILE, &syscall.Rlimit{Cur: need, Max: max(limit.Max, need)}) == nil {
		return conns
	}
	fewer := int(limit.Cur-reserve) / 2
	b.Logf("ONLY %d CONNECTIONS INSTEAD OF %d: each needs two open files in this process, whose limit of %d files cannot be raised", fewer, conns, limit.Cur)
	return fewer
}

// BenchmarkPushLatency measures the time from the start of a registration to the
// push at each of ten subscribers, over 1,000 services: one change at a time, and
// 1,000 changes a second.
func BenchmarkPushLatency(b *testing.B) {
	a := newAudience(b, 1000, nil)
	a.subscribe(b, openAll(b, a.address, 10))
	b.Run("rest", func(b *testing.B) {
		b.ReportAllocs()
		var took []time.Duration
		for b.Loop() {
			s, err := a.spreadNext()
			require.NoError(b, err)
			took = append(took, s.took...)
		}
		b.ReportMetric(milliseconds(quantile(took, 0.5)), "p50-ms")
		b.ReportMetric(milliseconds(quantile(took, 0.99)), "p99-ms")
	})
	b.Run("changes=1000/s", func(b *testing.B) {
		b.ReportAllocs()
		c := a.expect(b.N)
		numbers := make(chan int)
		var wg sync.WaitGroup
		for range 16 {
			wg.Go(func() {
				for n := range numbers {
					if err := a.change(n); err != nil {
						b.Error(err)
					}
				}
			})
		}
		timer := time.NewTimer(0)
		defer timer.Stop()
		begin := time.Now()
		for k := range b.N {
			<-timer.C
			timer.Reset(time.Until(begin.Add(time.Duration(k+1) * time.Millisecond)))
			a.begin(c, k)
			numbers <- c.first + k
		}
		close(numbers)
		rate := float64(b.N) / time.Since(begin).Seconds()
		wg.Wait()
		var took []time.Duration
		for k := range c.spreads {
			s := c.spreads[k].Load()
			require.NoError(b, s.wait())
			took = append(took, s.took...)
		}
		b.ReportMetric(rate, "changes/s")
		b.ReportMetric(milliseconds(quantile(took, 0.5)), "p50-ms")
		b.ReportMetric(milliseconds(quantile(took, 0.99)), "p99-ms")
	})
}
