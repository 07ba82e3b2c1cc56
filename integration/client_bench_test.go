//go:build !race && unix

package integration

import (
	"context"
	"fmt"
	"log/slog"
	"syscall"
	"testing"
	"time"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"
	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/naming"
)

// BenchmarkClientPush10000 changes one of 10,000 instances of a service and waits until a
// subscriber's callback has it: Rollcall's client and nacos-sdk-go v2, one after the
// other, at the same node. Time is that of the whole way, with the 100 ms in which the node
// merges changes; processor time and allocations are those of this process: the
// subscriber's, and some dozens for the change.
func BenchmarkClientPush10000(b *testing.B) {
	const instances = 10000
	n := StartNode(b)
	cfg := client.DefaultConfig()
	cfg.Servers, cfg.CallTimeout, cfg.Logger = []string{n.Addr()}, 20*time.Second, slog.New(slog.DiscardHandler)
	provider, err := client.New(b.Context(), cfg)
	require.NoError(b, err)
	b.Cleanup(func() { _ = provider.Close() })
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	b.Cleanup(cancel)
	svc := naming.ServiceKey{Name: "large"}
	var list []naming.Instance
	for k := range instances {
		i := naming.NewInstance(fmt.Sprintf("10.0.%d.%d", k/250, k%250), 8080)
		i.Metadata = map[string]string{"zone": fmt.Sprintf("z%d", k%3), "version": "1.2.3"}
		list = append(list, i)
	}
	require.NoError(b, provider.RegisterBatch(ctx, svc, list))

	weight := 1.0
	changes := func(b *testing.B, told <-chan float64) {
		b.Helper()
		b.ReportAllocs()
		before := processorTime(b)
		defer func() {
			b.ReportMetric(float64(processorTime(b)-before)/float64(time.Millisecond)/float64(b.N), "cpu-ms/op")
		}()
		for b.Loop() {
			weight++
			require.NoError(b, provider.ChangeInstance(ctx, svc, list[7].Key(), naming.Change{Weight: &weight}))
			for got := range told {
				if got == weight {
					break
				}
			}
		}
	}

	b.Run("rollcall/client", func(b *testing.B) {
		c, err := client.New(ctx, cfg)
		require.NoError(b, err)
		defer func() { _ = c.Close() }()
		told := make(chan float64, 16)
		_, err = c.Subscribe(ctx, svc, naming.Filter{}, func(change client.Change) {
			for _, i := range change.Changed {
				told <- i.Weight
			}
		})
		require.NoError(b, err)
		changes(b, told)
	})

	b.Run("nacos-sdk-go", func(b *testing.B) {
		dir, err := theShared.scratch() // it goes on writing for a moment after it was closed
		require.NoError(b, err)
		c, err := clients.NewNamingClient(vo.NacosClientParam{
			ClientConfig: &constant.ClientConfig{
				TimeoutMs: 20000, NotLoadCacheAtStart: true, UpdateCacheWhenEmpty: true, LogDir: dir, CacheDir: dir, LogLevel: "error",
			},
			ServerConfigs: []constant.ServerConfig{{IpAddr: "127.0.0.1", Port: uint64(n.HTTPPort()), ContextPath: "/nacos"}},
		})
		require.NoError(b, err)
		defer c.CloseClient()
		told := make(chan float64, 16)
		require.NoError(b, c.Subscribe(&vo.SubscribeParam{
			ServiceName: svc.Name,
			SubscribeCallback: func(hosts []model.Instance, err error) {
				for _, i := range hosts {
					if err == nil && i.Ip == list[7].IP {
						told <- i.Weight
					}
				}
			},
		}))
		changes(b, told)
	})
}

// processorTime returns what this process has used of the processors.
func processorTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &u))
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
