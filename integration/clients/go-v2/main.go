// Command go-v2 is a client with the Go SDK of Nacos 2.x.
package main

import (
	"errors"

	"github.com/nacos-group/nacos-sdk-go/v2/clients"
	"github.com/nacos-group/nacos-sdk-go/v2/clients/naming_client"
	"github.com/nacos-group/nacos-sdk-go/v2/common/constant"
	"github.com/nacos-group/nacos-sdk-go/v2/model"
	"github.com/nacos-group/nacos-sdk-go/v2/vo"

	"rollcall/integration/clients/internal/story"
)

func main() { story.Main("go-v2", dial) }

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

func (c client) Close() { c.CloseClient() }

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

func (c client) RegisterBatch(service string, all []story.Instance) error {
	batch := vo.BatchRegisterInstanceParam{ServiceName: service}
	for _, i := range all {
		batch.Instances = append(batch.Instances, param(service, i))
	}
	return done(c.BatchRegisterInstance(batch))
}

func (c client) Deregister(service string, i story.Instance) error {
	return done(c.DeregisterInstance(vo.DeregisterInstanceParam{ServiceName: service, Ip: i.IP, Port: story.Port, Ephemeral: !i.Persistent}))
}

func (c client) List(service string) ([]story.Instance, error) {
	list, err := c.SelectAllInstances(vo.SelectAllInstancesParam{ServiceName: service})
	return instances(list), err
}

func (c client) Subscribe(service string, fn func([]story.Instance)) error {
	return c.INamingClient.Subscribe(&vo.SubscribeParam{ServiceName: service, SubscribeCallback: func(list []model.Instance, err error) {
		if err == nil || len(list) == 0 {
			fn(instances(list))
		}
	}})
}

func instances(list []model.Instance) (out []story.Instance) {
	for _, i := range list {
		out = append(out, story.Instance{IP: i.Ip, Metadata: i.Metadata, Persistent: !i.Ephemeral})
	}
	return out
}
