package bench

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/server"
)

// TestMain is also the process of the bare limit.
func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == LimitCommand {
		if err := ServeLimit(os.Args[2], os.Stdin, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// node starts a node on ports that are free.
func node(t *testing.T) (addr string) {
	t.Helper()
	cfg := server.DefaultConfig()
	cfg.DataDir, cfg.Bind = t.TempDir(), "127.0.0.1"
	var n *server.Node
	require.Eventually(t, func() bool {
		cfg.Port = 12000 + rand.IntN(8000)
		var err error
		n, err = server.New(cfg, "test", slog.New(slog.DiscardHandler))
		return err == nil
	}, 5*time.Second, time.Millisecond)
	t.Cleanup(func() { require.NoError(t, n.Close()) })
	require.NoError(t, n.Start())
	require.Eventually(t, func() bool { return n.Ready() == nil }, 10*time.Second, 10*time.Millisecond)
	return n.HTTPAddr()
}

func short(addr, scenario string) Config {
	cfg := DefaultConfig()
	cfg.Servers, cfg.Scenario, cfg.Connections, cfg.Workers = []string{addr}, scenario, 4, 2
	cfg.Subscribers, cfg.Slow = 5, 1
	cfg.Duration, cfg.WarmUp = 500*time.Millisecond, 50*time.Millisecond
	cfg.PID = os.Getpid()
	return cfg
}

// run takes the first of three runs that made enough calls, or the last: the machine may
// stand still for longer than a run takes.
func run(t *testing.T, cfg Config, calls int64) *Result {
	t.Helper()
	for again := 2; ; again-- {
		r, err := Run(t.Context(), cfg)
		if again == 0 {
			require.NoError(t, err)
			require.GreaterOrEqual(t, fewest(r), calls)
		}
		if err == nil && fewest(r) >= calls {
			return r
		}
	}
}

// fewest returns how many calls were made of the one of the servers that took the fewest.
func fewest(r *Result) int64 {
	n := r.Calls
	for _, o := range append(r.Beside, r.Limit) {
		if o != nil {
			n = min(n, o.Calls)
		}
	}
	return n
}

func TestRun_EveryScenario(t *testing.T) {
	addr := node(t)
	for _, s := range Scenarios() {
		t.Run(s.Name, func(t *testing.T) {
			cfg := short(addr, s.Name)
			if !s.limit { // one change each second
				cfg.Duration = 1500 * time.Millisecond
			}
			r := run(t, cfg, 1)
			require.Zero(t, r.Errors, r.Error)
			require.Positive(t, r.Rate)
			for _, x := range r.Times {
				require.Positive(t, x.P50, x.What)
				require.LessOrEqual(t, x.P50, x.P99, x.What)
				require.LessOrEqual(t, x.P99, x.Max*1.01, x.What)
			}
		})
	}
}

func TestRun_Limits(t *testing.T) {
	addr := node(t)
	for _, name := range []string{"query", "list", "persistent", "grpc-persistent"} {
		cfg := short(addr, name)
		cfg.Limits = true
		r := run(t, cfg, 1)
		require.Zero(t, r.Limit.Errors, r.Limit.Error)
		require.InDelta(t, r.Rate/r.Limit.Rate, r.Ratio, 1e-9)
		require.Equal(t, strings.Contains(name, "persistent"), r.Syncs > 0)
	}
}

func TestRun_Beside(t *testing.T) {
	addr, other := node(t), node(t)
	for _, name := range []string{"query", "fill"} {
		cfg := short(addr, name)
		cfg.Beside = []string{other}
		cfg.Limits = name == "query"
		r := run(t, cfg, 1)
		require.Equal(t, []string{addr}, r.Servers)
		require.Len(t, r.Beside, 1)
		beside := r.Beside[0]
		require.Equal(t, []string{other}, beside.Servers)
		require.Zero(t, beside.RSS, "its process is not known")
		if name == "query" {
			require.InDelta(t, r.Rate/beside.Rate, beside.Ratio, 1e-9)
			require.InDelta(t, r.Rate/r.Limit.Rate, r.Ratio, 1e-9)
		}
	}
	cfg := short(addr, "query")
	cfg.Beside = []string{"127.0.0.1:1"}
	_, err := Run(t.Context(), cfg)
	require.ErrorContains(t, err, "connect to 127.0.0.1:1")
	cfg.Scenario = "fill" // one after the other: what was measured is not lost
	r, err := Run(t.Context(), cfg)
	require.NoError(t, err)
	require.Positive(t, r.Calls)
	require.Contains(t, r.Beside[0].Error, "connect to 127.0.0.1:1")
}

// JSON has no infinity: a server beside that answers nothing still gives a result.
func TestRatio(t *testing.T) {
	t.Parallel()
	require.InDelta(t, 0.5, ratio(100, 200), 1e-9)
	require.Zero(t, ratio(100, 0))
}

// Every instance and subscription that fill is asked for is there while it lasts.
func TestRun_FillsTheServer(t *testing.T) {
	addr := node(t)
	cfg := short(addr, "fill")
	cfg.Instances, cfg.Subscribers, cfg.Duration = 105, 30, 2*time.Second
	var result *Result
	done := make(chan error, 1)
	go func() {
		var err error
		result, err = Run(t.Context(), cfg)
		done <- err
	}()
	metric := func(name string) (value string) {
		r, err := http.Get("http://" + addr + "/metrics") //nolint:noctx // in a test
		require.NoError(t, err)
		defer func() { _ = r.Body.Close() }()
		lines := bufio.NewScanner(r.Body)
		for lines.Scan() {
			if text, found := strings.CutPrefix(lines.Text(), name+" "); found {
				return text
			}
		}
		return ""
	}
	require.Eventually(t, func() bool {
		return metric("rollcall_instances") == "105" && metric("rollcall_subscriptions") == "30"
	}, 10*time.Second, 20*time.Millisecond)
	require.NoError(t, <-done)
	require.EqualValues(t, 11, result.Calls, "the last service has five")
	require.Positive(t, result.RSS)
}

func TestRun_Rate(t *testing.T) {
	cfg := short(node(t), "query")
	cfg.Rate = 100
	require.LessOrEqual(t, run(t, cfg, 1).Calls, int64(60), "no more than asked for")
}

func TestRun_PropagationAtARate(t *testing.T) {
	cfg := short(node(t), "propagation")
	cfg.Rate, cfg.Duration = 50, 2*time.Second
	r := run(t, cfg, 75)
	require.Zero(t, r.Errors, r.Error)
	require.LessOrEqual(t, r.Calls, int64(125))
	require.Equal(t, "call to push", r.Times[0].What)
	require.Less(t, r.Times[0].P50, 50.0, "each change is pushed by itself")
}

func TestRun_ErrorsAreCounted(t *testing.T) {
	cfg := short(node(t), "http-register")
	taken := url.Values{"serviceName": {"bench-true-1"}, "ip": {"10.0.0.1"}, "port": {"80"}, "ephemeral": {"false"}}
	r, err := http.PostForm("http://"+cfg.Servers[0]+instancePath, taken) //nolint:noctx // in a test
	require.NoError(t, err)
	require.NoError(t, r.Body.Close())
	require.Equal(t, http.StatusOK, r.StatusCode)
	result := run(t, cfg, 1)
	require.Positive(t, result.Errors, "the service has persistent instances")
	require.Contains(t, result.Error, "is persistent service")
}

func TestRun_NobodyThere(t *testing.T) {
	for _, name := range []string{"query", "list", "fanout"} {
		_, err := Run(t.Context(), short("127.0.0.1:1", name))
		require.ErrorContains(t, err, "connection refused")
		require.Less(t, len(err.Error()), 500, "one of many equal errors")
	}
}

func TestRun_EndsWithItsContext(t *testing.T) {
	cfg := short(node(t), "query")
	cfg.Duration = time.Minute
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	_, err := Run(ctx, cfg)
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func TestConfig_RefusesByName(t *testing.T) {
	t.Parallel()
	for want, change := range map[string]func(*Config){
		`scenario is "x": it must be one of register, `: func(c *Config) { c.Scenario = "x" },
		"connections is 0":    func(c *Config) { c.Connections = 0 },
		"workers is 0":        func(c *Config) { c.Workers = 0 },
		"instances is 0":      func(c *Config) { c.Instances = 0 },
		"subscribers is 0":    func(c *Config) { c.Subscribers = 0 },
		"rate is -1":          func(c *Config) { c.Rate = -1 },
		"duration is 0s":      func(c *Config) { c.Duration = 0 },
		"warm-up is -1ns":     func(c *Config) { c.WarmUp = -1 },
		"servers are missing": func(c *Config) { c.Servers = nil },
		"no bare limit for":   func(c *Config) { c.Scenario, c.Limits = "fanout", true },
		"rate is 5: scenario": func(c *Config) { c.Scenario, c.Rate = "fanout", 5 },
	} {
		cfg := DefaultConfig()
		change(&cfg)
		require.ErrorContains(t, cfg.Validate(), want)
	}
	require.NoError(t, DefaultConfig().Validate())
	_, err := Run(t.Context(), Config{})
	require.Equal(t, 7, strings.Count(err.Error(), "\n")+1, err.Error())
}
