package server_test

import (
	"slices"
	"strconv"
	"strings"
)

// Ways in which a value breaks a rule, which decide the form of the answer; any
// other one is a code of a v2 result.
const (
	asParam  = -1 // plain text on every path
	asFilter = -2 // the JSON of what a filter refuses
)

// bad is one bad value and how it is refused. Only the beginning of a text that
// ends in an ellipsis is fixed: the rest is a library's.
type bad struct {
	value string
	fault int
	text  string
}

func badChars(field string, values ...string) (out []bad) {
	for _, v := range values {
		out = append(out, bad{v, asParam, "Param '" + field + "' is illegal, illegal characters should not appear in the param."})
	}
	return out
}

func badLength(field string, limit int, values ...string) (out []bad) {
	for _, v := range values {
		out = append(out, bad{v, asParam, "Param '" + field + "' is illegal, the param length should not exceed " + strconv.Itoa(limit) + "."})
	}
	return out
}

func badTexts(fault int, text string, values ...string) (out []bad) {
	for _, v := range values {
		out = append(out, bad{v, fault, strings.ReplaceAll(text, "{}", v)})
	}
	return out
}

const (
	badName     = "Param 'serviceName' is illegal, it should be format as 'groupName@@serviceName'"
	badPort     = "Param 'port' is illegal, the value should be between 0 and 65535."
	badWeight   = "instance format invalid: The weights range from 0.0 to 10000.0"
	badMetadata = "Param 'metadata' is illegal, it should be a flat JSON object of strings or k=v pairs separated by commas: …"
	badBeat     = "Param 'beat' is illegal, it should be a JSON object with ip and port: …"
	badSelector = "Param 'selector' is illegal, it should be a JSON object with type and expression: …"
	badList     = "Param 'instances' is illegal, it should be a JSON list of objects with ip and port: …"
	badTimes    = "Instance 'heart beat interval' must less than 'heart beat timeout' and 'ip delete timeout'."
)

func badRepeat(s string, n int) string { return strings.Repeat(s, n) }

// badDeep is JSON that nests too deeply for any reader.
func badDeep() string { return `{"a":` + badRepeat("[", 20_000) + badRepeat("]", 20_000) + "}" }

// badValues returns the bad values of a kind of parameter. The kind is the
// parameter's name where one rule holds for it everywhere.
func badValues(kind string) []bad {
	switch kind {
	case "namespaceId":
		return slices.Concat(
			badChars("namespaceId/tenant", "a b", "a ", " a", "a.b", "a/b", "a@@b", "a#b", "é", "中", "a\x00", "a\n", "\xff", "\u202e", "[]", "{}"),
			badLength("namespaceId/tenant", 64, badRepeat("a", 65), badRepeat("é", 65), badRepeat("a", 100_000)),
		)
	case "groupName":
		return slices.Concat(
			badChars("group", "G 1", " G1", "G1 ", "G$1", "*", "G/1", "é", "中", "G\x00", "\xff", "{}"),
			badLength("group", 128, badRepeat("a", 129), badRepeat("a", 100_000)),
		)
	case "serviceName": // of v1
		return slices.Concat(badValues("plainName"),
			badTexts(20002, badName, " ", "\t", "\u3000"),
			badTexts(asFilter, "Service name filter error,caused: Param 'serviceName' is illegal, groupName can't be empty;", "@@s", "@@", "@@@s"),
			badTexts(asFilter, "Service name filter error,caused: "+badName+";", "G1@@"),
			badChars("group", "G 1@@s", "G\x00@@s", "中@@s"),
			badLength("group", 128, badRepeat("a", 129)+"@@s"),
		)
	case "plainName":
		return slices.Concat(
			badChars("serviceName", "@s", "a b", " s", "s ", "a\tb", "a\nb", "s\x00", "\x00", "s\x7f", "s\x1b[0m", "\xff", "s\xc3", "\xed\xa0\x80", "中", "s中", "s\u00a0", "s\u3000", "s\ufffd", "G1@@a@@b", "G1@@ s"),
			badLength("serviceName", 512, badRepeat("a", 513), badRepeat("é", 513), badRepeat("😀", 257), badRepeat("a", 100_000), badRepeat(" ", 600)+"s"),
		)
	case "nameV2":
		return slices.Concat(badValues("plainName"), badChars("serviceName", "@@s", "G1@@", "@@"))
	case "groupedName": // where v2 wants the grouped form
		return slices.Concat(
			badTexts(20002, badName, "s", "@@s", "G1@@", "@@", "G1@s", "\x00"),
			badChars("serviceName", "G1@@a b", "G1@@@s", "G1@@a@@b", "G1@@s\x00", "G1@@\xff"),
			badChars("group", "G 1@@s", "*@@s"),
			badLength("serviceName", 512, "G1@@"+badRepeat("a", 513)),
		)
	case "key": // of statuses
		return slices.Concat(badValues("groupedName"),
			badTexts(20002, badName, "fixtures##s", "fixtures##"),
			badChars("namespaceId/tenant", "##G1@@s", "a b##G1@@s"),
			badLength("namespaceId/tenant", 64, badRepeat("a", 65)+"##G1@@s"),
			badChars("serviceName", "fixtures##G1@@a b"),
		)
	case "clusterName", "cluster", "clusters":
		return slices.Concat(
			badChars("cluster", "a b", "a ", ",", "a,", ",a", "a,,b", "a,b c", "a@b", "a.b", "é", "中", "a\x00", "\xff", "{}"),
			badLength("cluster", 64, badRepeat("a", 65), "a,"+badRepeat("b", 65), badRepeat("a", 100_000)),
		)
	case "newCluster":
		return slices.Concat(badValues("clusterName"), badChars("cluster", "a,b"),
			badTexts(21004, "Instance 'clusterName' should be characters with only 0-9a-zA-Z-. (current: {})", "a_b", "_"))
	case "ip":
		return slices.Concat(
			badChars("ip", " 10.0.0.1", "10.0.0.1 ", "10.0 .0.1", "10.0.0.1\n", "10.0.0.1\x00", "\xff", "中", "a\u00a0b"),
			badLength("ip", 128, badRepeat("a", 129), badRepeat("1", 129), badRepeat("a", 100_000)),
			badTexts(asParam, "Param 'ip' is illegal, '{}' is neither an IP address nor a host name.", "999.1.1.1", "10.0.0.256", "1.2.3", "1.2.3.4.5", "1", "...", "010.0.0.1", "1.2.3.4."),
		)
	case "port":
		return badTexts(asParam, badPort, "abc", "-1", "65536", "80.5", "80.0", "1e3", "0x50", "80 ", " 80", "8_0", "٣", "NaN", "true", "null", "{}", "80\x00", "80\n", "\xff", "2147483648", "-9223372036854775809", badRepeat("9", 100_000))
	case "username", "password": // any will do
	case "weight": // of v1
		return slices.Concat(
			badTexts(20002, `For input string: "{}"`, "abc", "1,5", "--1", "1_0", "0x", "0x1p3", "true", "null", "{}", "1\x00", "1 2"),
			badValues("weightRange"),
		)
	case "weightV2":
		return slices.Concat(
			badTexts(20002, "Param 'weight' is illegal, '{}' should be a number.", "abc", "1,5", "--1", "1_0", "0x", "0x1p3", "true", "null", "{}", "1\x00", "1 2"),
			[]bad{{badRepeat("x", 65), 20002, "Param 'weight' is illegal, '" + badRepeat("x", 64) + "...' should be a number."}},
			badValues("weightRange"),
		)
	case "weightRange":
		return badTexts(21001, badWeight, "-1", "-0.0001", "10000.1", "1e5", "1e999", "-1e999", "Infinity", "-Infinity", "inf", "NaN", "nan", badRepeat("9", 400))
	case "metadata":
		return slices.Concat(
			badTexts(21002, badMetadata,
				"justtext", "a=b=c", "a=b,", ",", "=b", "a=b,c", "{bad", "{", "[]", `["a"]`, `["a=b"]`, `"x"`, `"a=b"`, "1", "true", "nul", "NaN",
				`{"a":{"b":"c"}}`, `{"a":{"b":"c=d"}}`, `{"a":["b"]}`, `{"a":"b"`, `{"a":"x=y"`, `{"a":"b"}x`, `{"a":"b"}{}`, `{"a":01}`, `{a:"b"}`, `{'a':'b'}`,
				`{"a":NaN}`, "{\"a\":\"\x01\"}", `{"a":"\x"}`, `{"a":"\u12"}`, "\ufeff{}", "/**/{}", badDeep(), badRepeat("[", 100_000)),
			badLength("Metadata", 1024, "k="+badRepeat("v", 1024), `{"k":"`+badRepeat("é", 1024)+`"}`, `{"k":"`+badRepeat("😀", 512)+`"}`, `{"`+badRepeat("k", 1025)+`":null,"a":"`+badRepeat("v", 1024)+`"}`, "k="+badRepeat("v", 100_000)),
		)
	case "behaviour": // metadata that says how the registry treats the instance
		return slices.Concat(badValues("metadata"),
			badTexts(21004, badTimes,
				`{"preserved.heart.beat.interval":"40000"}`, `{"preserved.heart.beat.interval":16000}`, "preserved.heart.beat.timeout=1", "preserved.ip.delete.timeout=4999",
				`{"preserved.heart.beat.interval":"9007199254740992"}`),
			badTexts(21004, "Metadata 'preserved.instance.id.generator' is illegal, 'other' is neither simple nor snowflake.", "preserved.instance.id.generator=other"),
		)
	case "removed": // metadata whose keys are removed: its size does not matter
		return slices.DeleteFunc(badValues("metadata"), func(b bad) bool { return b.fault == asParam })
	case "serviceMetadata":
		return append(badValues("removed"), badLength("Metadata", 64<<10, "k="+badRepeat("v", 64<<10), "k="+badRepeat("v", 1<<20))...)
	case "healthy", "enabled", "ephemeral", "healthyOnly", "onlyStatus", "enabledOnly", "hasIpCount", "withInstances", "ignoreEmptyService",
		"aggregation", "heartBeat", "detail", "reset", "debug", "useInstancePort4Check": // of v2
		return badTexts(20002, "Param '"+kind+"' is illegal, '{}' should be true or false.", "maybe", "2", "tru", "y", "t", "null", "NaN", "{}", "true\x00", "true false")
	case "protectThreshold":
		return slices.Concat(
			badTexts(20002, "Param 'protectThreshold' is illegal, '{}' should be a number.", "abc", "0,5", "0x", "0x1p-1", "--1", "true", "null", "{}", "0.5\x00"),
			badTexts(20002, "Param 'protectThreshold' is illegal, the value should be a number from 0 to 1.", "NaN", "Infinity", "-Infinity", "1.1", "2", "1e999", "-1e999"),
		)
	case "selector":
		return slices.Concat(
			badTexts(21006, badSelector, "{bad", "[]", "1", `"x"`, "true", `{"type":{}}`, `{"type":[]}`, `{"type":"label","expression":{}}`, "%7Bbad", "%zz", badDeep()),
			badTexts(21006, "not match any type of selector!", "{}", "null", `{"type":"other"}`, `{"type":null}`, `{"type":1}`, `{"type":"LABEL"}`, "%7B%7D", `{"type":"`+badRepeat("x", 10_000)+`"}`),
			badTexts(21006, "Selector parses failed: the expression should be CONSUMER.label.x = PROVIDER.label.x, joined by &.",
				`{"type":"label","expression":"x"}`, `{"type":"label","expression":"CONSUMER.label.a=PROVIDER.label.b"}`, `{"type":"label","expression":"CONSUMER.label.=PROVIDER.label."}`, `{"type":"label","expression":"&"}`, `{"type":"label","expression":true}`),
			badLength("selector", 64<<10, `{"type":"none","x":"`+badRepeat("x", 64<<10)+`"}`, badRepeat("x", 1<<20)),
		)
	case "udpPort":
		return badTexts(20002, `For input string: "{}"`, "abc", "1.5", "0x1", "1e3", "true", "NaN", "{}", "9223372036854775808", "1\x00")
	case "portV2": // of a UDP subscriber
		return badTexts(20002, "Param 'port' is illegal, '{}' should be an integer.", "abc", "1.5", "0x1", "1e3", "true", "NaN", "{}", "9223372036854775808")
	case "pageNo", "pageSize": // of v2
		return badTexts(20002, "Param '"+kind+"' is illegal, '{}' should be an integer.", "x", "1.5", "0x1", "1e3", "true", "NaN", "{}", "9223372036854775808")
	case "negative":
		return []bad{{"-1", 20002, "fromIndex(0) > toIndex(-1)"}, {"-9223372036854775808", 20002, "fromIndex(0) > toIndex(-9223372036854775808)"}}
	case "pageSizeV2":
		return append(badValues("pageSize"), badValues("negative")...)
	case "instances":
		return badTexts(20002, badList, "[bad", "{}", `"x"`, "1", "true", "[1]", "[null]", "[{}]", "[[]]", `[{"port":1}]`, `[{"ip":""}]`, `[{"ip":{}}]`, `[{"ip":"10.0.0.1","port":"x"}]`, `[{"ip":"10.0.0.1","port":1.5}]`, `[{"ip":"10.0.0.1"},null]`, badDeep())
	case "beat":
		return slices.Concat(
			badTexts(20002, badBeat,
				"{bad", "[]", "1", `"x"`, "true", "null", "{}", `{"port":80}`, `{"ip":""}`, `{"ip":null,"port":80}`, `{"ip":{},"port":80}`, `{"ip":["10.0.0.9"],"port":80}`,
				`{"ip":"10.0.0.9","port":"x"}`, `{"ip":"10.0.0.9","port":{}}`, `{"ip":"10.0.0.9","port":80.5}`, `{"ip":"10.0.0.9","port":1e400}`, `{"ip":"10.0.0.9","port":true}`,
				`{"ip":"10.0.0.9","weight":"heavy"}`, `{"ip":"10.0.0.9","weight":{}}`, `{"ip":"10.0.0.9","weight":NaN}`, `{"ip":"10.0.0.9","metadata":"x"}`, `{"ip":"10.0.0.9","metadata":[]}`,
				`{"ip":"10.0.0.9","metadata":{"a":{}}}`, `{"ip":"10.0.0.9","cluster":{}}`, `{"ip":"10.0.0.9","ephemeral":false}`, `{"ip":"10.0.0.9","ephemeral":"maybe"}`,
				`{"ip":"10.0.0.9","port":80`, `{"ip":"10.0.0.9"}}`, "{\"ip\":\"10.0.0.9\",\"x\":\"\n\"}", badDeep()),
			badChars("ip", `{"ip":"10.0 .0.1","port":80}`, `{"ip":"a\u0000","port":80}`, `{"ip":"\ud800","port":80}`, "{\"ip\":\"\xff\",\"port\":80}", `{"ip":" ","port":80}`),
			badLength("ip", 128, `{"ip":"`+badRepeat("a", 129)+`","port":80}`),
			badTexts(asParam, "Param 'ip' is illegal, '999.1.1.1' is neither an IP address nor a host name.", `{"ip":"999.1.1.1","port":80}`, `{"ip":"10.0.0.9","port":80,"ip":"999.1.1.1"}`),
			badTexts(asParam, badPort, `{"ip":"10.0.0.9","port":70000}`, `{"ip":"10.0.0.9","port":-1}`, `{"ip":"10.0.0.9","port":1e9}`, `{"ip":"10.0.0.9","port":"65536"}`),
			badTexts(21001, badWeight, `{"ip":"10.0.0.9","weight":-1}`, `{"ip":"10.0.0.9","weight":20000}`, `{"ip":"10.0.0.9","weight":"NaN"}`, `{"ip":"10.0.0.9","weight":1e999}`, `{"ip":"10.0.0.9","weight":"Infinity"}`),
			badChars("cluster", `{"ip":"10.0.0.9","cluster":"a b"}`, `{"ip":"10.0.0.9","cluster":"a,b"}`),
			badTexts(21004, "Instance 'clusterName' should be characters with only 0-9a-zA-Z-. (current: a_b)", `{"ip":"10.0.0.9","cluster":"a_b"}`),
			badTexts(21004, badTimes, `{"ip":"10.0.0.9","metadata":{"preserved.heart.beat.interval":40000}}`),
			badLength("Metadata", 1024, `{"ip":"10.0.0.9","metadata":{"k":"`+badRepeat("v", 1024)+`"}}`),
		)
	case "entry":
		return badTexts(20002, "Param 'entry' is illegal, there is no switch '{}'.", "nonsense", "LIGHTBEATENABLED", "null", "a\x00", "中")
	case "switchFlag":
		return badTexts(20002, "Param 'value' is illegal, the switch lightBeatEnabled should be true or false.", "", " ", "maybe", "1", "yes", "null", "true\x00", badRepeat("x", 100_000))
	case "switchNumber":
		return slices.Concat(
			badTexts(20002, "Param 'value' is illegal, the switch clientBeatInterval should be a number of milliseconds from 1 to 2147483647.", "0", "-1", "2147483648", "9223372036854775807"),
			badTexts(20002, `For input string: "{}"`, "", "abc", "1.5", "1e3", "NaN", "9223372036854775808"),
		)
	case "switchStatus":
		return badTexts(20002, "Param 'value' is illegal, the switch overriddenServerStatus should be UP, DOWN, STARTING, PAUSED, WRITE_ONLY, READ_ONLY or null.", "up", "NONSENSE", "")
	case "switchURLs":
		return badTexts(20002, "invalid input for limited urls", " ", "bad", "/a", "/a:x", "/a:99", "/a:600", "a:503", "/a:503,", ",", "/a:503;/b:404")
	case "switchTimes":
		return slices.Concat(
			badTexts(20002, "json param invalid.", "", "{bad", "5", "null", "[]", `"x"`, `{"max":"x"}`, badDeep()),
			badTexts(20002, "min check time for http or tcp is too small(<500)", "{}", `{"max":5000,"min":499,"factor":0.5}`, `{"max":5000,"min":-1}`),
			badTexts(20002, "max check time for http or tcp is too small(<3000)", `{"max":2999,"min":600,"factor":0.5}`, `{"min":600}`),
			badTexts(20002, "malformed factor", `{"max":5000,"min":600,"factor":2}`, `{"max":5000,"min":600,"factor":-0.1}`),
		)
	case "checker":
		const text = "Param 'healthChecker' is illegal, it should be a JSON object whose type is TCP, HTTP, MYSQL or NONE: …"
		return badTexts(20002, text, "{bad", "[]", "1", `"x"`, "null", "{}", `{"type":"tcp"}`, `{"type":null}`, `{"type":{}}`, `{"type":"HTTP","expectedResponseCode":99}`,
			`{"type":"HTTP","expectedResponseCode":"x"}`, `{"type":"HTTP","path":{}}`, `{"type":"`+badRepeat("x", 10_000)+`"}`, `{"type":"TCP","x":"`+badRepeat("x", 20_000)+`"}`, badDeep())
	case "written": // a cluster that is written: one
		return slices.Concat(badValues("clusterName"), badChars("cluster", "a,b"))
	case "healthV1":
		return badTexts(20002, "Param 'healthy' is illegal, '{}' should be true or false.", "maybe", "2", "tru", "null", "NaN", "{}", "true false")
	case "positiveNo", "positiveSize":
		name := map[string]string{"positiveNo": "pageNo", "positiveSize": "pageSize"}[kind]
		return append(badValues(name), badTexts(20002, "Required parameter '"+name+"' should be positive integer, current is {}", "0", "-1", "-9223372036854775808")...)
	case "state":
		return badTexts(23000, "Illegal state: {}", "x", "up down", "null", "中", "{}")
	case "logName":
		return badTexts(20002, "Param 'logName' is illegal, there is no log '{}': it should be root, distro, grpc, http, life, members, peer, raftstore, registry or udp.", "x", "ROOT", "中", "{}")
	case "logLevel":
		return badTexts(20002, "Param 'logLevel' is illegal, '{}' should be TRACE, DEBUG, INFO, WARN, ERROR or OFF.", "x", "8", "null", "中")
	case "newNamespace":
		return badValues("namespaceId")
	case "namespaceName":
		return slices.Concat(badChars("namespaceShowName", "a@b", "#", "50%", "a$", "a^b", "a&b", "*"), badLength("namespaceShowName", 256, badRepeat("a", 257), badRepeat("😀", 129)))
	case "namespaceDesc":
		return badLength("namespaceDesc", 256, badRepeat("a", 257))
	case "adminNamespace":
		return badTexts(22000, "namespaceId [{}] mismatch the pattern", "a b", "a ", "a.b", "é", "中", "{}")
	case "adminName":
		return badTexts(22000, "namespaceName [{}] contains illegal char", "a@b", "50%", "*")
	case "redirectAddress":
		return slices.Concat(
			badTexts(20002, "Param 'redirectAddress' is illegal, '{}' should be ip:port of a node.", "x", "10.0.0.1", ":8848", "a:b:c"),
			badTexts(asParam, badPort, "10.0.0.1:x", "10.0.0.1:", "10.0.0.1:65536"),
			badTexts(asParam, "Param 'ip' is illegal, '999.1.1.1' is neither an IP address nor a host name.", "999.1.1.1:8848"),
		)
	case "count":
		return slices.Concat(
			badTexts(20002, "Param 'count' is illegal, '{}' should be an integer.", "x", "1.5", "NaN"),
			badTexts(20002, "Param 'count' is illegal, '{}' should be a number of connections from 0 on.", "-1", "2147483648"),
		)
	case "loaderFactor":
		return slices.Concat(
			badTexts(20002, "Param 'loaderFactor' is illegal, '{}' should be a number.", "x", "0x1"),
			badTexts(20002, "Param 'loaderFactor' is illegal, '{}' should be a number from 0 to 1.", "-0.1", "1.1", "NaN"),
		)
	}
	return nil
}
