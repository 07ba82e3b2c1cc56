package integration

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// act is one operation of a client on one service, which holds one persistent
// instance at most. Its metadata says the value; 0 is no instance.
type act struct {
	service string
	read    bool
	value   int // to be written
}

// history is what clients did to a cluster and saw of it.
type history struct {
	began  time.Time
	values atomic.Int64

	mu  sync.Mutex
	all []porcupine.Operation
}

// clients act on services of a name through all nodes, two of them through each, until
// stop is closed. They begin anew with other services at each turn, so that what is
// unknown of one does not have to be guessed for ever.
func (h *history) clients(t *testing.T, c *Cluster, turn *atomic.Int64, stop <-chan struct{}) (wait func()) {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	var wg sync.WaitGroup
	for client := range 2 * len(c.Nodes) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(seed, uint64(client)))
			node := c.Nodes[client%len(c.Nodes)]
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Duration(random.IntN(20)) * time.Millisecond):
				}
				a := act{service: fmt.Sprintf("history-%d-%d", turn.Load(), random.IntN(4)), read: random.IntN(2) == 0}
				if !a.read && random.IntN(4) > 0 { // every fourth write is a deregistration
					a.value = int(h.values.Add(1))
				}
				h.do(client, node, a)
			}
		})
	}
	return wg.Wait
}

// goesOn waits for so many further operations.
func (h *history) goesOn(t *testing.T, operations int) {
	t.Helper()
	count := func() int {
		h.mu.Lock()
		defer h.mu.Unlock()
		return len(h.all)
	}
	until := count() + operations
	eventually(t, secs(30), func() error {
		if n := count(); n < until {
			return fmt.Errorf("%d of %d operations", n, until)
		}
		return nil
	})
}

// do makes one operation and notes it. What surely had no effect is not noted.
func (h *history) do(client int, n *Node, a act) {
	query, method := "serviceName="+a.service, http.MethodGet
	path := v1List
	if a.read {
		query += "&consistent=true"
	} else {
		path, method = v1Instance, http.MethodPost
		if a.value == 0 {
			method = http.MethodDelete
		}
		query += "&ip=10.0.0.1&port=80&ephemeral=false&metadata=value%3D" + strconv.Itoa(a.value)
	}
	call := time.Since(h.began)
	r, err := n.TryRaw(method, path, query, "")
	o := porcupine.Operation{ClientId: client, Input: a, Call: int64(call), Return: int64(time.Since(h.began))}
	switch {
	case err == nil && r.Status == http.StatusOK && a.read:
		o.Output = valueOf(r.Body)
	case err == nil && r.Status == http.StatusOK:
	case a.read, errors.Is(err, syscall.ECONNREFUSED), err == nil && !strings.Contains(r.Body, "outcome unknown"):
		return
	default: // it may take effect at any time, or never
		o.Return = math.MaxInt64
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.all = append(h.all, o)
}

// valueOf reads the value from a list.
func valueOf(body string) int {
	_, rest, ok := strings.Cut(body, `"metadata":{"value":"`)
	if !ok {
		return 0
	}
	text, _, _ := strings.Cut(rest, `"`)
	value, err := strconv.Atoi(text)
	if err != nil {
		return -1
	}
	return value
}

// check requires that the history could have happened in one order, each operation at
// one moment between its call and its return.
func (h *history) check(t *testing.T) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	unknown := 0
	for _, o := range h.all {
		if o.Return == math.MaxInt64 {
			unknown++
		}
	}
	began := time.Now()
	result, info := porcupine.CheckOperationsVerbose(registers(), h.all, 2*time.Minute)
	t.Logf("%d operations, %d of unknown outcome: %s, checked in %v", len(h.all), unknown, result, time.Since(began))
	if result != porcupine.Ok {
		path := t.TempDir() + "-history.html"
		if err := porcupine.VisualizePath(registers(), info, path); err == nil {
			t.Logf("the history is drawn in %s", path)
		}
		t.Errorf("the history is not linearizable: %s", result)
	}
}

// registers is one register for each service.
func registers() porcupine.Model {
	return porcupine.Model{
		Partition: func(all []porcupine.Operation) [][]porcupine.Operation {
			parts := make(map[string][]porcupine.Operation)
			for _, o := range all {
				a, _ := o.Input.(act)
				parts[a.service] = append(parts[a.service], o)
			}
			var out [][]porcupine.Operation
			for _, part := range parts {
				out = append(out, part)
			}
			return out
		},
		Init: func() any { return 0 },
		Step: func(state, input, output any) (bool, any) {
			a, _ := input.(act)
			if a.read {
				return state == output, state
			}
			return true, a.value
		},
		DescribeOperation: func(input, output any) string {
			if a, _ := input.(act); !a.read {
				return fmt.Sprint("write ", a.value)
			}
			return fmt.Sprint("read ", output)
		},
	}
}

// A leader that is cut off from the others, or that hears them and is not heard, must
// neither acknowledge a write that is lost nor show old data to whoever asks for all.
func TestPersistent_HistoriesUnderPartitions(t *testing.T) {
	t.Parallel()
	network := StartNetwork(t)
	c := StartCluster(t, 3, network.On())
	h := &history{began: time.Now()}
	var turn atomic.Int64
	stop := make(chan struct{})
	waitClients := h.clients(t, c, &turn, stop)
	turns := 3
	if fullSize() {
		turns = 12
	}
	for n := range turns {
		turn.Add(1)
		leader := c.await(t)
		others := c.followers(t)
		if n%2 == 0 {
			network.Isolate(t, leader, c.Nodes...)
		} else {
			for _, other := range others {
				network.CutOneWay(t, leader, other)
			}
		}
		eventually(t, secs(20), func() error { // the others go on
			r, err := others[0].TryRaw(http.MethodPost, v1Instance, persistent(Service{Name: "probe"}.at("10.0.0.1", 80)).encode(), "")
			if err == nil && r.Status != http.StatusOK {
				err = fmt.Errorf("%d %s", r.Status, r.Body)
			}
			return err
		})
		h.goesOn(t, 60)
		r, err := leader.TryRaw(http.MethodGet, v1List, consistent(Params{"serviceName": "probe"}).encode(), "")
		if err == nil && r.Status == http.StatusOK && !strings.Contains(r.Body, "10.0.0.1") {
			t.Errorf("a leader that was cut off shows old data: %s", r.Body)
		}
		network.Heal(t)
		h.goesOn(t, 60)
	}
	close(stop)
	waitClients()
	h.check(t)
	c.settle(t)
}
