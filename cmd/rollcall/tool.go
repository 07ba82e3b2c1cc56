package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"rollcall/client"
	"rollcall/naming"
)

// defaultServer is asked unless --server or ROLLCALL_SERVER names another.
const defaultServer = "127.0.0.1:8848"

// tool are the options that the commands share which ask a server.
type tool struct {
	server    string
	output    string
	namespace string
	group     string
}

func (t *tool) flags(c *cobra.Command) {
	server := os.Getenv("ROLLCALL_SERVER")
	if server == "" {
		server = defaultServer
	}
	f := c.PersistentFlags()
	f.StringVar(&t.server, "server", server, "server to ask, host:port (environment: ROLLCALL_SERVER)")
	f.StringVarP(&t.output, "output", "o", "table", "table or json")
	f.StringVar(&t.namespace, "namespace", naming.DefaultNamespace, "namespace id")
	f.StringVar(&t.group, "group", naming.DefaultGroup, "group of a service that is named without one")
}

// check refuses options that cannot be.
func (t *tool) check() error {
	if t.output != "table" && t.output != "json" {
		return fmt.Errorf("output is %q: it must be table or json", t.output)
	}
	return nil
}

func (t *tool) client() (*client.Admin, error) {
	if err := t.check(); err != nil {
		return nil, err
	}
	return client.NewAdmin(t.server, versionText())
}

// service reads a service's name: plain, or group@@name.
func (t *tool) service(name string) (naming.ServiceKey, error) {
	k := naming.ServiceKey{Namespace: t.namespace, Group: t.group, Name: name}
	if group, plain, ok := naming.SplitGrouped(name); ok {
		k.Group, k.Name = group, plain
	}
	return k, naming.CheckKey(k)
}

// print writes v as JSON, or the table that fill writes.
func (t *tool) print(w io.Writer, v any, fill func(io.Writer)) error {
	if t.output == "json" {
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		return e.Encode(v)
	}
	table := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fill(table)
	return table.Flush()
}

func consistentFlag(c *cobra.Command, into *bool) {
	c.Flags().BoolVar(into, "consistent", false, "show every persistent write that was acknowledged before, by any node; needs a leader")
}

func newService() *cobra.Command {
	t := new(tool)
	c := &cobra.Command{Use: "service", Short: "Look at services"}
	t.flags(c)
	var page, size int
	var consistent bool
	list := &cobra.Command{
		Use:   "list",
		Short: "List the services of a group",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := t.client()
			if err != nil {
				return err
			}
			if consistent {
				cl = cl.Consistent()
			}
			names, count, err := cl.Services(c.Context(), t.namespace, t.group, page, size)
			if err != nil {
				return err
			}
			if names == nil {
				names = []string{}
			}
			return t.print(c.OutOrStdout(), map[string]any{"count": count, "services": names}, func(w io.Writer) {
				_, _ = fmt.Fprintln(w, "SERVICE")
				for _, n := range names {
					_, _ = fmt.Fprintln(w, n)
				}
				if len(names) < count {
					_, _ = fmt.Fprintf(w, "(%d of %d; --page and --size show more)\n", len(names), count)
				}
			})
		},
	}
	list.Flags().IntVar(&page, "page", 1, "page, from 1")
	list.Flags().IntVar(&size, "size", 1000, "services on a page")
	consistentFlag(list, &consistent)
	c.AddCommand(list)
	return c
}

func newInstance() *cobra.Command {
	t := new(tool)
	c := &cobra.Command{Use: "instance", Short: "List, register and deregister instances"}
	t.flags(c)

	var clusters string
	var healthy, consistent bool
	list := &cobra.Command{
		Use:   "list SERVICE",
		Short: "List the instances of a service that clients see",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, svc, err := t.ask(args[0])
			if err != nil {
				return err
			}
			if consistent {
				cl = cl.Consistent()
			}
			s, err := cl.Instances(c.Context(), svc, clusters, healthy)
			if err != nil {
				return err
			}
			return t.print(c.OutOrStdout(), s, func(w io.Writer) { instanceTable(w, s) })
		},
	}
	list.Flags().StringVar(&clusters, "clusters", "", "clusters, separated by commas; empty: all")
	list.Flags().BoolVar(&healthy, "healthy", false, "healthy instances only")
	consistentFlag(list, &consistent)

	i := naming.NewInstance("", 0)
	var metadata []string
	var keep bool
	register := &cobra.Command{
		Use:   "register SERVICE --ip IP --port PORT",
		Short: "Register an instance",
		Long: `Register an instance over HTTP. An ephemeral instance expires unless something
keeps it alive: with --keep this command does, until it is interrupted, and then
deregisters it. A persistent one (--ephemeral=false) stays until it is deregistered.`,
		Args: cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, svc, err := t.ask(args[0])
			if err != nil {
				return err
			}
			if i.Metadata, err = pairs(metadata); err != nil {
				return err
			}
			if err := cl.Register(c.Context(), svc, i); err != nil {
				return err
			}
			c.Println("registered", i.Key().Address(), "in", svc.Grouped())
			if !keep {
				return nil
			}
			return beat(c, cl, svc, i)
		},
	}
	deregister := &cobra.Command{
		Use:   "deregister SERVICE --ip IP --port PORT",
		Short: "Deregister an instance that was registered over HTTP",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			cl, svc, err := t.ask(args[0])
			if err != nil {
				return err
			}
			if err := cl.Deregister(c.Context(), svc, i); err != nil {
				return err
			}
			c.Println("deregistered", i.Key().Address(), "from", svc.Grouped())
			return nil
		},
	}
	for _, c := range []*cobra.Command{register, deregister} {
		f := c.Flags()
		f.StringVar(&i.IP, "ip", "", "address of the instance")
		f.IntVar(&i.Port, "port", 0, "port of the instance")
		f.StringVar(&i.Cluster, "cluster", naming.DefaultCluster, "cluster of the instance")
		f.BoolVar(&i.Ephemeral, "ephemeral", true, "lives by heartbeats; false: stays until it is deregistered")
		_ = c.MarkFlagRequired("ip")
		_ = c.MarkFlagRequired("port")
	}
	register.Flags().Float64Var(&i.Weight, "weight", 1, "share of the traffic, 0 to 10000")
	register.Flags().StringArrayVar(&metadata, "metadata", nil, "key=value; may be given several times")
	register.Flags().BoolVar(&keep, "keep", false, "keep an ephemeral instance alive until interrupted")
	c.AddCommand(list, register, deregister)
	return c
}

func (t *tool) ask(service string) (*client.Admin, naming.ServiceKey, error) {
	cl, err := t.client()
	if err != nil {
		return nil, naming.ServiceKey{}, err
	}
	svc, err := t.service(service)
	return cl, svc, err
}

func pairs(list []string) (map[string]string, error) {
	if len(list) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(list))
	for _, p := range list {
		k, v, ok := strings.Cut(p, "=")
		if !ok || k == "" {
			return nil, fmt.Errorf("metadata is %q: it must be key=value", p)
		}
		out[k] = v
	}
	return out, nil
}

// deregisterTimeout bounds the last call of an interrupted command.
const deregisterTimeout = 3 * time.Second

// beat keeps an instance alive until the command is interrupted.
func beat(c *cobra.Command, cl *client.Admin, svc naming.ServiceKey, i naming.Instance) error {
	interval := naming.DefaultBeatInterval
	for {
		select {
		case <-c.Context().Done():
			ctx, cancel := context.WithTimeout(context.WithoutCancel(c.Context()), deregisterTimeout)
			defer cancel()
			return cl.Deregister(ctx, svc, i)
		case <-time.After(interval):
		}
		next, err := cl.Beat(c.Context(), svc, i)
		switch {
		case c.Context().Err() != nil: // interrupted: the loop ends
		case err != nil:
			c.PrintErrln("heartbeat:", err)
		case next > 0:
			interval = next
		}
	}
}

func instanceTable(w io.Writer, s client.Listing) {
	_, _ = fmt.Fprintln(w, "ADDRESS\tCLUSTER\tHEALTHY\tWEIGHT\tEPHEMERAL\tMETADATA")
	for _, i := range s.Hosts {
		var metadata []string
		for _, k := range slices.Sorted(maps.Keys(i.Metadata)) {
			metadata = append(metadata, k+"="+i.Metadata[k])
		}
		_, _ = fmt.Fprintf(w, "%s\t%s\t%t\t%g\t%t\t%s\n", naming.Address(i.IP, i.Port), i.Cluster, i.Healthy, i.Weight, i.Ephemeral, strings.Join(metadata, " "))
	}
	if s.ReachedProtection {
		_, _ = fmt.Fprintln(w, "(protection: too few are healthy, so all are shown as healthy)")
	}
}

func newWatch() *cobra.Command {
	t := new(tool)
	var clusters string
	c := &cobra.Command{
		Use:   "watch SERVICE",
		Short: "Print a service now and after each change",
		Args:  cobra.ExactArgs(1),
		RunE: func(c *cobra.Command, args []string) error {
			_, svc, err := t.ask(args[0]) // checks the options, too
			if err != nil {
				return err
			}
			cfg := client.DefaultConfig()
			cfg.Servers, cfg.Namespace = []string{t.server}, svc.Namespace
			cfg.Logger = slog.New(slog.NewTextHandler(c.ErrOrStderr(), &slog.HandlerOptions{Level: slog.LevelWarn}))
			cl, err := client.New(c.Context(), cfg)
			if err != nil {
				return err
			}
			defer func() { _ = cl.Close() }()
			sub, err := cl.SubscribeChan(c.Context(), svc, naming.Filter{Clusters: clusters})
			if err != nil {
				return err
			}
			for {
				select {
				case <-c.Context().Done():
					return c.Context().Err()
				case change := <-sub.Changes():
					t.printService(c, client.ListingOf(change.Service, clusters))
				}
			}
		},
	}
	t.flags(c)
	c.Flags().StringVar(&clusters, "clusters", "", "clusters, separated by commas; empty: all")
	return c
}

// printService prints one state of a watched service.
func (t *tool) printService(c *cobra.Command, s client.Listing) {
	if t.output == "json" {
		b, err := json.Marshal(s)
		if err == nil {
			c.Println(string(b))
		}
		return
	}
	c.Printf("%s  %s%s%s  %d instances\n", time.UnixMilli(s.LastRefTimeMs).Format(time.RFC3339Nano), s.Group, naming.Separator, s.Name, len(s.Hosts))
	_ = t.print(c.OutOrStdout(), s, func(w io.Writer) { instanceTable(w, s) })
}

func newHealthcheck() *cobra.Command {
	t := new(tool)
	c := &cobra.Command{
		Use:   "healthcheck",
		Short: "Exit with 0 if a server is ready, for containers",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cl, err := t.client()
			if err != nil {
				return err
			}
			return cl.Ready(c.Context())
		},
	}
	t.flags(c)
	return c
}
