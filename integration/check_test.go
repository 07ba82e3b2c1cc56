package integration

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// long marks a story that takes its time. Such stories run in make test-cluster, once;
// not in make test and make race.
func long(t *testing.T) {
	t.Helper()
	if os.Getenv("ROLLCALL_TEST_CLUSTER") == "" {
		t.Skip("SKIP: a long story, which make test-cluster runs (ROLLCALL_TEST_CLUSTER=1)")
	}
	t.Parallel()
}

// Check is what stories end with: within a time all running nodes list the same for
// every service, hold the same ephemeral data, list what the fleet has published and
// nothing else, and show what was acknowledged to the writers and nothing that was
// removed. The fleet may be nil.
func (c *Cluster) Check(t *testing.T, f *Fleet, writers ...*writer) {
	t.Helper()
	nodes := c.Running()
	if f != nil {
		f.Complete(t, 30*time.Second, nodes...)
	}
	c.settle(t)
	var differ string
	t.Cleanup(func() {
		if t.Failed() && differ != "" {
			for _, node := range nodes {
				r, err := node.TryRaw(http.MethodGet, "/rollcall/v1/nodes", "", "")
				t.Logf("%s says: %s %v", node.name, r.Body, err)
			}
		}
	})
	require.Eventually(t, func() bool {
		differ = differing(nodes)
		return differ == ""
	}, 30*time.Second, 100*time.Millisecond, "the nodes do not agree: %v", said{&differ})
	for _, w := range writers {
		for _, node := range nodes {
			w.check(t, node)
		}
	}
}

// differing says in what nodes differ; empty: in nothing.
func differing(nodes []*Node) string {
	var first map[string]string
	for _, node := range nodes {
		states, err := node.States()
		if err != nil {
			return err.Error()
		}
		for _, s := range states {
			if s.Alive && s.Differs > 0 {
				return fmt.Sprintf("%s says that %s holds something else than %d owners", node.name, s.Name, s.Differs)
			}
		}
		lists, err := node.lists()
		switch {
		case err != nil:
			return err.Error()
		case first == nil:
			first = lists
		case !maps.Equal(first, lists):
			return fmt.Sprintf("%s and %s list something else", nodes[0].name, node.name)
		}
	}
	return ""
}

// lists returns what the node lists, as text, by service.
func (n *Node) lists() (map[string]string, error) {
	r, err := n.TryRaw(http.MethodGet, "/nacos/v1/ns/service/list", "pageNo=1&pageSize=1000", "")
	if err != nil {
		return nil, err
	}
	var names struct {
		Doms []string `json:"doms"`
	}
	if err := json.Unmarshal([]byte(r.Body), &names); err != nil {
		return nil, err
	}
	out := make(map[string]string)
	for _, name := range names.Doms {
		r, err := n.TryRaw(http.MethodGet, "/nacos/v1/ns/instance/list", "serviceName="+name, "")
		if err != nil {
			return nil, err
		}
		var info ServiceInfo
		if err := json.Unmarshal([]byte(r.Body), &info); err != nil {
			return nil, err
		}
		// An empty service is cleaned by each node in its own time.
		if len(info.Hosts) > 0 {
			out[name] = strings.Join(info.Addrs(), " ")
		}
	}
	return out, nil
}
