package raftstore

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"
	"github.com/stretchr/testify/require"
)

func TestLibraryLogger_Levels(t *testing.T) {
	for _, c := range []struct {
		log  func(hclog.Logger)
		want string
	}{
		{func(l hclog.Logger) { l.Trace("m") }, "level=DEBUG msg=m"},
		{func(l hclog.Logger) { l.Debug("m", "k", 1) }, "level=DEBUG msg=m k=1"},
		{func(l hclog.Logger) { l.Info("m", "servers", hclog.Fmt("%+v", []int{1})) }, "level=DEBUG msg=m servers=[1]"},
		{func(l hclog.Logger) { l.Warn("m", "error", "why") }, "level=WARN msg=m err=why"},
		{func(l hclog.Logger) { l.Warn("heartbeat timeout reached, starting election") }, `level=DEBUG msg="heartbeat timeout reached, starting election"`},
		{func(l hclog.Logger) { l.Error("failed to take snapshot") }, `level=ERROR msg="failed to take snapshot"`},
		{func(l hclog.Logger) { l.Error("failed to heartbeat to", "peer", "a:1") }, `level=DEBUG msg="failed to heartbeat to" peer=a:1`},
		{func(l hclog.Logger) { l.With("a", 1).Error("m") }, "level=ERROR msg=m a=1"},
	} {
		var out strings.Builder
		c.log(libraryLogger(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{
			Level: slog.LevelDebug,
			ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			},
		}))))
		require.Equal(t, c.want+"\n", out.String())
	}
	var out strings.Builder
	libraryLogger(slog.New(slog.NewTextHandler(&out, nil))).Info("m")
	require.Empty(t, out.String())
}
