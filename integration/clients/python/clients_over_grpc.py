"""Clients of nacos-sdk-python from 2.0 on, which speaks gRPC and is pushed to."""

from v2.nacos import (
    BatchRegisterInstanceParam, ClientConfigBuilder, DeregisterInstanceParam, ListInstanceParam,
    NacosNamingService, RegisterInstanceParam, SubscribeServiceParam)


def by_address(instances):
    return {f"{i.ip}:{i.port}": i.metadata for i in instances}


class Client:
    batches = True

    def __init__(self, sdk):
        self.sdk = sdk

    @classmethod
    async def open(cls, servers, work):
        config = (ClientConfigBuilder().server_address(servers).log_dir(work).cache_dir(work + "/cache")
                  .load_cache_at_start(False).build())  # nothing that an earlier client has heard
        return cls(await NacosNamingService.create_naming_service(config))

    @classmethod
    async def open_at_first(cls, servers, work):
        """A client of the first server, which the test may kill. The SDK itself begins at one by chance."""
        while True:
            client = await cls.open(servers, work)
            at = client.sdk.grpc_client_proxy.rpc_client.get_current_server()
            if at and f"{at.server_ip}:{at.server_port - 1000}" == servers.split(",")[0]:
                return client
            await client.close()

    @classmethod
    async def look(cls, servers, work, service):
        """What the servers list. A new client each time: one that has asked before answers from its cache."""
        client = await cls.open(servers, work)
        try:
            return by_address(await client.sdk.list_instances(
                ListInstanceParam(service_name=service, subscribe=False, healthy_only=None)))
        finally:
            await client.close()

    async def register(self, service, ip, metadata, ephemeral=True):
        return await self.sdk.register_instance(RegisterInstanceParam(
            service_name=service, ip=ip, port=8080, metadata=metadata, ephemeral=ephemeral))

    async def register_batch(self, service, ips, metadata):
        return await self.sdk.batch_register_instances(BatchRegisterInstanceParam(service_name=service, instances=[
            RegisterInstanceParam(service_name=service, ip=ip, port=8080, metadata=metadata) for ip in ips]))

    async def deregister(self, service, ip):
        return await self.sdk.deregister_instance(DeregisterInstanceParam(service_name=service, ip=ip, port=8080))

    async def subscribe(self, service, heard):
        async def changed(instances):
            heard(by_address(instances))

        await self.sdk.subscribe(SubscribeServiceParam(service_name=service, subscribe_callback=changed))

    async def announce(self, service, ip, metadata):
        """Nothing to do: the listener is called with what the subscription found."""

    async def leave(self, service, ip):
        """The instance goes with the connection."""
        await self.close()

    async def close(self):
        try:
            await self.sdk.shutdown()
        except TypeError:  # 2.0.11 awaits what cannot be awaited, after the connection is closed
            if self.sdk.grpc_client_proxy.server_health():
                raise
