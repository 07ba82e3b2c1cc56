package integration

import (
	"encoding/json"
	"net/http"
	"net/url"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Section A of the cases: names, groups, namespaces, encoding. Searching, and what is
// about the records of namespaces, is in cases_catalog_test.go.

// texts that a double decoding, a split or a charset would change.
func awkwardTexts() []string {
	return []string{
		"1+,2", "+", "a b", "%2B", "%252B", "100%", "%zz", "a&b=c", "=", ";", "a;b=c", "#?/", `"quoted"`, `back\slash`,
		"{\"x\":[1]}", "tab\tand\nline", "é", "e\u0301", "日本語", "😀", "<b>&amp;</b>", "' OR 1=1", " ", "null", "\u2028",
	}
}

func TestC001_PlusSignInMetadata(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newService(t)
		metadata := map[string]string{}
		for k, text := range awkwardTexts() {
			metadata["k"+string(rune('a'+k))] = text
		}
		metadata["key+with %&= signs"] = "1+,2"
		w.send(t, n, s, Instance("127.0.0.1", 8080, Fields{"metadata": metadata})).accepted(t)
		require.Equal(t, metadata, onlyHost(t, readEverywhere(t, n, s)).Metadata)
		require.Equal(t, metadata, detail(t, n, s.at("127.0.0.1", 8080)).Metadata)

		if w.persistent || w.name == "beat" {
			return
		}
		// The same through an operator's update, in the query and in a form.
		changed := map[string]string{}
		for k, v := range metadata {
			changed[k] = v + "+,%2B"
		}
		text, err := json.Marshal(changed)
		require.NoError(t, err)
		p := s.at("127.0.0.1", 8080).With(Params{"metadata": string(text)})
		requireOK(t, n.Query(t, http.MethodPut, v1Instance, p))
		require.Equal(t, changed, onlyHost(t, readEverywhere(t, n, s)).Metadata)
		requireResultOK(t, n.Do(t, http.MethodPut, v2Instance, p))
		require.Equal(t, changed, onlyHost(t, readEverywhere(t, n, s)).Metadata)
	})
}

func TestC003_BeatBodyWithSpecialCharacters(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	metadata := Fields{"k": `&=+%"`, "u": "a&b=c+d%20", "plain": "x"}
	want := map[string]string{"k": `&=+%"`, "u": "a&b=c+d%20", "plain": "x"}

	t.Run("encoded", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		register(t, n, s.at("127.0.0.1", 8080).With(Params{"metadata": metadataJSON(t, "k", `&=+%"`)}))
		text := fullBeat(t, Fields{"ip": "127.0.0.1", "port": 8080, "serviceName": "DEFAULT_GROUP@@" + s.Name, "metadata": metadata})
		for _, send := range []func(testing.TB, string, string, Params, ...HTTPOption) Response{n.Do, n.Query} {
			resp := send(t, http.MethodPut, v1Beat, s.Params().With(Params{"beat": text}))
			require.Equal(t, http.StatusOK, resp.Status, resp.Body)
			require.Equal(t, 10200, resp.Result(t).Code, resp.Body)
			require.Equal(t, map[string]string{"k": `&=+%"`}, onlyHost(t, list(t, n, s.Params())).Metadata,
				"a beat doesn't change the metadata of what is registered")
		}
		unknown := newService(t)
		answer := beat(t, n, unknown.Params().With(Params{"beat": text}))
		require.Equal(t, 10200, answer.Code)
		require.Equal(t, want, onlyHost(t, list(t, n, unknown.Params())).Metadata)
	})

	// A raw body is cut at the first & of the metadata, or its escapes are decoded:
	// what remains is no JSON.
	for name, value := range map[string]string{"ampersand": "x&y", "ampersand and equals": "x&y=1", "quote by escape": "x%22y"} {
		t.Run("raw "+name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			body := "serviceName=DEFAULT_GROUP@@" + s.Name +
				`&beat={"ip":"127.0.0.1","port":8080,"weight":7,"metadata":{"k":"` + value + `"}}`
			resp := n.Raw(t, http.MethodPut, v1Beat, "", body)
			require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
			requireNothing(t, n, s)

			register(t, n, s.at("127.0.0.1", 8080).With(Params{"weight": "2"}))
			resp = n.Raw(t, http.MethodPut, v1Beat, "", body)
			require.Equal(t, http.StatusBadRequest, resp.Status, resp.Body)
			h := onlyHost(t, list(t, n, s.Params()))
			require.InDelta(t, 2, h.Weight, 0)
			require.Empty(t, h.Metadata)
		})
	}

	// What Go 1.x really sends: a raw body that is whole.
	t.Run("raw whole", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		body := "namespaceId=public&serviceName=DEFAULT_GROUP@@" + s.Name +
			`&beat={"ip":"127.0.0.1","port":8080,"weight":1,"serviceName":"DEFAULT_GROUP@@` + s.Name +
			`","cluster":"DEFAULT","metadata":{"k":"a;b=c 1+2 x"},"scheduled":false}`
		resp := n.Raw(t, http.MethodPut, v1Beat, "", body, WithHeader("Content-Type", "application/x-www-form-urlencoded;charset=utf-8"))
		require.Equal(t, http.StatusOK, resp.Status, resp.Body)
		require.Equal(t, 10200, resp.Result(t).Code, resp.Body)
		require.Contains(t, onlyHost(t, list(t, n, s.Params())).Metadata["k"], "a;b=c")
	})
}

func TestC005_CommaInMetadataValue(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	for name, value := range map[string]string{
		"list": "a,b,c", "pairs": "a=1,b=2", "edges": ",a,", "json": `["a","b"]`, "spaced": "a, b , c",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			register(t, n, s.at("127.0.0.1", 8080))
			p := s.at("127.0.0.1", 8080).With(Params{"metadata": metadataJSON(t, "methods", value)})
			update(t, n, p)
			require.Equal(t, value, onlyHost(t, readEverywhere(t, n, s)).Metadata["methods"])

			p["metadata"] = metadataJSON(t, "methods", value+",2")
			requireResultOK(t, n.Do(t, http.MethodPut, v2Instance, p))
			require.Equal(t, value+",2", onlyHost(t, readEverywhere(t, n, s)).Metadata["methods"])

			p["metadata"] = metadataJSON(t, "methods", value+",3")
			requireOK(t, n.Do(t, http.MethodPatch, v1Instance, p))
			require.Equal(t, value+",3", onlyHost(t, readEverywhere(t, n, s)).Metadata["methods"])
		})
	}
	t.Run("persistent", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		register(t, n, s.at("127.0.0.1", 8080).With(Params{"ephemeral": "false"}))
		update(t, n, s.at("127.0.0.1", 8080).With(Params{"ephemeral": "false", "metadata": metadataJSON(t, "methods", "a,b,c")}))
		require.Equal(t, "a,b,c", onlyHost(t, readEverywhere(t, n, s)).Metadata["methods"])
		deregister(t, n, s.at("127.0.0.1", 8080).With(Params{"ephemeral": "false"}))
	})
}

func TestC007_NestedMetadata(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	nested := map[string]string{
		"the report's":    `[{"id":"x","p":[{"n":"Path"}]}]`,
		"object in value": `{"a":{"b":"c"}}`,
		"array in value":  `{"a":["b"]}`,
		"a string":        `"a"`,
		"unfinished":      `{"a":`,
	}
	mustBeFlat := func(t *testing.T, r Response) {
		t.Helper()
		require.Equal(t, http.StatusBadRequest, r.Status, r.Body)
		text := strings.ToLower(r.Body)
		require.Contains(t, text, "metadata")
		require.True(t, strings.Contains(text, "flat") || strings.Contains(text, "string"),
			"the answer has to say that metadata is a flat object of strings: %s", r.Body)
	}
	for name, metadata := range nested {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			createService(t, n, s, Params{"metadata": metadataJSON(t, "owner", "me"), "protectThreshold": "0.25"})
			bad := s.Params().With(Params{"metadata": metadata, "protectThreshold": "0.5"})
			mustBeFlat(t, n.Do(t, http.MethodPut, v1Service, bad))
			mustBeFlat(t, n.Do(t, http.MethodPut, v2Service, bad))
			mustBeFlat(t, n.Do(t, http.MethodPost, v1Service, bad.With(Params{"serviceName": uniqueName(t)})))

			var service struct {
				Metadata  map[string]string `json:"metadata"`
				Threshold float64           `json:"protectThreshold"`
			}
			n.Do(t, http.MethodGet, v1Service, s.Params()).JSON(t, &service)
			require.Equal(t, map[string]string{"owner": "me"}, service.Metadata)
			require.InDelta(t, 0.25, service.Threshold, 1e-6)

			// The neighbours: instances.
			register(t, n, s.at("127.0.0.1", 8080).With(Params{"metadata": metadataJSON(t, "v", "1")}))
			instance := s.at("127.0.0.1", 8080).With(Params{"metadata": metadata})
			mustBeFlat(t, n.Do(t, http.MethodPost, v1Instance, instance))
			mustBeFlat(t, n.Do(t, http.MethodPut, v1Instance, instance))
			mustBeFlat(t, n.Do(t, http.MethodPatch, v1Instance, instance))
			mustBeFlat(t, n.Do(t, http.MethodPost, v2Instance, instance))
			mustBeFlat(t, n.Do(t, http.MethodPut, v2Instance, instance))
			require.Equal(t, map[string]string{"v": "1"}, onlyHost(t, list(t, n, s.Params())).Metadata)
		})
	}
	t.Run("gRPC and beats", func(t *testing.T) {
		t.Parallel()
		s := newService(t)
		bad := Instance("127.0.0.1", 8080, Fields{"metadata": Fields{"a": Fields{"b": "c"}}})
		for _, w := range waysOf(t, n) {
			if w.grpc || w.name == "beat" {
				w.send(t, n, s, bad).refused(t)
				w.send(t, n, s, bad.With(Fields{"metadata": []string{"a"}})).refused(t)
			}
		}
		requireNothing(t, n, s)
	})
}

func TestC009_LookAlikeHyphenInServiceName(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		for _, hyphen := range []string{"\u2010", "\u2011", "\u2013", "\u2212", "\uff0d"} {
			s := newService(t)
			odd := Service{Name: s.Name + hyphen + "a"}
			ascii := Service{Name: s.Name + "-a"}
			w.send(t, n, odd, Instance("127.0.0.1", 8080)).accepted(t)
			requireHosts(t, n, ascii)
			h := onlyHost(t, readEverywhere(t, n, odd))
			require.Equal(t, "DEFAULT_GROUP@@"+odd.Name, h.ServiceName)
		}
		// Stored unnormalised: one letter, and the letter with an accent of its own.
		s := newService(t)
		composed, combined := Service{Name: s.Name + "é"}, Service{Name: s.Name + "e\u0301"}
		w.send(t, n, composed, Instance("127.0.0.1", 8080)).accepted(t)
		requireHosts(t, n, combined)
		w.send(t, n, combined, Instance("127.0.0.2", 8080)).accepted(t)
		requireHosts(t, n, composed, "127.0.0.1:8080")
		requireHosts(t, n, combined, "127.0.0.2:8080")
		// Banned: Chinese characters U+4E00 to U+9FA5, at the start and elsewhere, and
		// white space of every kind.
		for _, name := range []string{"中x", "x中", "x\u4e00", "x\u9fa5", "x y", "x\ty", "x\u00a0y", "x\u3000y", "x\u2003y"} {
			w.send(t, n, Service{Name: s.Name + name}, Instance("127.0.0.1", 8080)).refused(t)
			w.send(t, n, Service{Name: name + s.Name}, Instance("127.0.0.1", 8080)).refused(t)
		}
		w.send(t, n, Service{Name: s.Name + "\u9fa6"}, Instance("127.0.0.1", 8080)).accepted(t)
	})
}

func TestC011_SeparatorInsideNames(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		for _, bad := range []struct{ group, name string }{
			{"g", "a@@b@@c"}, {"", "@svc"}, {"@g@", "svc"}, {"g@@h", "svc"}, {"@@", "svc"}, {"g", "@@svc"}, {"g", "a@@b@@"},
		} {
			s := newNamespace(t)
			s.Group, s.Name = bad.group, bad.name
			w.send(t, n, s, Instance("127.0.0.1", 8080)).refused(t)
			for _, group := range []string{"", "g", "a", "h"} {
				require.Empty(t, serviceNames(t, n, Service{Namespace: s.Namespace, Group: group}), "%+v", bad)
			}
		}
		// One @ inside a name is no separator.
		s := newNamespace(t)
		s.Name = "a@b"
		w.send(t, n, s, Instance("127.0.0.1", 8080)).accepted(t)
		require.Equal(t, "DEFAULT_GROUP@@a@b", onlyHost(t, list(t, n, s.Params())).ServiceName)
		require.Equal(t, []string{"a@b"}, serviceNames(t, n, s))
	})
}

func TestC013_TrailingSpaceInServiceName(t *testing.T) {
	t.Parallel()
	// A trailing space is refused, so that no second service of the same look can exist.
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newNamespace(t)
		for _, name := range []string{"svc-a ", "svc-a\t", "svc-a\u00a0"} {
			bad := s
			bad.Name = name
			w.send(t, n, bad, Instance("127.0.0.1", 8080)).refused(t)
		}
		require.Empty(t, serviceNames(t, n, s))
	})
}

func TestC019_NamespaceWithBlanks(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		good := Service{Namespace: uniqueName(t), Name: "svc-a"}
		for _, namespace := range []string{
			good.Namespace + " ", " " + good.Namespace, "a b", "a.b", "a/b", "a\tb", "é", "a@@b", repeated(65), good.Namespace + "\u00a0",
		} {
			w.send(t, n, Service{Namespace: namespace, Name: "svc-a"}, Instance("127.0.0.1", 8080)).refused(t)
		}
		requireNothing(t, n, good)
		w.send(t, n, good, Instance("127.0.0.1", 8080)).accepted(t)
		requireHosts(t, n, good, "127.0.0.1:8080")

		long := Service{Namespace: good.Namespace + "_" + repeated(63-len(good.Namespace)), Name: "svc-a"}
		w.send(t, n, long, Instance("127.0.0.1", 8080)).accepted(t)
		requireHosts(t, n, long, "127.0.0.1:8080")
	})
	t.Run("reads", func(t *testing.T) {
		t.Parallel()
		n := sharedNode(t)
		for _, path := range []string{v1List, v2List} {
			resp := n.Do(t, http.MethodGet, path, Params{"serviceName": "svc-a", "namespaceId": "dev "})
			require.Equal(t, http.StatusBadRequest, resp.Status, "%s: %s", path, resp.Body)
		}
		s := Service{Namespace: "dev ", Name: "svc-a"}
		c := Connect(t, n.GRPCAddr())
		c.Call(t, "ServiceQueryRequest", s.fields().With(Fields{"cluster": ""})).Refused(t, 400)
		c.Call(t, "SubscribeServiceRequest", s.fields().With(Fields{"clusters": "", "subscribe": true})).Refused(t, 400)
	})
}

func TestC021_MetadataSizeLimit(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, n *Node, w way) {
		s := newService(t)
		// Keys and values count together.
		over := map[string]string{"k1": repeated(500), "k2": repeated(521)}
		o := w.send(t, n, s, Instance("127.0.0.1", 8080, Fields{"metadata": over}))
		o.refused(t)
		require.Contains(t, o.text, "1024", "the answer has to state the limit")
		o = w.send(t, n, s, Instance("127.0.0.1", 8080, Fields{"metadata": map[string]string{"k": repeated(1024)}}))
		o.refused(t)
		requireNothing(t, n, s)

		full := map[string]string{"k1": repeated(500), "k2": repeated(520)}
		w.send(t, n, s, Instance("127.0.0.1", 8080, Fields{"metadata": full})).accepted(t)
		require.Equal(t, full, onlyHost(t, readEverywhere(t, n, s)).Metadata)
	})
}

func TestC021_MetadataSizeLimitConfigured(t *testing.T) {
	t.Parallel()
	n := StartNode(t, WithEnv("ROLLCALL_METADATA_LIMIT=65536"))
	metadata := map[string]string{"big": repeated(60<<10 - 3)}
	over := map[string]string{"big": repeated(65536 - 2)}
	for _, w := range waysOf(t, n) {
		t.Run(w.name, func(t *testing.T) {
			s := newService(t)
			if strings.HasSuffix(w.name, "query") {
				t.Skip("the value does not fit into a URL")
			}
			w.send(t, n, s, Instance("127.0.0.1", 8080, Fields{"metadata": over})).refused(t)
			requireNothing(t, n, s)
			w.send(t, n, s, Instance("127.0.0.1", 8080, Fields{"metadata": metadata})).accepted(t)
			require.Equal(t, metadata, onlyHost(t, readEverywhere(t, n, s)).Metadata)
			sub := Connect(t, n.GRPCAddr())
			sub.Subscribe(t, s, "")
			require.Equal(t, metadata, onlyHost(t, sub.NextPush(t, soon)).Metadata)
		})
	}
}

// A parameter given twice, in the query and in the body: the query wins, also for
// texts that only one of the two encodes.
func TestC001_QueryAndBodyTogether(t *testing.T) {
	t.Parallel()
	n := sharedNode(t)
	s := newService(t)
	query := s.at("127.0.0.1", 8080).With(Params{"metadata": metadataJSON(t, "k", "1+,2")})
	body := s.at("127.0.0.9", 9999).With(Params{"metadata": metadataJSON(t, "k", "body"), "weight": "3"})
	requireOK(t, n.Raw(t, http.MethodPost, v1Instance, query.encode(), body.encode()))
	h := onlyHost(t, list(t, n, s.Params()))
	require.Equal(t, "127.0.0.1:8080", h.Addr())
	require.Equal(t, "1+,2", h.Metadata["k"])
	require.InDelta(t, 3, h.Weight, 0, "what stands only in the body counts, too")

	// Unencoded, as Go 1.x puts values into queries: + means a blank there.
	raw := "serviceName=" + s.Name + "&ip=127.0.0.2&port=8080&metadata=" + url.QueryEscape(metadataJSON(t, "k", "a b"))
	requireOK(t, n.Raw(t, http.MethodPost, v1Instance, strings.ReplaceAll(raw, "%20", "+"), ""))
	h, ok := list(t, n, s.Params()).Host("127.0.0.2:8080")
	require.True(t, ok)
	require.Equal(t, "a b", h.Metadata["k"])
}
