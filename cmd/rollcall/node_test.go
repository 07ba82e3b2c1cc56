package main

import (
	"bytes"
	"testing"
	"text/tabwriter"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func TestNode_StandaloneListAndState(t *testing.T) {
	address := startServer(t)
	out, err := run(t, "node", "list", "--server", address)
	require.NoError(t, err)
	require.Regexp(t, `leader +true +\d+ +\d+ +0 +ok`, out)
	out, err = run(t, "node", "state", "--server", address)
	require.NoError(t, err)
	require.Regexp(t, `(?m)^role +leader$`, out)
	require.Regexp(t, `(?m)^persistent data +ok$`, out)
	_, err = run(t, "node", "state", "n9", "--server", address)
	require.ErrorContains(t, err, "knows no node [n9]")
	_, err = run(t, "node", "remove", "n9", "--server", address)
	require.ErrorContains(t, err, "raft has no node n9")
}

func TestNodeTable_SaysWhatIsWrong(t *testing.T) {
	var out bytes.Buffer
	w := tabwriter.NewWriter(&out, 0, 4, 1, ' ', 0)
	nodeTable(w, []naming.NodeState{
		{Name: "n1", Role: "follower", Term: 3, LastIndex: 7, Lag: 2, Refused: "another cluster"},
		{Name: "n2", Role: "leader", ReadOnly: "disk full"},
		{Name: "n3", Role: "follower", Stale: true},
		{Name: "n4", Role: "unknown"},
	})
	require.NoError(t, w.Flush())
	for _, want := range []string{
		`n1 +false +false +false +follower +false +3 +7 +2 +refused`, `n2 .* read-only`, `n3 .* stale`,
		`n4 +false +false +false +unknown +false +- +- +- +-`, `\(n1: another cluster\)`, `\(n2: disk full\)`,
	} {
		require.Regexp(t, want, out.String())
	}
}
