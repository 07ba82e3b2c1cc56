package consistency_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/consistency"
)

func TestRequest(t *testing.T) {
	require.Nil(t, consistency.RequestOf(t.Context()))
	require.Empty(t, consistency.RequestOf(t.Context()).ID())
	consistency.RequestOf(t.Context()).Wrote(3)

	ctx, r := consistency.WithRequest(t.Context(), "id")
	require.Same(t, r, consistency.RequestOf(ctx))
	require.Equal(t, "id", consistency.RequestOf(ctx).ID())
	require.Zero(t, r.Index())
	for _, index := range []uint64{3, 9, 5} {
		consistency.RequestOf(ctx).Wrote(index)
	}
	require.EqualValues(t, 9, r.Index(), "the highest one counts")
}
