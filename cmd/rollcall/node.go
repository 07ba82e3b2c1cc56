package main

import (
	"context"
	"fmt"
	"io"
	"strconv"

	"github.com/spf13/cobra"

	"rollcall/client"
	"rollcall/naming"
)

func newNode() *cobra.Command {
	t := new(tool)
	c := &cobra.Command{Use: "node", Short: "Look at the nodes, drain one, take one out"}
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
	for _, command := range []struct {
		use, short, long, done string
		run                    func(context.Context, *client.Admin) error
	}{
		{
			"drain", "Have the clients of the server that is asked go to other nodes",
			"Have the clients of the server that is asked (--server) go to other nodes. It takes no\nnew ones until it is undrained or started again, and serves whoever is there.",
			"draining", func(ctx context.Context, cl *client.Admin) error { return cl.Drain(ctx, true) },
		},
		{
			"undrain", "Let clients come to the server that is asked again", "",
			"takes clients", func(ctx context.Context, cl *client.Admin) error { return cl.Drain(ctx, false) },
		},
		{
			"leave", "Take the node that is asked out for good",
			"Take the node that is asked (--server) out for good: its clients go to other nodes, it\ncounts no more for a majority, and its process ends. Whatever starts processes again\nwhen they end has to be told first. Its data folder stays; started with it the node\njoins again.",
			"leaving", func(ctx context.Context, cl *client.Admin) error { return cl.Leave(ctx) },
		},
	} {
		c.AddCommand(&cobra.Command{
			Use: command.use, Short: command.short, Long: command.long, Args: cobra.NoArgs,
			RunE: func(c *cobra.Command, _ []string) error {
				cl, err := t.client()
				if err == nil {
					err = command.run(c.Context(), cl)
				}
				if err != nil {
					return err
				}
				c.Println(t.server, command.done)
				return nil
			},
		})
	}
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
	_, _ = fmt.Fprintln(w, "NODE\tADDRESS\tALIVE\tREADY\tDRAINING\tROLE\tVOTER\tTERM\tINDEX\tLAG\tPERSISTENT\tINSTANCES\tDIFFERS\tCONNECTIONS\tVERSION")
	for _, n := range nodes {
		_, _ = fmt.Fprintf(w, "%s\t%s\t%t\t%t\t%t\t%s\t%t\t%s\t%s\t%s\t%s\t%d\t%s\t%d\t%s\n",
			n.Name, n.Address, n.Alive, n.Ready, n.Draining, n.Role, n.Voter, known(n, n.Term), known(n, n.LastIndex), known(n, n.Lag), persistence(n), n.Instances, agreement(n), n.Connections, n.Version)
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

// agreement shows of how many nodes one holds something else than they do, and in how
// many buckets.
func agreement(n naming.NodeState) string {
	if n.Differs == 0 {
		return "0"
	}
	return fmt.Sprintf("%d (%d buckets)", n.Differs, n.DifferingBuckets)
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
	line("draining", n.Draining)
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
	line("nodes that differ", agreement(n))
	for _, h := range n.Holds {
		of := fmt.Sprintf("%d instances, digest %s", h.Instances, h.Digest)
		if h.Gone != "" {
			of += ", it is gone: " + h.Gone
		}
		line("holds of "+h.Node, of)
	}
	line("gRPC connections", n.Connections)
}
