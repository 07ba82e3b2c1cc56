package httpapi

import (
	"maps"
	"net/http"
	"slices"
	"strings"

	"rollcall/server/wire"
)

// openAPI serves the description of the protocol's paths (OpenAPI 3.0.3), which is
// made from the table that serves them.
func (s *Server) openAPI(w http.ResponseWriter, _ *http.Request) {
	answer{http.StatusOK, "application/yaml;charset=UTF-8", describe(s.table(), s.cfg.Version)}.write(w)
}

// describe writes the description of a table.
func describe(t table, version string) []byte {
	var b strings.Builder
	line := func(depth int, parts ...string) {
		b.WriteString(strings.Repeat("  ", depth))
		for _, p := range parts {
			b.WriteString(p)
		}
		b.WriteByte('\n')
	}
	line(0, "openapi: 3.0.3")
	line(0, "info:")
	line(1, "title: Rollcall, the naming API of Nacos 1.x, 2.x and 3.x")
	line(1, "version: ", quoted(version))
	line(0, "paths:")
	for _, path := range slices.Sorted(maps.Keys(t)) {
		line(1, quoted(path), ":")
		for _, method := range slices.Sorted(maps.Keys(t[path])) {
			o := t[path][method]
			line(2, strings.ToLower(method), ":")
			line(3, "summary: ", quoted(o.says))
			line(3, "tags: [", tag(path), "]")
			takes := o.takes
			if method == http.MethodGet {
				takes += " consistent"
			}
			parameters := parametersOf(path, takes)
			if len(parameters) > 0 {
				line(3, "parameters:")
			}
			for _, p := range parameters {
				line(4, "- name: ", p.name)
				line(5, "in: ", p.in)
				if p.required {
					line(5, "required: true")
				}
				line(5, "schema: {type: ", schemaType(p.name), "}")
			}
			line(3, "responses:")
			line(4, `"200": {description: done}`)
			line(4, `"400": {description: a value is missing or wrong, the text names it}`)
			if method == "GET" {
				line(4, `"404": {description: there is no such thing}`)
			}
			line(4, `"503": {description: the node starts, or cannot write now}`)
		}
	}
	return []byte(b.String())
}

// quoted is a text in JSON, which is YAML too.
func quoted(s string) string { return string(wire.AppendString(nil, s)) }

// tag groups operations by the version and the part of the API.
func tag(path string) string {
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, "/nacos"), "/"), "/")
	switch {
	case len(parts) > 2 && parts[0] == "v3":
		return parts[0] + "-" + parts[1] + "-" + parts[2]
	case len(parts) > 1:
		return parts[0] + "-" + parts[1]
	}
	return parts[0]
}

// described is one parameter.
type described struct {
	name, in string
	required bool
}

// parametersOf returns the parameters of an operation; those within the path first.
// The others may stand in the query or in a form alike.
func parametersOf(path, takes string) []described {
	var out []described
	for name := range strings.FieldsSeq(takes) {
		name, required := strings.CutSuffix(name, "!")
		p := described{name, "query", required}
		if strings.Contains(path, "{"+name+"}") {
			p.in, p.required = "path", true
		}
		out = append(out, p)
	}
	for part := range strings.SplitSeq(path, "/") {
		name, ok := strings.CutPrefix(part, "{")
		if name = strings.TrimSuffix(name, "}"); ok && !slices.ContainsFunc(out, func(p described) bool { return p.name == name }) {
			out = append(out, described{name, "path", true})
		}
	}
	slices.SortStableFunc(out, func(a, b described) int { return strings.Compare(a.in, b.in) })
	return out
}

// schemaType is the type of a parameter's value, whose name says it everywhere.
func schemaType(name string) string {
	switch name {
	case "port", "udpPort", "checkPort", "pageNo", "pageSize", "count":
		return "integer"
	case "weight", "protectThreshold", "loaderFactor":
		return "number"
	case "healthy", "enabled", "enable", "ephemeral", "healthyOnly", "enabledOnly", "hasIpCount", "withInstances", "ignoreEmptyService",
		"useInstancePort4Check", "onlyStatus", "debug", "detail", "reset", "aggregation", "consistent", "responsibleOnly", "heartBeat", "valid":
		return "boolean"
	}
	return "string"
}
