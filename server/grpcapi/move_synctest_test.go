package grpcapi

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func moveTime(c *Config) { c.MoveTime = 10 * time.Second }

func to(ip string) func() (string, int) { return func() (string, int) { return ip, 8848 } }

func TestMove_ClientIsAskedOnce(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		id := c.id(t)
		c.call(t, "InstanceRequest", named("a")+registerA)
		n.registry.told()
		require.Equal(t, 1, n.Present())
		require.Equal(t, 1, n.Staying())
		require.Equal(t, 1, n.Move(5, to("10.0.0.2")))
		pass(0)
		asked := c.messages()
		require.Len(t, asked, 1)
		require.Equal(t, "ConnectResetRequest", asked[0].Type)
		require.JSONEq(t, `{"headers":{},"requestId":"1","serverIp":"10.0.0.2","serverPort":"8848","connectionId":"`+id+`","module":"internal"}`, string(asked[0].JSON()))
		require.Equal(t, 1, n.Present())
		require.Zero(t, n.Staying())
		require.Zero(t, n.Move(5, to("10.0.0.2")))
		require.True(t, n.Reset(id, "10.0.0.2", 8848), "an operator may ask it again")
		pass(0)
		require.Len(t, c.messages(), 1)

		for range 2 {
			pass(5 * time.Second)
			require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"), "who does not go is served")
		}
		require.Equal(t, 1, n.Staying())
		require.Zero(t, n.Move(5, to("10.0.0.2")), "it stayed, and is not asked again")
		require.True(t, n.Reset(id, "", 0), "unless an operator wants it")
		pass(0)
		require.NoError(t, c.Close())
		pass(0)
		require.Equal(t, []string{"ConnectionLost " + id + " [public##g@@a]", "moved " + id}, n.registry.told())
		require.False(t, n.Reset(id, "", 0))
	}, moveTime)
}

func TestMove_LossLongAfterwardsIsALoss(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		id := c.id(t)
		c.call(t, "InstanceRequest", named("a")+registerA)
		n.registry.told()
		require.Equal(t, 1, n.Move(1, to("10.0.0.2")))
		for range 3 { // it stays
			pass(5 * time.Second)
			require.Equal(t, healthy, c.call(t, "HealthCheckRequest", "{}"))
		}
		require.NoError(t, c.Close())
		pass(0)
		require.Equal(t, []string{"ConnectionLost " + id + " [public##g@@a]"}, n.registry.told())
	}, moveTime)
}

func TestMove_SomeOfMany(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		for range 5 {
			n.join(t)
		}
		n.dial(t).call(t, "ServerCheckRequest", "{}") // not set up
		server := n.dial(t)
		server.open(t)
		server.say(t, "ConnectionSetupRequest", `{"labels":{"module":"naming","source":"cluster"}}`)
		pass(0)
		require.Equal(t, 5, n.Present())
		require.Equal(t, 2, n.Move(2, to("10.0.0.2")))
		require.Equal(t, 3, n.Move(9, to("10.0.0.3")))
		require.Zero(t, n.Staying())
	}, moveTime)
}

func TestExpel_WhoDoesNotKnowTheRequest(t *testing.T) {
	bubble(t, func(t *testing.T, n *node) {
		c := n.join(t)
		id := c.id(t)
		c.call(t, "InstanceRequest", named("a")+registerA)
		n.registry.told()
		require.Zero(t, n.Expel(0), "it was not asked")
		n.Move(1, to("10.0.0.2"))
		pass(2 * time.Second)
		require.Zero(t, n.Expel(3*time.Second))
		pass(time.Second)
		require.Equal(t, 1, n.Expel(3*time.Second))
		require.Zero(t, n.Expel(3*time.Second))
		pass(time.Second)
		require.Error(t, c.ended())
		require.Equal(t, []string{"ConnectionLost " + id + " [public##g@@a]", "moved " + id}, n.registry.told())
	}, moveTime)
}
