package integration

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// What the process itself promises.

func TestNode_StopIsPromptAndClean(t *testing.T) {
	t.Parallel()
	n := StartNode(t)
	s := Service{Name: "svc-a"}
	c := Connect(t, n.GRPCAddr())
	c.Register(t, s, Instance("10.0.0.1", 1)).OK(t)
	c.Subscribe(t, s, "")
	register(t, n, s.at("10.0.0.2", 2))
	require.Less(t, n.Stop(t), secs(12), "within the shutdown timeout")
	c.AwaitEnd(t, soon)
	require.False(t, n.Running())
	n.Restart(t)
	require.Empty(t, n.Trouble())

	// Idle, it ends at once.
	require.Less(t, n.Stop(t), secs(5))
}

func TestNode_ReadyAndLive(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for _, path := range []string{"/livez", "/readyz"} {
		require.Equal(t, http.StatusOK, n.Do(t, http.MethodGet, path, nil).Status, path)
	}
	var metrics struct {
		Status string `json:"status"`
	}
	n.Do(t, http.MethodGet, "/nacos/v1/ns/operator/metrics", nil).JSON(t, &metrics)
	require.Equal(t, "UP", metrics.Status, "what 1.x SDKs ask for")
}

// A node that was paused must not take its own absence for its clients' silence.
func TestNode_PausedNodeRemovesNothing(t *testing.T) {
	t.Parallel()
	n := StartNode(t)
	overHTTP, overGRPC := Service{Name: "over-http"}, Service{Name: "over-grpc"}
	c := Connect(t, n.GRPCAddr())
	c.Register(t, overGRPC, Instance("10.0.0.2", 2)).OK(t)
	register(t, n, overHTTP.at("10.0.0.1", 1).With(Params{"metadata": beatTimes(t, secs(1), secs(3), secs(5))}))
	beating(t, n, 500*time.Millisecond, overHTTP.at("10.0.0.1", 1))
	subs := []*Conn{subscriber(t, n, overHTTP, ""), subscriber(t, n, overGRPC, "")}

	n.Pause(t)
	pause(t, secs(15)) // past every timeout: beats, and silent connections
	n.Resume(t)
	for _, sub := range subs {
		for _, info := range sub.Collect(t, secs(6)) {
			require.True(t, onlyHost(t, info).Healthy)
		}
		require.True(t, sub.Alive())
	}
	require.True(t, c.Alive())
	requireHosts(t, n, overHTTP, "10.0.0.1:1")
	requireHosts(t, n, overGRPC, "10.0.0.2:2")
}
