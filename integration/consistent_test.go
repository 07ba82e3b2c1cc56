package integration

import (
	"fmt"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// consistent are the parameters of a read that shows all acknowledged writes.
func consistent(p Params) Params { return p.With(Params{"consistent": "true"}) }

// Each write is shown at once by a consistent read on the other nodes, in every
// kind of read.
func TestConsistent_ReadsShowWhatOtherNodesTook(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	behind := 0 // plain reads that did not show the write yet
	for n := range 90 {
		at, s := c.Nodes[n%3], Service{Name: fmt.Sprintf("s-%d", n)}
		address := s.at("10.0.0.1", n+1)
		register(t, at, address.With(Params{"ephemeral": "false"}))
		for k, node := range c.Nodes {
			if node == at {
				continue
			}
			if len(list(t, node, s.Params()).Hosts) == 0 {
				behind++
			}
			switch (n/3 + k) % 4 {
			case 0:
				require.Len(t, list(t, node, consistent(s.Params())).Hosts, 1)
			case 1:
				r := node.Do(t, http.MethodGet, v1Instance, consistent(address))
				require.Equal(t, http.StatusOK, r.Status, r.Body)
			case 2:
				r := node.Do(t, http.MethodGet, v2Service, consistent(s.Params()))
				require.Equal(t, http.StatusOK, r.Status, r.Body)
			default:
				out := node.RequireTool(t, "instance", "list", s.Name, "--consistent")
				require.Contains(t, out, "10.0.0.1:"+strconv.Itoa(n+1))
			}
		}
		deregister(t, at, address.With(Params{"ephemeral": "false"}))
		for _, node := range c.Nodes {
			require.Empty(t, list(t, node, consistent(s.Params())).Hosts)
		}
	}
	t.Logf("%d of 180 plain reads were behind", behind)
	require.Contains(t, c.Nodes[2].RequireTool(t, "service", "list", "--consistent"), "s-89")
}

// A leader that was frozen while another one took over does not know yet that it
// leads no more.
func TestConsistent_AFormerLeaderShowsWhatItMissed(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	for n := range 3 {
		former := c.await(t)
		others := c.followers(t)
		s := Service{Name: fmt.Sprintf("s-%d", n)}
		former.Pause(t)
		eventually(t, secs(10), func() error {
			r, err := others[0].TryRaw(http.MethodPost, v1Instance, s.at("10.0.0.1", 80).With(Params{"ephemeral": "false"}).encode(), "")
			if err == nil && r.Status != http.StatusOK {
				err = fmt.Errorf("status %d: %s", r.Status, r.Body)
			}
			return err
		})
		former.Resume(t)
		require.Len(t, list(t, former, consistent(s.Params())).Hosts, 1)
	}
}

func TestConsistent_WithoutALeader(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	s := Service{Name: "kept"}
	register(t, c.Nodes[0], s.at("10.0.0.1", 80).With(Params{"ephemeral": "false"}))
	c.settle(t)
	for _, node := range c.Nodes[1:] {
		node.Kill(t)
	}
	for range 2 { // at once, and when the node knows
		began := time.Now()
		r := c.Nodes[0].Do(t, http.MethodGet, v1List, consistent(s.Params()))
		require.Equal(t, http.StatusServiceUnavailable, r.Status, r.Body)
		require.Contains(t, r.Body, "no leader")
		require.Less(t, time.Since(began), secs(6))
		t.Logf("refused after %v", time.Since(began))
		requireHosts(t, c.Nodes[0], s, "10.0.0.1:80")
	}
	_, stderr, code := c.Nodes[0].Tool(t, "instance", "list", "kept", "--consistent")
	require.Equal(t, 1, code)
	require.Contains(t, stderr, "no leader")
}

// What a write depends on was acknowledged by another node a moment ago.
func TestConsistent_WritesKnowWhatOtherNodesTook(t *testing.T) {
	t.Parallel()
	c := StartCluster(t, 3)
	for n := range 60 {
		at, next := c.Nodes[n%3], c.Nodes[(n+1+n/3%2)%3]
		s := Service{Name: fmt.Sprintf("s-%d", n)}
		address := persistent(s.at("10.0.0.1", 80))
		register(t, at, address)
		update(t, next, address.With(Params{"weight": "3"}))
		register(t, at, persistent(s.at("10.0.0.2", 80)))
		deregister(t, next, persistent(s.at("10.0.0.2", 80)))
		require.Equal(t, []string{"10.0.0.1:80"}, list(t, at, consistent(s.Params())).Addrs(), "a deregistration was answered with ok and did nothing")
		settings := Service{Name: fmt.Sprintf("t-%d", n)}
		createService(t, at, settings, nil)
		require.Equal(t, http.StatusBadRequest, next.Do(t, http.MethodPost, v1Service, settings.Params()).Status, "it exists")
		requireOK(t, next.Do(t, http.MethodPut, v1Service, settings.Params().With(Params{"protectThreshold": "0.5"})))
		requireOK(t, at.Do(t, http.MethodDelete, v1Service, settings.Params()))
		createService(t, next, settings, Params{"protectThreshold": "0.7"})
		unchecked := Params{"clusterName": "DEFAULT", "checkPort": "80", "useInstancePort4Check": "true", "healthChecker": `{"type":"NONE"}`}
		requireOK(t, at.Do(t, http.MethodPut, v1Cluster, settings.Params().With(unchecked)))
		var shown struct {
			Threshold float64 `json:"protectThreshold"`
		}
		next.Do(t, http.MethodGet, v1Service, consistent(settings.Params())).JSON(t, &shown)
		require.InDelta(t, 0.7, shown.Threshold, 0)
		requireOK(t, next.Do(t, http.MethodPut, v1Cluster, s.Params().With(unchecked)))
		requireOK(t, at.Do(t, http.MethodPut, v1Health, s.at("10.0.0.1", 80).With(Params{"healthy": "false"})))
	}
}
