package server

import (
	"testing"

	"github.com/stretchr/testify/require"

	"rollcall/naming"
)

func TestServicePage_Selector(t *testing.T) {
	f := newFixture(t)
	f.begin(t)
	put := func(name string, s *naming.Settings, instances ...*naming.Instance) {
		for _, i := range instances {
			require.NoError(t, f.Register(t.Context(), service(name), i.Key().Address(), i))
		}
		if s != nil {
			require.NoError(t, f.UpdateService(t.Context(), service(name), *s))
		}
	}
	put("a", nil, host("10.0.0.1", meta("zone", "east", "v", "1")), host("10.0.0.2", meta("zone", "west", "v", "2")))
	put("b", &naming.Settings{Metadata: map[string]string{"owner": "me"}}, host("10.0.0.3", meta("zone", "east", "v", "2")))
	for expression, want := range map[string][]string{
		"":                                {"a", "b"},
		"  ":                              {"a", "b"},
		"INSTANCE.metadata.zone='east'":   {"a", "b"},
		"INSTANCE.metadata.zone = west":   {"a"},
		"INSTANCE.metadata.zone = 'none'": nil,
		"INSTANCE.metadata.zone='east' & INSTANCE.metadata.v='2'": {"b"}, // of one instance
		"SERVICE.metadata.owner='me'":                             {"b"},
		"SERVICE.metadata.owner='you'":                            nil,
		"INSTANCE.label.zone = 'west'":                            {"a"},
		"SERVICE.label.owner = 'me'":                              {"b"},
		"INSTANCE.metadata.zone.a = 'west'":                       nil,
	} {
		names, count, err := f.ServicePage("public", "g", expression, 1, 10)
		require.NoError(t, err, expression)
		require.Equal(t, want, names, expression)
		require.Len(t, want, count)
	}
	for _, bad := range []string{"x", "INSTANCE.metadata.=1", "INSTANCE.zone='east'", "HOST.metadata.zone='east'", "INSTANCE.tag.zone='east'", "INSTANCE.metadata.zone", "&", "a=b"} {
		_, _, err := f.ServicePage("public", "g", bad, 1, 10)
		fault(t, naming.FaultSelector, err)
	}
}
