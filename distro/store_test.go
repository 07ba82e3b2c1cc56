package distro_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/consistency/storetest"
	"rollcall/distro"
	"rollcall/naming"
)

func open(t *testing.T) *distro.Store {
	t.Helper()
	s, err := distro.New(distro.Config{Node: "n1"})
	require.NoError(t, err)
	require.NoError(t, s.Start())
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

func TestStore_Contract(t *testing.T) {
	storetest.Run(t, func(t *testing.T) consistency.Store { return open(t) })
}

func TestStore_ReadyBetweenStartAndClose(t *testing.T) {
	s, err := distro.New(distro.Config{Node: "n1"})
	require.NoError(t, err)
	p := consistency.Publication{Service: naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}, Publisher: "p"}
	require.ErrorIs(t, s.Ready(), consistency.ErrNotReady)
	require.ErrorIs(t, s.Publish(t.Context(), p), consistency.ErrNotReady)
	require.NoError(t, s.Start())
	require.NoError(t, s.Publish(t.Context(), p))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Publish(t.Context(), p), consistency.ErrClosed)
}

func TestConfig_NodeIsRequired(t *testing.T) {
	_, err := distro.New(distro.Config{})
	require.ErrorContains(t, err, "node")
}
