"""Drives one version of nacos-sdk-python through every step that a service goes through.

The Go test that starts this program reads its stdout; clients_over_http.py and
clients_over_grpc.py hide how differently the SDKs are called.
"""

import asyncio
import os
import sys
import time
import traceback

SERVERS, SERVICE, MODE, WORK = (os.environ[k] for k in ("SERVERS", "SERVICE", "MODE", "WORK"))
LANG = {"lang": "python"}
A, B = "10.1.0.1", "10.1.0.2"

if os.environ["VERSION"].startswith("0."):
    from clients_over_http import Client
else:
    from clients_over_grpc import Client


def say(*words):
    print(*words, flush=True)


def hosts(*ips):
    return {f"{ip}:8080": LANG for ip in ips}


async def reach(want, look, within=10):
    """Looks until it sees what it wants. Errors are answers too: servers go away here."""
    deadline = time.monotonic() + within
    while True:
        try:
            got = await look()
        except Exception as e:
            got = e
        if got == want:
            return
        if time.monotonic() > deadline:
            raise TimeoutError(f"wanted {want!r} within {within} s, last saw {got!r}")
        await asyncio.sleep(0.05)


class Step:
    """Reports how long its block took, once it succeeded."""

    def __init__(self, name):
        self.name = name

    def __enter__(self):
        self.start = time.monotonic()

    def __exit__(self, failure, *_):
        if failure:
            print(f"step {self.name} failed", file=sys.stderr)
        else:
            say("step", self.name, round((time.monotonic() - self.start) * 1000))


async def main():
    first, second = await Client.open_at_first(SERVERS, WORK), await Client.open(SERVERS, WORK)
    latest = {}

    def heard(hosts):
        nonlocal latest
        latest = hosts

    async def listener():
        return latest

    def listed(service):
        return lambda: Client.look(SERVERS, WORK, service)

    with Step("register"):
        assert await first.register(SERVICE, A, LANG)
    with Step("list"):
        await reach(hosts(A), listed(SERVICE))
    with Step("subscribe"):
        await first.subscribe(SERVICE, heard)
        await first.announce(SERVICE, A, LANG)
        await reach(hosts(A), listener)
    with Step("push"):
        assert await second.register(SERVICE, B, LANG)
        await reach(hosts(A, B), listener)
    with Step("deregister"):
        assert await second.deregister(SERVICE, B)
        await reach(hosts(A), listener)

    batch = SERVICE + "-batch"
    if Client.batches:
        with Step("batch"):
            assert await first.register_batch(batch, (A, B), LANG)
            await reach(hosts(A, B), listed(batch))
    else:
        say("skip batch this SDK registers one instance a call")

    persistent = SERVICE + "-persistent"
    with Step("persistent"):
        assert await first.register(persistent, A, LANG, ephemeral=False)
        await reach(hosts(A), listed(persistent))

    say("ask", "restart" if MODE == "one" else "kill")
    # In a thread of its own: the clients have to notice meanwhile.
    if (await asyncio.to_thread(sys.stdin.readline)).strip() != "done":
        raise EOFError("nobody said done")

    with Step("recover"):
        await reach(hosts(A), listed(SERVICE), within=60)
        await reach(hosts(A), listed(persistent), within=60)
        await reach(True, lambda: second.register(SERVICE, B, LANG), within=60)
        await reach(hosts(A, B), listener, within=60)

    with Step("close"):
        await reach(True, lambda: first.deregister(SERVICE, A), within=40)
        await second.leave(SERVICE, B)
        await reach({}, listed(SERVICE), within=40)
        await first.close()
    say("end")


# The SDKs leave threads and tasks behind that would keep the process alive.
try:
    asyncio.run(main())
except BaseException:
    traceback.print_exc()
    os._exit(1)
os._exit(0)
