package main

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/file"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"rollcall/server"
)

// setting is one value of the configuration. Its key names it in YAML, with dots;
// as a flag, with hyphens; and in the environment, in capitals with underscores.
type setting struct {
	key, doc string
	def      any
}

const envPrefix = "ROLLCALL_"

func (s setting) flag() string { return strings.ReplaceAll(s.key, ".", "-") }

func (s setting) env() string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(s.key))
}

// settings lists the values of the configuration in the order of its fields.
func settings() []setting { return settingsOf("", reflect.ValueOf(server.DefaultConfig())) }

func settingsOf(prefix string, v reflect.Value) []setting {
	var out []setting
	for n := range v.NumField() {
		field := v.Type().Field(n)
		key := prefix + field.Tag.Get("koanf")
		if field.Type.Kind() == reflect.Struct {
			out = append(out, settingsOf(key+".", v.Field(n))...)
			continue
		}
		out = append(out, setting{key, field.Tag.Get("doc"), v.Field(n).Interface()})
	}
	return out
}

// addSettings adds a flag for each setting.
func addSettings(flags *pflag.FlagSet) {
	flags.String("config", "", "YAML file with settings")
	for _, s := range settings() {
		switch def := s.def.(type) {
		case string:
			flags.String(s.flag(), def, s.doc)
		case int:
			flags.Int(s.flag(), def, s.doc)
		case bool:
			flags.Bool(s.flag(), def, s.doc)
		case time.Duration:
			flags.Duration(s.flag(), def, s.doc)
		}
	}
}

// foreign tells whether a variable with our prefix is no setting of the server:
// the command line's own, or one of those that Kubernetes sets in every pod for a
// service that is called rollcall, such as ROLLCALL_PORT=tcp://10.0.0.1:8848.
func foreign(name, value string) bool {
	switch name {
	case "ROLLCALL_SERVER", "ROLLCALL_CONFIG", "ROLLCALL_SERVICE_HOST":
		return true
	}
	return strings.HasPrefix(name, "ROLLCALL_SERVICE_PORT") || strings.HasPrefix(name, "ROLLCALL_PORT_") ||
		name == "ROLLCALL_PORT" && strings.Contains(value, "://")
}

// loadConfig reads the configuration: flag before environment before file before
// default. An unknown key is an error that names it.
func loadConfig(flags *pflag.FlagSet) (server.Config, error) {
	cfg := server.DefaultConfig()
	k := koanf.New(".")
	known := make(map[string]bool)
	byFlag, byEnv := make(map[string]string), make(map[string]string)
	defaults := make(map[string]any)
	for _, s := range settings() {
		known[s.key] = true
		byFlag[s.flag()], byEnv[s.env()] = s.key, s.key
		defaults[s.key] = s.def
	}
	if err := k.Load(confmap.Provider(defaults, "."), nil); err != nil {
		return cfg, err
	}
	path, _ := flags.GetString("config")
	if path == "" {
		path = os.Getenv(envPrefix + "CONFIG")
	}
	if path != "" {
		if err := k.Load(file.Provider(path), yaml.Parser()); err != nil {
			return cfg, fmt.Errorf("read %s: %w", path, err)
		}
		for _, key := range k.Keys() {
			if !known[key] {
				return cfg, fmt.Errorf("%s has the unknown key %q; `rollcall config defaults` lists the keys", path, key)
			}
		}
	}
	var unknown []string
	err := k.Load(env.Provider(".", env.Opt{Prefix: envPrefix, TransformFunc: func(name, value string) (string, any) {
		if foreign(name, value) {
			return "", nil
		}
		if key, ok := byEnv[name]; ok {
			return key, value
		}
		unknown = append(unknown, name)
		return "", nil
	}}), nil)
	if err != nil {
		return cfg, err
	}
	if len(unknown) > 0 {
		slices.Sort(unknown)
		return cfg, fmt.Errorf("the environment has unknown settings: %s; `rollcall config defaults` lists the names", strings.Join(unknown, ", "))
	}
	err = k.Load(posflag.ProviderWithFlag(flags, ".", k, func(f *pflag.Flag) (string, any) {
		return byFlag[f.Name], posflag.FlagVal(flags, f)
	}), nil)
	if err != nil {
		return cfg, err
	}
	if err := k.Unmarshal("", &cfg); err != nil {
		return cfg, fmt.Errorf("configuration: %w", err)
	}
	return cfg, cfg.Validate()
}

func newConfig() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "Show and check settings of a server"}
	validate := &cobra.Command{
		Use:   "validate",
		Short: "Check the settings that `rollcall server` would run with",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if _, err := loadConfig(c.Flags()); err != nil {
				return err
			}
			c.Println("ok")
			return nil
		},
	}
	addSettings(validate.Flags())
	var markdown bool
	defaults := &cobra.Command{
		Use:   "defaults",
		Short: "List every setting with its default",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if markdown {
				c.Print(settingsMarkdown())
				return nil
			}
			w := tabwriter.NewWriter(c.OutOrStdout(), 0, 4, 2, ' ', 0)
			_, err := fmt.Fprintln(w, "KEY\tDEFAULT\tENVIRONMENT\tMEANING")
			for _, s := range settings() {
				_, errLine := fmt.Fprintf(w, "%s\t%v\t%s\t%s\n", s.key, s.def, s.env(), s.doc)
				err = errors.Join(err, errLine)
			}
			return errors.Join(err, w.Flush())
		},
	}
	defaults.Flags().BoolVar(&markdown, "markdown", false, "print the page docs/configuration.md")
	c.AddCommand(validate, defaults)
	return c
}

// settingsMarkdown is the page of the documentation about settings.
func settingsMarkdown() string {
	var b strings.Builder
	b.WriteString("# Configuration\n\nThis page is made by `rollcall config defaults --markdown`.\n\n" +
		"A flag goes before an environment variable, that before the YAML file of `--config` (or `ROLLCALL_CONFIG`), and that before the default. " +
		"An unknown key or variable is an error that names it. Times are written like `500ms`, `10s`, `1m`.\n\n" +
		"| YAML key | flag | environment | default | meaning |\n|---|---|---|---|---|\n")
	for _, s := range settings() {
		def := fmt.Sprint(s.def)
		if def != "" {
			def = "`" + def + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | `%s` | %s | %s |\n", s.key, s.flag(), s.env(), def, s.doc)
	}
	return b.String()
}
