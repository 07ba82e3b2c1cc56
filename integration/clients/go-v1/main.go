// Command go-v1 is a client with the Go SDK of Nacos 1.x.
package main

import (
	"errors"

	"github.com/nacos-group/nacos-sdk-go/clients"
	"github.com/nacos-group/nacos-sdk-go/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/common/constant"
	"github.com/nacos-group/nacos-sdk-go/model"
	"github.com/nacos-group/nacos-sdk-go/vo"

	"rollcall/integration/clients/internal/story"
)

func main() { story.Main("go-v1", dial) }

type client struct{ naming_client.INamingClient }

func dial(servers []story.Server, dir string) (story.Client, error) {
	var configs []constant.ServerConfig
	for _, s := range servers {
		configs = append(configs, constant.ServerConfig{IpAddr: s.Host, Port: s.Port, ContextPath: "/nacos"})
	}
	c, err := clients.NewNamingClient(vo.NacosClientParam{
		ClientConfig: &constant.ClientConfig{
			TimeoutMs: 5000, NotLoadCacheAtStart: true, UpdateCacheWhenEmpty: true, LogDir: dir, CacheDir: dir, LogLevel: "warn",
		},
		ServerConfigs: configs,
	})
	return client{c}, err
}

// Close does nothing: this SDK has no such call.
func (c client) Close() {}

func done(ok bool, err error) error {
	if err == nil && !ok {
		return errors.New("the SDK answered false")
	}
	return err
}

func param(service string, i story.Instance) vo.RegisterInstanceParam {
	return vo.RegisterInstanceParam{
		ServiceName: service, Ip: i.IP, Port: story.Port, Weight: 1, Enable: true, Healthy: true,
		Ephemeral: !i.Persistent, Metadata: i.Metadata,
	}
}

func (c client) Register(service string, i story.Instance) error {
	return done(c.RegisterInstance(param(service, i)))
}

// RegisterBatch implements [story.Client].
func (c client) RegisterBatch(string, []story.Instance) error { return errors.ErrUnsupported }

func (c client) Deregister(service string, i story.Instance) error {
	return done(c.DeregisterInstance(vo.DeregisterInstanceParam{ServiceName: service, Ip: i.IP, Port: story.Port, Ephemeral: !i.Persistent}))
}

func (c client) List(service string) ([]story.Instance, error) {
	list, err := c.SelectAllInstances(vo.SelectAllInstancesParam{ServiceName: service})
	return instances(list), err
}

func (c client) Subscribe(service string, fn func([]story.Instance)) error {
	return c.INamingClient.Subscribe(&vo.SubscribeParam{ServiceName: service, SubscribeCallback: func(list []model.SubscribeService, err error) {
		var out []story.Instance
		for _, i := range list {
			out = append(out, story.Instance{IP: i.Ip, Metadata: i.Metadata}) // of ephemeral ones alone, here
		}
		if err == nil || len(list) == 0 {
			fn(out)
		}
	}})
}

func instances(list []model.Instance) (out []story.Instance) {
	for _, i := range list {
		out = append(out, story.Instance{IP: i.Ip, Metadata: i.Metadata, Persistent: !i.Ephemeral})
	}
	return out
}
