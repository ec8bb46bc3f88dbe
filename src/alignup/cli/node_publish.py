"""`alignup node publish`: keeps the NodeResourceTopology object of this node current, with what its pods hold."""

from __future__ import annotations

from functools import partial

from alignup.cli import options
from alignup.cli.failures import need_extra, need_text


@options.subcommand("publish")
def command(
    *,
    kubeconfig: str | None = options.kubeconfig,
    name: str = options.value(
        "The name of the Node object; or in $NODE_NAME.", envvar="NODE_NAME", required=True, metavar="NAME"
    ),
    root: str = options.file(
        "The root of the machine; in a container, where it is mounted.", default="/", metavar="DIR"
    ),
    interval: float = options.seconds("How often to look for changes.", default=1.0, least=0.05),
    config: str | None = options.file(
        "The kubelet's configuration, where it is not in its folder and no kubelet is seen to run."
    ),
    once: bool = options.flag("Publish once, and end."),
    no_events: bool = options.flag("Write no Events on rejected pods."),
    logs: options.Logs = options.all_of(options.Logs),
) -> None:
    """Publish for schedulers what this node's kubelet has allocated to which pods; `alignup extender` is exact with it.

    Writes the NodeResourceTopology object of the node, with the annotations alignup.dev/node and alignup.dev/holdings,
    whenever the kubelet's state files have changed; on each pod that the kubelet rejects an Event with the cause, and
    with what would help. Runs until SIGTERM.
    """
    need_extra("cluster")
    need_extra("kubelet")  # without PodResources there are no devices, and pods that are gone stay
    need_text("--name", name)
    from alignup.cli.agent import logged
    from alignup.control_plane.api_server.api_client import Api, with_api
    from alignup.control_plane.publishers.publish import publish_node
    from alignup.control_plane.serving import run_until_told
    from alignup.kubelet.read import read_kubelet

    read = partial(read_kubelet, root, config=config)

    async def publish(api: Api) -> None:
        await run_until_told(publish_node(api, name, read, interval=interval, once=once, writes_events=not no_events))

    with_api(kubeconfig, publish, complain=logged(logs.log_format, logs.log_level))
