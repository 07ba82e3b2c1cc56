package main

import (
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"rollcall/naming"
)

func newNode() *cobra.Command {
	t := new(tool)
	c := &cobra.Command{Use: "node", Short: "Look at the nodes, remove a dead one"}
	t.flags(c)
	c.AddCommand(&cobra.Command{
		Use:   "list",
		Short: "List the nodes that the server knows",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			nodes, err := t.nodes(c)
			if err != nil {
				return err
			}
			return t.print(c.OutOrStdout(), nodes, func(w io.Writer) { nodeTable(w, nodes) })
		},
	}, &cobra.Command{
		Use:   "state [NODE]",
		Short: "Show all that is known of one node; without a name, of the server that is asked",
		Args:  cobra.MaximumNArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			nodes, err := t.nodes(c)
			if err != nil {
				return err
			}
			for _, n := range nodes {
				if len(args) == 0 && n.Self || len(args) == 1 && n.Name == args[0] {
					return t.print(c.OutOrStdout(), n, func(w io.Writer) { nodeLines(w, n) })
				}
			}
			return fmt.Errorf("%s knows no node %v: `rollcall node list` shows the nodes", t.server, args)
		},
	}, &cobra.Command{
		Use:   "remove NODE",
		Short: "Take a dead node out of Raft, for good",
		Long: `Take a node that will not come back out of Raft, by its name, so that it no longer
counts for the majority. Any node can be asked; there must be a leader. A node that is
alive is refused: it would be taken in again. A dead node is removed without this
command after 72 hours, or when a healthy one has its name or address.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, err := t.client()
			if err != nil {
				return err
			}
			if err := cl.RemoveNode(c.Context(), args[0]); err != nil {
				return err
			}
			c.Println("removed", args[0])
			return nil
		},
	})
	return c
}

func (t *tool) nodes(c *cobra.Command) ([]naming.NodeState, error) {
	cl, err := t.client()
	if err != nil {
		return nil, err
	}
	return cl.Nodes(c.Context())
}

func nodeTable(w io.Writer, nodes []naming.NodeState) {
	_, _ = fmt.Fprintln(w, "NODE\tADDRESS\tALIVE\tREADY\tROLE\tVOTER\tTERM\tINDEX\tLAG\tPERSISTENT\tINSTANCES\tDIFFERS\tVERSION")
	for _, n := range nodes {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%t\t%t\t%s\t%t\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n",
			n.Name, n.Address, n.Alive, n.Ready, n.Role, n.Voter, known(n, n.Term), known(n, n.LastIndex), known(n, n.Lag), persistence(n), n.Instances, n.Differs, n.Version)
	}
	for _, n := range nodes {
		for _, why := range []string{n.Refused, n.ReadOnly} {
			if why != "" {
				_, _ = fmt.Fprintf(w, "(%s: %s)\n", n.Name, why)
			}
		}
	}
}

// known shows a number that is not known of a node that does not answer.
func known(n naming.NodeState, number uint64) string {
	if n.Role == "unknown" {
		return "-"
	}
	return strconv.FormatUint(number, 10)
}

// persistence says in a word how a node's persistent data is.
func persistence(n naming.NodeState) string {
	switch {
	case n.Role == "unknown":
		return "-"
	case n.Refused != "":
		return "refused"
	case n.ReadOnly != "":
		return "read-only"
	case n.Stale:
		return "stale"
	}
	return "ok"
}

func nodeLines(w io.Writer, n naming.NodeState) {
	line := func(name string, value any) { _, _ = fmt.Fprintf(w, "%s\t%v\n", name, value) }
	line("node", n.Name)
	line("address", n.Address)
	line("version", n.Version)
	line("alive", n.Alive)
	line("ready", n.Ready)
	line("role", n.Role)
	line("voter", n.Voter)
	line("term", known(n, n.Term))
	line("last index", known(n, n.LastIndex))
	line("applied index", known(n, n.AppliedIndex))
	line("lag", known(n, n.Lag))
	line("persistent data", persistence(n))
	for _, why := range []string{n.Refused, n.ReadOnly} {
		if why != "" {
			line("", why)
		}
	}
	line("ephemeral instances", n.Instances)
	line("nodes that differ", n.Differs)
}
