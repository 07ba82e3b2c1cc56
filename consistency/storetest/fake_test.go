package storetest_test

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
	"rollcall/consistency/storetest"
	"rollcall/naming"
)

func TestFake_Contract(t *testing.T) {
	storetest.Run(t, func(*testing.T) consistency.Store { return storetest.NewFake() })
}

func TestFake_FailRefusesWrites(t *testing.T) {
	f := storetest.NewFake()
	fault := errors.New("no")
	f.Fail(fault)
	svc := naming.ServiceKey{Namespace: "public", Group: "g", Name: "s"}
	i := naming.NewInstance("10.0.0.1", 80)
	p := consistency.Publication{Service: svc, Publisher: "p", Instances: []*naming.Instance{&i}}
	require.ErrorIs(t, f.Publish(t.Context(), p), fault)
	require.ErrorIs(t, f.Ready(), fault)
	require.Zero(t, f.Writes())

	f.Fail(nil)
	require.NoError(t, f.Publish(t.Context(), p))
	require.NoError(t, f.Ready())
	require.Equal(t, 1, f.Writes())
}
