package wire

import (
	"reflect"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// The requests that clients send all the time are read field by field, without
// reflection, in 40 % of the time. What is read is what encoding/json reads: of
// whatever is not plain (escapes, bytes that are no text, numbers in quotes, a value of
// another type, a key in other letters) this knows nothing, and encoding/json reads the
// whole text, and says what is wrong with it.

// quick takes a field of a JSON object. It returns false for one that it cannot read.
// Types that others embed have another name for it: what embeds them must not pass for
// one that reads all its fields so.
type quick interface {
	quick(name string, v gjson.Result) bool
}

// readQuick reads a JSON object; false if it could not.
func readQuick(data []byte, v quick) bool {
	return plain(data) && each(gjson.ParseBytes(data), v.quick)
}

// plain tells whether a text is JSON without escapes and of few levels: the library
// goes through it by recursion.
func plain(data []byte) bool {
	level, inText := 0, false
	for _, c := range data {
		switch {
		case c == '\\':
			return false
		case c == '"':
			inText = !inText
		case inText:
		case c == '{' || c == '[':
			if level++; level > 16 {
				return false
			}
		case c == '}' || c == ']':
			level--
		}
	}
	return utf8.Valid(data) && gjson.ValidBytes(data)
}

// each calls field for all fields of an object, until it returns false.
func each(v gjson.Result, field func(name string, v gjson.Result) bool) bool {
	ok := v.IsObject()
	if ok {
		v.ForEach(func(k, v gjson.Result) bool {
			ok = field(k.Str, v)
			return ok
		})
	}
	return ok
}

// unlike tells whether a field is none of these in other letters: encoding/json would
// take it for that.
func unlike(name string, fields ...string) bool {
	for _, f := range fields {
		if len(f) == len(name) && strings.EqualFold(f, name) {
			return false
		}
	}
	return utf8.RuneCountInString(name) == len(name) // else letters of other alphabets may stand for ours
}

// reset makes a value zero that may have been read in part.
func reset(v any) { reflect.ValueOf(v).Elem().SetZero() }

func (s *Str) quick(v gjson.Result) bool {
	switch v.Type {
	case gjson.String:
		*s = Str(strings.Clone(v.Str)) // so that it does not keep the whole request
	case gjson.Null:
		*s = ""
	default:
		return false
	}
	return true
}

func quickText(to **Str, v gjson.Result) bool {
	if v.Type == gjson.Null {
		*to = nil
		return true
	}
	*to = new(Str)
	return (*to).quick(v)
}

func (i *Int) quick(v gjson.Result) bool {
	n, err := strconv.ParseInt(v.Raw, 10, 64)
	*i = Int(n)
	return v.Type == gjson.Number && err == nil
}

func (f *Float) quick(v gjson.Result) bool {
	if v.Type == gjson.Number {
		*f = Float{v.Num, true}
	}
	return v.Type == gjson.Number || v.Type == gjson.Null
}

func (b *Bool) quick(v gjson.Result) bool {
	if v.IsBool() {
		*b = Bool{v.Type == gjson.True, true}
	}
	return v.IsBool() || v.Type == gjson.Null
}

func (m *Metadata) quick(v gjson.Result) bool {
	if v.Type == gjson.Null {
		return true
	}
	out := make(map[string]string)
	ok := each(v, func(name string, v gjson.Result) bool {
		if v.Type != gjson.String {
			return false
		}
		out[strings.Clone(name)] = strings.Clone(v.Str)
		return true
	})
	*m = out
	return ok
}

func (n *ServiceName) field(name string, v gjson.Result) bool {
	switch name {
	case "namespace":
		return quickText(&n.Namespace, v)
	case "serviceName":
		return quickText(&n.ServiceName, v)
	case "groupName":
		return quickText(&n.GroupName, v)
	}
	return unlike(name, "namespace", "serviceName", "groupName")
}

func (i *Instance) field(name string, v gjson.Result) bool {
	switch name {
	case "instanceId":
		return i.InstanceID.quick(v)
	case "ip":
		return i.IP.quick(v)
	case "port":
		return i.Port.quick(v)
	case "weight":
		return i.Weight.quick(v)
	case "healthy":
		return i.Healthy.quick(v)
	case "enabled":
		return i.Enabled.quick(v)
	case "clusterName":
		return i.ClusterName.quick(v)
	case "metadata":
		return i.Metadata.quick(v)
	}
	return unlike(name, "instanceId", "ip", "port", "weight", "healthy", "enabled", "clusterName", "metadata")
}

// quickInstance reads an instance that was not given before, or null.
func quickInstance(to **Instance, v gjson.Result) bool {
	if v.Type == gjson.Null || *to != nil {
		return v.Type == gjson.Null && *to == nil
	}
	*to = new(Instance)
	return each(v, (*to).field)
}

func (q *InstanceRequest) quick(name string, v gjson.Result) bool {
	switch name {
	case "type":
		return q.Type.quick(v)
	case "instance":
		return quickInstance(&q.Instance, v)
	}
	return unlike(name, "type", "instance") && q.field(name, v)
}

func (q *BatchInstanceRequest) quick(name string, v gjson.Result) bool {
	switch name {
	case "type":
		return q.Type.quick(v)
	case "instances":
		if !v.IsArray() || q.Instances != nil {
			return false
		}
		list := []*Instance{}
		ok := true
		v.ForEach(func(_, v gjson.Result) bool {
			var i *Instance
			ok = quickInstance(&i, v)
			list = append(list, i)
			return ok
		})
		q.Instances = &list
		return ok
	}
	return unlike(name, "type", "instances") && q.field(name, v)
}

func (q *ServiceQueryRequest) quick(name string, v gjson.Result) bool {
	switch name {
	case "cluster":
		return q.Cluster.quick(v)
	case "healthyOnly":
		return q.HealthyOnly.quick(v)
	}
	return unlike(name, "cluster", "healthyOnly") && q.field(name, v)
}

func (q *SubscribeServiceRequest) quick(name string, v gjson.Result) bool {
	switch name {
	case "subscribe":
		return q.Subscribe.quick(v)
	case "clusters":
		return q.Clusters.quick(v)
	}
	return unlike(name, "subscribe", "clusters") && q.field(name, v)
}

func (a *Ack) quick(name string, v gjson.Result) bool {
	switch name {
	case "resultCode":
		return a.ResultCode.quick(v)
	case "requestId":
		return a.RequestID.quick(v)
	}
	return unlike(name, "resultCode", "requestId")
}

func (b *Beat) quick(name string, v gjson.Result) bool {
	switch name {
	case "cluster":
		return b.Cluster.quick(v)
	case "ephemeral":
		return b.Ephemeral.quick(v)
	}
	return unlike(name, "cluster", "ephemeral") && b.field(name, v)
}
