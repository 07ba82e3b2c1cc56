package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"os"
	"time"

	"github.com/KimMachineGun/automemlimit/memlimit"
	"github.com/spf13/cobra"

	"rollcall/server"
)

func newServer() *cobra.Command {
	c := &cobra.Command{
		Use:   "server",
		Short: "Run a node",
		Long: `Run a node of the registry. Without a flag it is a complete standalone node on
embedded storage in ./rollcall-data: HTTP and UDP on port 8848, gRPC on 9848.

SIGTERM and SIGINT stop it gracefully: its clients go to other nodes first. It stays a
member and is expected back, unless --leave-on-stop is given; "rollcall node leave" takes
it out for good.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := loadConfig(c.Flags())
			if err != nil {
				return err
			}
			return serve(c.Context(), cfg)
		},
	}
	addSettings(c.Flags())
	return c
}

// serve runs a node until ctx ends.
func serve(ctx context.Context, cfg server.Config) error {
	log, err := newLogger(cfg.LogLevel, cfg.LogFormat)
	if err != nil {
		return err
	}
	limitMemory(log)
	node, err := server.New(cfg, versionText(), log)
	if err != nil {
		return err
	}
	if err := node.Start(); err != nil {
		return errors.Join(err, node.Close())
	}
	var failure error
	select {
	case <-ctx.Done():
	case <-node.Left():
	case failure = <-node.Failed():
	}
	log.Info("stopping", "within", cfg.ShutdownTimeout)
	closeCh := make(chan error, 1)
	go func() { closeCh <- node.Close() }()
	select {
	case err := <-closeCh:
		if err == nil {
			log.Info("stopped")
		}
		return errors.Join(failure, err)
	case <-time.After(cfg.ShutdownTimeout):
		if failure != nil {
			return failure
		}
		return fmt.Errorf("not stopped within %v; data that was acknowledged is on disk", cfg.ShutdownTimeout)
	}
}

// limitMemory has the garbage collector keep to 90 % of the memory that the container
// may use, unless GOMEMLIMIT is set: a node that grows collects more often before the
// kernel kills it.
func limitMemory(log *slog.Logger) {
	switch limit, err := memlimit.Set(); {
	case err != nil:
		log.Debug("the memory limit of this process is not known; GOMEMLIMIT sets one", "err", err)
	case limit < math.MaxInt64:
		log.Info("memory limit", "bytes", limit)
	}
}

func newLogger(level, format string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("log-level is %q: it must be debug, info, warn or error", level)
	}
	opts := &slog.HandlerOptions{Level: l}
	switch format {
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, opts)), nil
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, opts)), nil
	}
	return nil, fmt.Errorf("log-format is %q: it must be text or json", format)
}
