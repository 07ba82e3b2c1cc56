package integration

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// composeEnv names the published HTTP ports of the containers n1, n2 and so on, with
// commas; scripts/test-compose.sh sets it once they run.
const composeEnv = "ROLLCALL_TEST_COMPOSE"

// containers are the nodes of docker-compose.yml, from outside.
type containers struct {
	nodes []*Node
}

func theContainers(t *testing.T) *containers {
	t.Helper()
	ports := os.Getenv(composeEnv)
	if ports == "" {
		t.Skip("SKIP: no containers run; make test-compose starts them")
	}
	c := new(containers)
	for text := range strings.SplitSeq(ports, ",") {
		port, err := strconv.Atoi(text)
		require.NoError(t, err)
		c.nodes = append(c.nodes, NodeAt("127.0.0.1", port))
	}
	return c
}

func output(t *testing.T, command ...string) string {
	t.Helper()
	cmd := exec.CommandContext(context.Background(), command[0], command[1:]...)
	cmd.Dir = ".."
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%v: %s", command, out)
	return strings.TrimSpace(string(out))
}

// compose runs a command of docker-compose, which ROLLCALL_TEST_COMPOSE_COMMAND names.
func (c *containers) compose(t *testing.T, args ...string) {
	t.Helper()
	output(t, append(strings.Fields(os.Getenv("ROLLCALL_TEST_COMPOSE_COMMAND")), args...)...)
}

// inspect returns a fact of the container of n1, n2 and so on, by a template.
func (c *containers) inspect(t *testing.T, name, format string) string {
	t.Helper()
	id := output(t, "docker", "ps", "-aq", "--filter", "label=com.docker.compose.project="+os.Getenv("COMPOSE_PROJECT_NAME"),
		"--filter", "label=com.docker.compose.service="+name)
	return output(t, "docker", "inspect", "--format", format, id)
}

func (c *containers) address(t *testing.T, name string) string {
	t.Helper()
	return c.inspect(t, name, "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}")
}

func (c *containers) awaitReady(t *testing.T) {
	t.Helper()
	for k, node := range c.nodes {
		require.Eventually(t, node.Ready, time.Minute, 50*time.Millisecond, "n%d is not ready", k+1)
	}
}

// occupy takes these addresses of the containers' network, which are free, and what the
// engine gives before them.
func (c *containers) occupy(t *testing.T, addresses ...string) {
	t.Helper()
	wanted := make(map[string]bool)
	for _, address := range addresses {
		wanted[address] = true
	}
	for n := 0; len(wanted) > 0; n++ {
		require.Less(t, n, 20, "the engine does not give %v again", addresses)
		id := output(t, "docker", "run", "-d", "--rm", "--label", "rollcall-test", "--network", os.Getenv("COMPOSE_PROJECT_NAME")+"_default", os.Getenv("ROLLCALL_IMAGE"))
		t.Cleanup(func() { _ = exec.CommandContext(context.Background(), "docker", "kill", id).Run() })
		delete(wanted, output(t, "docker", "inspect", "--format", "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}", id))
	}
}

// crash ends a server without a word. The engine takes its own kill for a wish of the
// operator and does not restart after it, so the process itself is killed and the
// restart policy is tested too.
func (c *containers) crash(t *testing.T, name string) {
	t.Helper()
	started := c.inspect(t, name, "{{.State.StartedAt}}")
	pid, err := strconv.Atoi(c.inspect(t, name, "{{.State.Pid}}"))
	require.NoError(t, err)
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || os.Getuid() != 0 || !strings.HasPrefix(string(line), "/rollcall\x00server") { // it is not to be seen from here
		c.compose(t, "kill", name)
		c.compose(t, "start", name)
		return
	}
	require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
	require.Eventually(t, func() bool {
		return c.inspect(t, name, "{{.State.Running}}") == "true" && c.inspect(t, name, "{{.State.StartedAt}}") != started
	}, 30*time.Second, 100*time.Millisecond, "the container was not restarted")
}

func (c *containers) registerPersistent(t *testing.T, service string) {
	t.Helper()
	for k, node := range c.nodes {
		r := node.Do(t, http.MethodPost, "/nacos/v1/ns/instance", Params{
			"serviceName": service, "ip": fmt.Sprintf("10.1.0.%d", k+1), "port": "80", "ephemeral": "false",
		})
		require.Equal(t, "ok", r.Body)
	}
}

func (c *containers) requirePersistent(t *testing.T, service string) {
	t.Helper()
	for _, node := range c.nodes {
		require.Eventually(t, func() bool { return len(list(t, node, Params{"serviceName": service}).Hosts) == len(c.nodes) },
			30*time.Second, 100*time.Millisecond, "persistent instances are missing at %s", node.Addr())
	}
}

// The containers are stopped, killed and made anew one by one while clients outside use
// all of them.
func TestCompose_OneByOne(t *testing.T) {
	c := theContainers(t)
	c.awaitReady(t)
	c.registerPersistent(t, "one-by-one")
	f := StartFleet(t, c.nodes)
	services := fleetServices(f, 30, 15, c.nodes...)
	f.Complete(t, 30*time.Second, c.nodes...)
	f.Subscribe(12, services, c.nodes...)
	f.Watched(t, 12*len(services))

	c.compose(t, "stop", "n1")
	require.Equal(t, "0", c.inspect(t, "n1", "{{.State.ExitCode}}"), "exit code after a stop as asked")
	f.Holds(t, 3*time.Second, c.nodes[1:]...)
	c.compose(t, "start", "n1")
	c.awaitReady(t)
	f.Complete(t, 20*time.Second, c.nodes...)

	c.crash(t, "n2")
	c.awaitReady(t)
	f.Complete(t, 20*time.Second, c.nodes...)

	before := c.address(t, "n3")
	c.compose(t, "rm", "-sf", "n3")
	c.occupy(t, before)
	c.compose(t, "up", "-d", "n3")
	require.NotEqual(t, before, c.address(t, "n3"))
	c.awaitReady(t)
	f.Complete(t, 20*time.Second, c.nodes...)
	c.requirePersistent(t, "one-by-one")
	f.Unharmed(t)
}

// All containers are made anew at once, each with another address.
func TestCompose_AllAnewAtOnce(t *testing.T) {
	c := theContainers(t)
	c.awaitReady(t)
	c.registerPersistent(t, "all-anew")
	f := StartFleet(t, c.nodes)
	fleetServices(f, 30, 15, c.nodes...)
	f.Complete(t, 30*time.Second, c.nodes...)

	names := []string{"n1", "n2", "n3"}
	before := make(map[string]string)
	for _, name := range names {
		before[name] = c.address(t, name)
	}
	c.compose(t, "rm", "-sf")
	c.occupy(t, slices.Collect(maps.Values(before))...)
	c.compose(t, "up", "-d")
	for _, name := range names {
		require.NotEqual(t, before[name], c.address(t, name), "the address of %s", name)
		require.Eventually(t, func() bool { return c.inspect(t, name, "{{.State.Health.Status}}") == "healthy" }, 90*time.Second, 200*time.Millisecond)
	}
	c.awaitReady(t)
	c.requirePersistent(t, "all-anew")
	f.Complete(t, 60*time.Second, c.nodes...)
	f.Holds(t, 5*time.Second, c.nodes...)
}
