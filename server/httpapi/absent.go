package httpapi

import (
	"net/http"
	"strings"

	"rollcall/server/wire"
)

// absent are the parts of the original that Rollcall has not, by where their paths
// begin behind /nacos or alone, with what to use instead.
func absent(path string) (part string, ok bool) {
	path = strings.TrimPrefix(path, "/nacos")
	for _, a := range [...]struct{ prefix, part string }{
		{"/v1/cs/", configuration},
		{"/v2/cs/", configuration},
		{"/v3/client/cs/", configuration},
		{"/v3/admin/cs/", configuration},
		{"/v3/console/cs/", configuration},
		{"/v3/client/ai/", registries},
		{"/v3/admin/ai/", registries},
		{"/v3/console/ai/", registries},
		{"/v3/admin/core/plugin", plugins},
		{"/v3/console/plugin", plugins},
	} {
		if strings.HasPrefix(path, a.prefix) {
			return a.part, true
		}
	}
	return "", false
}

const (
	configuration = "Rollcall has no configuration management: give clients the address of a configuration server for it"
	registries    = "Rollcall has no registry of AI services: it registers services of any kind by the naming API"
	plugins       = "Rollcall has no plugins"
)

// absentAnswer says that a part of the original is not here: in version 1 as a text, as
// its clients expect of a configuration that does not exist, later as a result. What
// would have to be stored is gone for good.
func absentAnswer(r *http.Request, part string) answer {
	status, code := http.StatusNotFound, wire.CodeNotFound
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		status, code = http.StatusGone, wire.CodeAbsent
	}
	if strings.Contains(r.URL.Path, "/v1/") {
		return answer{status, plainText, []byte(part)}
	}
	return answer{status, jsonType, result(code, wire.AppendString(nil, part))}
}
