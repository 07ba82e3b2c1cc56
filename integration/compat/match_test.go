package compat

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func parse(t *testing.T, text string) any {
	t.Helper()
	v, err := parseJSON([]byte(text))
	require.NoError(t, err)
	return v
}

func TestMatcher(t *testing.T) {
	for _, c := range []struct {
		name      string
		want, got string
		partial   bool
		twin      string
		differs   []string // the paths that differ
	}{
		{name: "equal", want: `{"a":1,"b":[true,null,"x"]}`, got: `{"b":[true,null,"x"],"a":1.0}`},
		{name: "number by value", want: `{"a":1e2}`, got: `{"a":100}`},
		{name: "another number", want: `{"a":1}`, got: `{"a":1.5}`, differs: []string{"/a"}},
		{name: "number as text", want: `{"a":1}`, got: `{"a":"1"}`, differs: []string{"/a"}},
		{name: "null is recorded", want: `{"a":null}`, got: `{}`, differs: []string{"/a"}},
		{name: "null is no empty text", want: `{"a":null}`, got: `{"a":""}`, differs: []string{"/a"}},
		{name: "missing key", want: `{"a":1,"b":2}`, got: `{"a":1}`, differs: []string{"/b"}},
		{name: "key too many", want: `{"a":1}`, got: `{"a":1,"b":2}`, differs: []string{"/b"}},
		{name: "key too many, partial", want: `{"a":1}`, got: `{"a":1,"b":2}`, partial: true},
		{name: "key of the twin", want: `{"a":1}`, got: `{"a":1,"b":2}`, twin: `{"a":1,"b":9}`},
		{name: "key of the twin elsewhere", want: `{"a":{"c":1}}`, got: `{"a":{"c":1,"b":2}}`, twin: `{"b":9}`, differs: []string{"/a/b"}},
		{name: "order of a list counts", want: `{"a":[1,2]}`, got: `{"a":[2,1]}`, differs: []string{"/a/0", "/a/1"}},
		{name: "length of a list", want: `{"a":[1]}`, got: `{"a":[1,1]}`, differs: []string{"/a"}},
		{name: "a set has no order", want: `{"doms":["x","y"]}`, got: `{"doms":["y","x"]}`},
		{name: "a set has no doubles", want: `{"doms":["x","y"]}`, got: `{"doms":["x","x"]}`, differs: []string{"/doms/1"}},
		{name: "element too many", want: `{"doms":["x"]}`, got: `{"doms":["x","y"]}`, differs: []string{"/doms/1"}},
		{name: "element too many, partial", want: `{"doms":["x"],"count":1}`, got: `{"doms":["y","x"],"count":2}`, partial: true},
		{name: "element missing, partial", want: `{"doms":["x"],"count":1}`, got: `{"doms":["y"],"count":0}`, partial: true, differs: []string{"/count", "/doms/0"}},
		{name: "a number that is no count, partial", want: `{"weight":1}`, got: `{"weight":2}`, partial: true, differs: []string{"/weight"}},
		{name: "lists under data are sets", want: `{"data":["x","y"]}`, got: `{"data":["y","x"]}`},
		{
			name: "lists of namespaces are not", want: `{"data":[{"namespaceShowName":"public"},{"namespaceShowName":"b"}]}`,
			got: `{"data":[{"namespaceShowName":"b"},{"namespaceShowName":"public"}]}`, differs: []string{"/data/0/namespaceShowName", "/data/1/namespaceShowName"},
		},
		{name: "service names are a set", want: `{"META-INF/services":{"n":["x","y"]}}`, got: `{"META-INF/services":{"n":["y","x"]}}`},
		{name: "a service's list is read leniently", want: `{"cacheMillis":1,"hosts":[{"ip":"a"}]}`, got: `{"cacheMillis":1,"dom":"x","hosts":[{"ip":"a","valid":true}]}`},
		{name: "but not what is below a host", want: `{"cacheMillis":1,"hosts":[{"metadata":{}}]}`, got: `{"cacheMillis":1,"hosts":[{"metadata":{"a":"b"}}]}`, differs: []string{"/hosts/0/metadata/a"}},
		{name: "a list of hosts elsewhere is strict", want: `{"data":{"hosts":[{"ip":"a"}]},"x":1}`, got: `{"data":{"hosts":[{"ip":"a"}],"dom":"x"},"x":1}`, differs: []string{"/data/dom"}},
		{name: "the wrong host is named", want: `{"cacheMillis":1,"hosts":[{"ip":"a","w":1},{"ip":"b","w":1}]}`, got: `{"cacheMillis":1,"hosts":[{"ip":"b","w":2},{"ip":"a","w":1}]}`, differs: []string{"/hosts/0/w"}},
		{name: "a pairing that a greedy one misses", want: `{"list":["${text}","x"]}`, got: `{"list":["x","y"]}`},
		{name: "free number", want: `{"t":"${ms}","n":"${int}"}`, got: `{"t":1700000000000,"n":0}`},
		{name: "free number as text", want: `{"t":"${ms}"}`, got: `{"t":"1700000000000"}`, differs: []string{"/t"}},
		{name: "free number of another shape", want: `{"t":"${ms}"}`, got: `{"t":17}`, differs: []string{"/t"}},
		{name: "free text as number", want: `{"id":"${requestId}"}`, got: `{"id":17}`, differs: []string{"/id"}},
		{name: "text of a library may be absent", want: `{"a":"${javaText}"}`, got: `{}`},
		{name: "text of a library inside another", want: `{"a":"caused: ${javaText}"}`, got: `{"a":"other"}`, differs: []string{"/a"}},
		{name: "unknown placeholder", want: `{"a":"${nonsense}"}`, got: `{"a":"x"}`, differs: []string{"/a"}},
		{name: "another type", want: `{"a":{}}`, got: `{"a":[]}`, differs: []string{"/a"}},
		{name: "pointer escapes", want: `{"a/b":{"~":1}}`, got: `{"a/b":{"~":2}}`, differs: []string{"/a~1b/~0"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := Matcher{Names: NewNames(nil), Partial: c.partial}
			if c.twin != "" {
				m.Twin = parse(t, c.twin)
			}
			var paths []string
			for _, d := range m.JSON(parse(t, c.want), parse(t, c.got)) {
				paths = append(paths, d.Path)
			}
			require.Equal(t, c.differs, paths)
		})
	}
}

// change is one way to make a body wrong.
type change struct {
	path  string
	kind  string
	apply func() any // the changed body; the original is left alone
}

// changes lists the ways to make got, which is a sample of want, wrong.
func changes(want, got any) []change {
	var out []change
	var walk func(at place, want, got any, put func(any) any)
	add := func(at place, kind string, apply func() any) { out = append(out, change{at.path, kind, apply}) }
	walk = func(at place, want, got any, put func(any) any) {
		replace := func(kind string, v any) { add(at, kind, func() any { return put(v) }) }
		switch w := want.(type) {
		case nil:
			replace("null", "x")
		case bool:
			replace("bool", !w)
		case json.Number:
			replace("number", json.Number("-1000003.5"))
			replace("type", string(w))
		case string:
			if w == "${javaText}" || w == "${any}" {
				return
			}
			if number, ok := got.(json.Number); ok {
				if w != "${float}" {
					replace("number", json.Number("-0.5e-300"))
				}
				replace("type", number.String()+"x")
				return
			}
			text, _ := got.(string)
			if !strings.HasSuffix(w, "${javaText}") {
				replace("text", text+"\x01")
			}
			replace("type", json.Number("1"))
		case []any:
			g, _ := got.([]any)
			for i := range w {
				walk(at.element(i, at.key == "hosts"), w[i], g[i], func(v any) any {
					changed := slices.Clone(g)
					changed[i] = v
					return put(changed)
				})
			}
			if len(g) > 0 {
				replace("shorter", g[:len(g)-1])
			}
			replace("longer", append(slices.Clone(g), "one more"))
			replace("type", "x")
		case map[string]any:
			g, _ := got.(map[string]any)
			for key := range w {
				filled := key
				if _, ok := g[key]; !ok {
					if len(g) != 1 {
						continue // a placeholder among other keys
					}
					filled = slices.Collect(maps.Keys(g))[0]
				}
				walk(at.member(filled), w[key], g[filled], func(v any) any {
					changed := maps.Clone(g)
					changed[filled] = v
					return put(changed)
				})
				if w[key] != "${javaText}" {
					changed := maps.Clone(g)
					delete(changed, filled)
					replace("missing", changed)
				}
			}
			if !at.lenient && !isServiceInfo(w) {
				changed := maps.Clone(g)
				changed["zz-more"] = 1
				replace("more", changed)
			}
			replace("type", "x")
		}
	}
	walk(place{}, want, got, func(v any) any { return v })
	return out
}

// Over everything that was recorded: a sample of a body matches it, and no body
// with one thing changed does. A matcher that accepts anything would fail here
// tens of thousands of times.
func TestMatcher_RecordedBodies(t *testing.T) {
	g := loadGolden(t)
	bodies, tried := 0, 0
	for _, r := range g.recordings {
		for _, scenario := range r.Scenarios {
			for i, step := range scenario.Steps {
				e := recorded(step, "")
				if !e.HasJSON || e.JSON == nil || e.Any {
					continue
				}
				bodies++
				names := Target{Host: "127.0.0.1", HTTPPort: 8848}.Names()
				sample := names.sampleJSON(e.JSON)
				where := r.Group + "/" + r.Version + "/" + scenario.Name
				require.Empty(t, Matcher{Names: names}.JSON(e.JSON, sample), "%s step %d", where, i+1)
				all := changes(e.JSON, sample)
				// Of the large bodies some are enough.
				for n := 0; n < len(all); n += 1 + len(all)/15 {
					tried++
					found := Matcher{Names: names}.JSON(e.JSON, all[n].apply())
					require.NotEmpty(t, found, "%s step %d: %s at %s", where, i+1, all[n].kind, all[n].path)
				}
			}
		}
	}
	require.Greater(t, bodies, 1500)
	require.Greater(t, tried, 15000)
}
