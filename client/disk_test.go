package client_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"rollcall/client"
	"rollcall/client/clienttest"
	"rollcall/naming"
)

const switchFile = "00-00---000-VIPSRV_FAILOVER_SWITCH-000---00-00"

// offline returns settings of a client that reaches no server.
func offline(t *testing.T, dir string) client.Config {
	t.Helper()
	cfg := client.DefaultConfig()
	cfg.Servers, cfg.ConnectWait, cfg.Logger = []string{"127.0.0.1:1"}, 0, logTo(t)
	cfg.CacheDir, cfg.LoadCacheAtStart = dir, true
	return cfg
}

func TestDisk_WrittenAndServedWithoutAServer(t *testing.T) {
	node := clienttest.Start(t)
	dir := t.TempDir()
	cfg := config(t, node)
	cfg.CacheDir = dir
	c := dial(t, cfg)
	a, b := host(1), host(2)
	a.Metadata, a.Cluster, a.Weight, b.Healthy = map[string]string{"k": "v"}, "east", 2.5, false
	w := subscribed(t, c, svc("orders"), naming.Filter{})
	require.NoError(t, c.RegisterBatch(bounded(t), svc("orders"), []naming.Instance{a, b}))
	w.await(a, b)
	path := filepath.Join(dir, "naming", "public", "DEFAULT_GROUP%40%40orders")
	var file struct {
		Name, GroupName string
		Hosts           []struct {
			IP       string
			Port     int
			Metadata map[string]string
		}
	}
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(path)
		return err == nil && json.Unmarshal(text, &file) == nil && len(file.Hosts) == 2 && !strings.Contains(string(text), "\n")
	}, soon, time.Millisecond)
	require.Equal(t, "orders", file.Name)
	require.Equal(t, "DEFAULT_GROUP", file.GroupName)
	node.Stop(t)
	require.NoError(t, c.Close())

	c = dial(t, offline(t, dir))
	list, err := c.Instances(bounded(t), svc("orders"), naming.Filter{})
	require.NoError(t, err, "without a subscription")
	require.Len(t, list.Instances, 2)
	require.True(t, b.Equal(list.Instances[0]))
	require.True(t, a.Equal(list.Instances[1]))
	picked, err := c.Select(bounded(t), svc("orders"), "")
	require.NoError(t, err)
	require.Equal(t, a.Key(), picked.Key())
	w = subscribed(t, c, svc("orders"), naming.Filter{HealthyOnly: true})
	w.await(a)
	_, err = c.Instances(bounded(t), svc("other"), naming.Filter{})
	require.ErrorIs(t, err, client.ErrNotConnected)
	left, err := filepath.Glob(filepath.Join(dir, "naming", "public", ".writing-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}

func TestDisk_FilesOfOtherSDKsAndBrokenOnes(t *testing.T) {
	dir := t.TempDir()
	folder := filepath.Join(dir, "naming", "public")
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "DEFAULT_GROUP@@folder"), 0o755))
	full := `{"name":"java","groupName":"g","clusters":"","cacheMillis":10000,"hosts":[{"ip":"10.0.0.1","port":1,"weight":1.0,"healthy":true,"enabled":true,"ephemeral":true,"clusterName":"DEFAULT","metadata":{}}],"lastRefTime":1700000001000,"checksum":"","allIPs":false}`
	for name, text := range map[string]string{
		"g%40%40java":                  full,
		"g@@go":                        strings.ReplaceAll(full, `"name":"java"`, `"name":"g@@go"`),
		"g%40%40lines":                 `{"ip":"10.0.0.1","port":1}` + "\n\n" + `{"ip":"10.0.0.2","port":2,"weight":3}` + "\n",
		"g%40%40empty":                 `{"name":"empty","groupName":"g","hosts":[]}`,
		"g%40%40cut":                   full[:100],
		"g%40%40nothing":               "",
		"g%40%40zeros":                 "\x00\x00\x00",
		"g%40%40other":                 `[1,2]`,
		"g%40%40lines-cut":             `{"ip":"10.0.0.1","port":1}` + "\n" + `{"ip":"10.`,
		"g%40%40java%40%40meta":        full,
		"g%40%40java%40%40special-url": full,
		"g%40%40java@@east":            full,
		"g%40%40b%":                    full,
		"README":                       "hello",
		".writing-1":                   full,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	c := dial(t, offline(t, dir))
	for name, want := range map[string]int{"java": 1, "go": 1, "lines": 2, "empty": -1, "cut": -1, "nothing": -1, "zeros": -1, "other": -1, "lines-cut": -1} {
		list, err := c.Instances(bounded(t), naming.ServiceKey{Group: "g", Name: name}, naming.Filter{})
		if want < 0 {
			require.ErrorIs(t, err, client.ErrNotConnected, name)
			continue
		}
		require.NoError(t, err, name)
		require.Len(t, list.Instances, want, name)
	}
}

func TestDisk_FolderThatCannotBeMade(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	require.NoError(t, os.WriteFile(file, nil, 0o644))
	_, err := client.New(t.Context(), offline(t, file))
	require.ErrorContains(t, err, "CacheDir")
}

func TestFailover_SwitchedOnAndOff(t *testing.T) {
	node := clienttest.Start(t)
	dir := t.TempDir()
	cfg := config(t, node)
	cfg.CacheDir, cfg.FailoverInterval = dir, 10*time.Millisecond
	c := dial(t, cfg)
	w, other := subscribed(t, c, svc("orders"), naming.Filter{}), subscribed(t, c, svc("other"), naming.Filter{})
	require.NoError(t, c.Register(bounded(t), svc("orders"), host(1)))
	require.NoError(t, c.Register(bounded(t), svc("other"), host(1)))
	w.await(host(1))
	other.await(host(1))

	folder := filepath.Join(dir, "naming", "public", "failover")
	require.NoError(t, os.MkdirAll(folder, 0o755))
	put := func(name, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644))
	}
	put("DEFAULT_GROUP%40%40orders", `{"name":"orders","groupName":"DEFAULT_GROUP","hosts":[{"ip":"10.9.9.9","port":9}]}`)
	put("DEFAULT_GROUP%40%40other", `{"name":"other","groupName":"DEFAULT_GROUP","hosts":[]}`)
	put(switchFile, "what?\n")
	time10 := time.Now().Add(-10 * time.Second)
	touch := func() {
		time10 = time10.Add(time.Second)
		require.NoError(t, os.Chtimes(filepath.Join(folder, switchFile), time10, time10))
	}
	touch()
	put(switchFile, "1\n")
	touch()
	nine := naming.NewInstance("10.9.9.9", 9)
	w.await(nine)
	before := w.count()
	require.NoError(t, c.Register(bounded(t), svc("orders"), host(2)))
	require.NoError(t, c.Register(bounded(t), svc("other"), host(2)))
	other.await(host(1), host(2)) // without a file that has an instance all is as usual
	require.Equal(t, before, w.count(), "changes at the server are not told")
	i, err := c.Select(bounded(t), svc("orders"), "")
	require.NoError(t, err)
	require.Equal(t, nine.Key(), i.Key())
	late := subscribed(t, c, svc("orders"), naming.Filter{})
	late.await(nine)

	put("DEFAULT_GROUP%40%40orders", `{"name":"orders","groupName":"DEFAULT_GROUP","hosts":[{"ip":"10.9.9.8","port":9}]}`)
	touch()
	w.await(naming.NewInstance("10.9.9.8", 9))
	put(switchFile, "0\n")
	touch()
	w.await(host(1), host(2))
	put(switchFile, "1\n")
	touch()
	w.await(naming.NewInstance("10.9.9.8", 9))
	require.NoError(t, os.Remove(filepath.Join(folder, switchFile)))
	w.await(host(1), host(2))
}
