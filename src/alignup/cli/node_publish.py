"""`alignup node publish`: keeps the NodeResourceTopology object of this node current, with what its pods hold."""

from __future__ import annotations

import asyncio
from functools import partial

from alignup.cli.failures import complain, need_extra, need_text
from alignup.cli.options import file_option, flag, kubeconfig_option, option, seconds_option, subcommand


@subcommand("publish")
def command(
    *,
    kubeconfig: str | None = kubeconfig_option,
    name: str = option("Of the Node object; or in $NODE_NAME.", envvar="NODE_NAME", required=True, metavar="NAME"),
    root: str = file_option(
        "The root of the machine; in a container, where it is mounted.", default="/", metavar="DIR"
    ),
    interval: float = seconds_option("Look for changes so often.", default=1.0, least=0.05),
    config: str | None = file_option(
        "The kubelet's configuration, where it is not in its folder and no kubelet is seen to run."
    ),
    once: bool = flag("Publish once, and end."),
) -> None:
    """Publish what the kubelet of this node has given to whom, for schedulers: `alignup extender` is exact with it.

    Writes the NodeResourceTopology object of the node, with the annotations alignup.dev/node and alignup.dev/holdings,
    whenever the kubelet's state files have changed. Runs until SIGTERM.
    """
    need_extra("cluster")
    need_extra("kubelet")  # without PodResources there are no devices, and pods that are gone stay
    need_text("--name", name)
    asyncio.run(publish(kubeconfig, name, (root, config), interval, once))


async def publish(
    kubeconfig: str | None, name: str, where: tuple[str, str | None], interval: float, once: bool
) -> None:
    """Publish until told to end.

    Args:
        kubeconfig: how to reach the API server.
        name: of the Node object.
        where: the root of the machine, and the kubelet's configuration if it is elsewhere.
        interval: seconds between looks.
        once: end after the first time.
    """
    from alignup.kubelet.read import read_kubelet_node
    from alignup.scheduler.api_client import Api
    from alignup.scheduler.publish import publish_node
    from alignup.scheduler.serving import run_until_told

    async with await Api.connect(kubeconfig) as api:
        read = partial(read_kubelet_node, where[0], config=where[1])
        work = publish_node(api, name, read, interval=interval, complain=complain, once=once)
        await run_until_told(work, lambda: None)
