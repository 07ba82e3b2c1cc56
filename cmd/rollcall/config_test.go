package main

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"

	"rollcall/server"
)

// load reads a configuration from flags, with the given file if it is not empty.
func load(t *testing.T, file string, args ...string) (server.Config, error) {
	t.Helper()
	flags := pflag.NewFlagSet("test", pflag.ContinueOnError)
	addSettings(flags)
	if file != "" {
		path := filepath.Join(t.TempDir(), "rollcall.yaml")
		require.NoError(t, os.WriteFile(path, []byte(file), 0o600))
		args = append(args, "--config", path)
	}
	require.NoError(t, flags.Parse(args))
	return loadConfig(flags)
}

func TestLoadConfig_DefaultsAreThoseOfTheServer(t *testing.T) {
	cfg, err := load(t, "")
	require.NoError(t, err)
	require.Equal(t, server.DefaultConfig(), cfg)
}

func TestLoadConfig_FlagBeforeEnvironmentBeforeFileBeforeDefault(t *testing.T) {
	file := "port: 9001\nbind: 127.0.0.1\nlinger: 250ms\npush:\n  ack: 7s\n  quiet: 20ms\n"
	cfg, err := load(t, file)
	require.NoError(t, err)
	require.Equal(t, 9001, cfg.Port)
	require.Equal(t, "127.0.0.1", cfg.Bind)
	require.Equal(t, 250*time.Millisecond, cfg.Linger)
	require.Equal(t, 7*time.Second, cfg.Push.Ack)

	t.Setenv("ROLLCALL_PORT", "9002")
	t.Setenv("ROLLCALL_PUSH_ACK", "8s")
	t.Setenv("ROLLCALL_KEEP_OVERRIDES", "true")
	cfg, err = load(t, file)
	require.NoError(t, err)
	require.Equal(t, 9002, cfg.Port)
	require.Equal(t, 8*time.Second, cfg.Push.Ack)
	require.True(t, cfg.KeepOverrides)
	require.Equal(t, 20*time.Millisecond, cfg.Push.Quiet)

	cfg, err = load(t, file, "--port", "9003", "--push-ack", "9s")
	require.NoError(t, err)
	require.Equal(t, 9003, cfg.Port)
	require.Equal(t, 9*time.Second, cfg.Push.Ack)
	require.Equal(t, server.DefaultConfig().Idle, cfg.Idle)
}

func TestLoadConfig_UnknownAndBadValuesAreNamed(t *testing.T) {
	for name, c := range map[string]struct {
		file string
		env  [2]string
		args []string
		want string
	}{
		"unknown key":             {file: "prot: 1\n", want: `"prot"`},
		"unknown nested key":      {file: "push:\n  akc: 1s\n", want: `"push.akc"`},
		"no YAML":                 {file: ":\n\t- [", want: "rollcall.yaml"},
		"unknown variable":        {env: [2]string{"ROLLCALL_PROT", "1"}, want: "ROLLCALL_PROT"},
		"bad time":                {env: [2]string{"ROLLCALL_LINGER", "soon"}, want: "linger"},
		"bad number":              {env: [2]string{"ROLLCALL_PORT", "many"}, want: "port"},
		"port too high":           {args: []string{"--port", "65000"}, want: "grpc-port"},
		"port too low for Raft":   {args: []string{"--port", "900"}, want: "raft-port"},
		"bind is a name":          {args: []string{"--bind", "localhost"}, want: "bind"},
		"time of zero":            {args: []string{"--detect", "0s"}, want: "detect"},
		"push times contradict":   {args: []string{"--push-max", "10ms"}, want: "push.max"},
		"missing file":            {args: []string{"--config", "no-such-file.yaml"}, want: "no-such-file.yaml"},
		"advertise is no address": {args: []string{"--advertise", "n1"}, want: "advertise"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.env[0] != "" {
				t.Setenv(c.env[0], c.env[1])
			}
			_, err := load(t, c.file, c.args...)
			require.ErrorContains(t, err, c.want)
		})
	}
}

// Kubernetes sets such variables in every pod beside a service named rollcall.
func TestLoadConfig_IgnoresVariablesOfOrchestrators(t *testing.T) {
	for name, value := range map[string]string{
		"ROLLCALL_SERVICE_HOST":        "10.0.0.1",
		"ROLLCALL_SERVICE_PORT":        "8848",
		"ROLLCALL_SERVICE_PORT_GRPC":   "9848",
		"ROLLCALL_PORT":                "tcp://10.0.0.1:8848",
		"ROLLCALL_PORT_8848_TCP":       "tcp://10.0.0.1:8848",
		"ROLLCALL_PORT_8848_TCP_PROTO": "tcp",
		"ROLLCALL_SERVER":              "10.0.0.1:8848",
	} {
		t.Setenv(name, value)
	}
	cfg, err := load(t, "")
	require.NoError(t, err)
	require.Equal(t, server.DefaultConfig(), cfg)
}

func TestSettings_AreDocumentedAndUnique(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range settings() {
		require.NotEmpty(t, s.doc, s.key)
		require.False(t, seen[s.flag()], "%s twice", s.flag())
		seen[s.flag()] = true
	}
}

// The page in docs is made from the code: `rollcall config defaults --markdown`.
func TestConfigurationPage_IsCurrent(t *testing.T) {
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "configuration.md"))
	require.NoError(t, err)
	require.Equal(t, settingsMarkdown(), string(page), "make it anew: go run ./cmd/rollcall config defaults --markdown > docs/configuration.md")
}

// A setting that a manifest names wrongly would keep the node from starting.
func TestManifests_NameSettingsThatExist(t *testing.T) {
	known := make(map[string]bool)
	for _, s := range settings() {
		known[s.env()] = true
	}
	for _, path := range []string{"../../docker-compose.yml", "../../docs/kubernetes.yaml"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		names := regexp.MustCompile(`(?m)(?:^ *| name: )(ROLLCALL_[A-Z_]+)`).FindAllStringSubmatch(string(text), -1)
		require.NotEmpty(t, names)
		for _, name := range names {
			require.True(t, known[name[1]], "%s has %s", path, name[1])
		}
	}
}
