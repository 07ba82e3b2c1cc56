package integration

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Benchmarks of three real processes. Run them with
//
//	make bench-cluster
//
// They report what they measured, and fail only when something did not arrive.

// BenchmarkCluster_Propagation measures the time from a registration at one node,
// before it is sent, to the push at a subscriber of another one.
func BenchmarkCluster_Propagation(b *testing.B) {
	for _, x := range []struct {
		name   string
		rate   int
		frozen bool
	}{
		{name: "at rest"},
		{name: "besides 1,000 changes per s", rate: 1000},
		{name: "besides 1,000 changes per s, the third node frozen", rate: 1000, frozen: true},
	} {
		b.Run(x.name, func(b *testing.B) {
			c := StartCluster(b, 3)
			if x.frozen {
				c.Nodes[2].Pause(b)
			}
			stop := churn(b, c.Nodes[0], x.rate)
			defer stop()
			sub := Connect(b, c.Nodes[1].GRPCAddr())
			client := Connect(b, c.Nodes[0].GRPCAddr())
			service := Service{Name: "watched"}
			sub.Subscribe(b, service, "")
			sub.NextPush(b, 5*time.Second)
			var times []time.Duration
			for n := range max(b.N, 200) {
				<-time.After(250 * time.Millisecond) // the service is quiet again
				ip := fmt.Sprintf("10.1.%d.%d", n>>8, n&255)
				began := time.Now()
				client.Register(b, service, Instance(ip, 80)).OK(b)
				sub.PushUntil(b, 5*time.Second, func(s ServiceInfo) bool {
					_, ok := s.Host(ip + ":80")
					return ok
				})
				times = append(times, time.Since(began))
			}
			report(b, times)
		})
	}
}

func report(b *testing.B, times []time.Duration) {
	b.Helper()
	slices.Sort(times)
	ms := func(q float64) float64 { return float64(times[int(q*float64(len(times)-1))].Microseconds()) / 1000 }
	b.ReportMetric(0, "ns/op")
	b.ReportMetric(ms(0.5), "p50-ms")
	b.ReportMetric(ms(0.99), "p99-ms")
	b.ReportMetric(ms(1), "max-ms")
}

// churn changes instances of 100 services at a rate until stop is called.
func churn(tb testing.TB, node *Node, rate int) (stop func()) {
	tb.Helper()
	if rate == 0 {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	const clients = 10
	for k := range clients {
		conn := Connect(tb, node.GRPCAddr())
		wg.Go(func() {
			ticker := time.NewTicker(time.Second * clients / time.Duration(rate))
			defer ticker.Stop()
			for n := 0; ; n++ {
				select {
				case <-done:
					return
				case <-ticker.C:
				}
				instance := Instance(fmt.Sprintf("10.2.%d.%d", k, n%10), 80, Fields{"metadata": Fields{"n": strconv.Itoa(n)}})
				_, _ = conn.TryRegister(Service{Name: fmt.Sprintf("churn-%d", n%10)}, instance)
			}
		})
	}
	return func() {
		close(done)
		wg.Wait()
	}
}

// BenchmarkCluster_Large holds 100,000 instances on three nodes in network
// namespaces: the join of a node that has nothing, what an idle node costs, and what
// 1,000 changes per second cost.
func BenchmarkCluster_Large(b *testing.B) {
	network := StartNetwork(b)
	c := StartCluster(b, 3, network.On())
	c.Nodes[2].Stop(b)
	const services, each = 100, 1000
	for k := range services {
		batch := make([]Fields, each)
		for n := range batch {
			batch[n] = Instance(fmt.Sprintf("10.%d.%d.%d", k, n>>8, n&255), 80)
		}
		Connect(b, c.Nodes[k%2].GRPCAddr()).Batch(b, Service{Name: "large-" + strconv.Itoa(k)}, batch...).OK(b)
	}
	began := time.Now()
	require.NoError(b, c.Nodes[2].Start())
	b.ReportMetric(time.Since(began).Seconds(), "join-s")
	states, err := c.Nodes[2].States()
	require.NoError(b, err)
	for _, s := range states {
		if s.Self {
			require.Equal(b, services*each, s.Instances)
		}
	}
	b.ReportMetric(0, "ns/op")
	<-time.After(15 * time.Second) // what the start left behind
	measure := func(name string, d time.Duration) {
		before := usage(b, c.Nodes)
		<-time.After(d)
		for k, after := range usage(b, c.Nodes) {
			cpu := (after.cpu - before[k].cpu).Seconds() / d.Seconds() * 100
			b.Logf("%s, node n%d: %.1f %% of a core, %d bytes/s sent, %d MB",
				name, k+1, cpu, (after.sent-before[k].sent)/int(d.Seconds()), after.rss>>20)
		}
	}
	measure("idle", 30*time.Second)
	stop := churn(b, c.Nodes[0], 1000)
	measure("1,000 changes/s at n1", 30*time.Second)
	stop()
}

// used is what a process has used so far.
type used struct {
	cpu  time.Duration
	sent int // bytes
	rss  int // bytes
}

func usage(tb testing.TB, nodes []*Node) []used {
	tb.Helper()
	out := make([]used, len(nodes))
	for k, node := range nodes {
		cmd, _, err := node.process()
		require.NoError(tb, err)
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", cmd.Process.Pid))
		require.NoError(tb, err)
		fields := strings.Fields(string(stat)[strings.LastIndexByte(string(stat), ')')+1:])
		number := func(n int) int {
			v, err := strconv.Atoi(fields[n-3])
			require.NoError(tb, err)
			return v
		}
		out[k].cpu = time.Duration(number(14)+number(15)) * 10 * time.Millisecond // ticks of 1/100 s
		out[k].rss = number(24) * os.Getpagesize()
		dev, err := exec.CommandContext(context.Background(), "ip", "netns", "exec", node.netns, "cat", "/proc/net/dev").Output()
		require.NoError(tb, err)
		for line := range strings.Lines(string(dev)) {
			if name, counts, ok := strings.Cut(strings.TrimSpace(line), ":"); ok && name == "eth0" {
				out[k].sent, err = strconv.Atoi(strings.Fields(counts)[8])
				require.NoError(tb, err)
			}
		}
	}
	return out
}
