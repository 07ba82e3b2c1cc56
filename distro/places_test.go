package distro

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// All nodes have moved since they were configured, and one of them starts anew at one
// more address: nothing answers where it was told to join.
func TestMembers_FindsOthersWhereTheyWereLast(t *testing.T) {
	t.Parallel()
	net := newNetwork()
	file := filepath.Join(t.TempDir(), "members.json")
	at := func(name string, boot uint64, places string, join ...string) MembersConfig {
		cfg := inMemory(name, boot, net.add())
		cfg.Join, cfg.Places = join, places
		return cfg
	}
	n1 := start(t, at("n1", 1, ""))
	n2 := start(t, at("n2", 2, "", n1.wire.addr))
	n3 := start(t, at("n3", 3, file, n1.wire.addr))
	agree(t, 5*time.Second, n1, n2, n3)
	eventually(t, func() bool {
		b, err := os.ReadFile(file)
		return err == nil && string(b) == `["`+n1.wire.addr+`","`+n2.wire.addr+"\"]\n"
	})
	require.NoError(t, n3.Close())

	again := start(t, at("n3", 4, file, "10.0.9.9:7847"))
	agree(t, 10*time.Second, n1, n2, again)

	require.NoError(t, os.WriteFile(file, []byte("no JSON"), 0o600))
	var p places
	p.path = file
	require.ErrorContains(t, p.read(), "not known any more")
	require.Empty(t, p.former)
}
