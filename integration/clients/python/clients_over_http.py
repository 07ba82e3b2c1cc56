"""Clients of nacos-sdk-python 0.x, which speaks HTTP, sends heartbeats and polls."""

import nacos
from nacos.listener import Event, SubscribeListener

PLACE = {"port": 8080, "cluster_name": "DEFAULT"}  # without a cluster the SDK sends one called "None"


class Client:
    batches = False

    def __init__(self, servers, work):
        self.sdk = nacos.NacosClient(servers, logDir=work)

    @classmethod
    async def open(cls, servers, work):
        return cls(servers, work)

    open_at_first = open  # where the SDK begins anyway

    @classmethod
    async def look(cls, servers, work, service):
        """What the servers list."""
        answer = cls(servers, work).sdk.list_naming_instance(service)
        return {f"{i['ip']}:{i['port']}": i["metadata"] for i in answer["hosts"]}

    async def register(self, service, ip, metadata, ephemeral=True):
        return self.sdk.add_naming_instance(
            service, ip, metadata=metadata, ephemeral=ephemeral, heartbeat_interval=5, **PLACE)

    async def deregister(self, service, ip):
        return self.sdk.remove_naming_instance(service, ip, **PLACE)

    async def subscribe(self, service, heard):
        hosts = {}

        def changed(event, local):
            address = f"{local.instance['ip']}:{local.instance['port']}"
            if event == Event.DELETED:
                hosts.pop(address, None)
            else:
                hosts[address] = local.instance["metadata"]
            heard(dict(hosts))

        self.sdk.subscribe(SubscribeListener(changed, "all"), 1, service_name=service)
        # Unless told so, the SDK stops polling for good at the first poll that fails.
        for timer in self.sdk.subscribe_timer_manager.all_timers().values():
            timer.set_ignore_ex(True)

    async def announce(self, service, ip, metadata):
        """The SDK keeps to itself what its first poll finds and tells of changes only: make one."""
        assert self.sdk.modify_naming_instance(service, ip, weight=2, metadata=metadata, **PLACE)

    async def leave(self, service, ip):
        """The SDK cannot be closed: without the deregistration it would send heartbeats for ever."""
        assert await self.deregister(service, ip)

    async def close(self):
        self.sdk.stop_subscribe()
