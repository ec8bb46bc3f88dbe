"""`alignup node collect`: packs all that is read of a kubelet's node into one archive, to be looked at elsewhere."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import click

from alignup.cli import options
from alignup.cli.failures import complain, need_extra
from alignup.cli.inputs import read_bytes
from alignup.errors import InputError
from alignup.text.counting import counted
from alignup.text.json_text import decode_json

_WORTH = {
    "sys": ("sys/", "the machine is not known elsewhere without --machine"),
    "configuration": ("var/lib/kubelet/config.yaml", "the topology policy is not known"),
    "CPUs": ("var/lib/kubelet/cpu_manager_state", "nobody holds CPUs"),
    "memory": ("var/lib/kubelet/memory_manager_state", "nobody holds memory"),
    "devices": ("var/lib/kubelet/device-plugins/kubelet_internal_checkpoint", "nobody holds devices"),
    "PodResources": ("podresources/allocatable.json", "the NUMA nodes of free devices are not known"),
    "pods": ("pods.json", "pods are known by what they hold only; --pods or --kubeconfig gives them"),
}
"""The parts that are worth having, where they are in an archive, and what it costs where one is missing."""


@options.subcommand("collect")
def command(
    *,
    root: str = options.node,
    kubelet_dir: str | None = options.kubelet_dir,
    config: str | None = options.config,
    pods: str | None = options.file(
        "The pods of the node, as `kubectl get pods -A -o json --field-selector spec.nodeName=NAME` prints them."
    ),
    kubeconfig: str | None = options.file("Ask this cluster for pods, Node and claims."),
    node_name: str | None = options.value("The Node's name in the cluster; needed with --kubeconfig.", metavar="NAME"),
    target: str = options.argument("OUT.tar.xz"),
) -> None:
    """Pack a kubelet's node into one archive: machine, configuration, state files, PodResources answers, pods.

    Of pods and configuration only what `--node` reads is kept: no environment, arguments, annotations or tokens. The
    checkpoint of devices is kept whole; it has what device plugins told containers. Nothing is written but the archive.
    """
    from alignup.kubelet.collect import collect
    from alignup.kubelet.layout import open_node

    if kubeconfig is not None and (pods is not None or node_name is None):
        raise click.UsageError("--kubeconfig needs --node-name, and excludes --pods")
    given: Any = None
    if pods is not None:
        given = decode_json(read_bytes(pods), "a List of Pods as JSON", pods)
        if not isinstance(given, dict):
            raise InputError.at(pods, "a List of Pods", given)
    node = claims = None
    if kubeconfig is not None and node_name is not None:
        need_extra("cluster")
        given, node, claims = asyncio.run(ask_cluster(kubeconfig, node_name))
    found = collect(open_node(root, kubelet_dir), target, config=config, pods=given, node=node, claims=claims)
    complain(f"packed {counted(len(found), 'file')} into {target}")
    for name, (path, cost) in _WORTH.items():
        if not any(one.startswith(path) for one in found):
            complain(f"missing from the archive: {name} ({path}); {cost}")


async def ask_cluster(kubeconfig: str, node_name: str) -> tuple[Any, Any, Any]:
    """Return the List of the pods of a node, the Node, and the List of the objects of claims that matter there.

    Raises:
        InputError: the credentials cannot be read.
        ApiError: the API server refuses, or does not answer.
    """
    from alignup.control_plane.api_server.api_client import CLAIMS, Api, ApiError
    from alignup.control_plane.api_server.watch import list_objects

    async with await Api.connect(kubeconfig) as api:
        pods = await api.request("GET", "/api/v1/pods", query={"fieldSelector": f"spec.nodeName={node_name}"})
        node = await api.request("GET", f"/api/v1/nodes/{quote(node_name, safe='')}")
        items: list[dict[str, Any]] = []
        try:
            for kind in ("ResourceSlice", "DeviceClass", "ResourceClaim", "ResourceClaimTemplate"):
                path = f"{CLAIMS}/{kind.lower()}{'es' if kind.endswith('s') else 's'}"
                told = {"apiVersion": "resource.k8s.io/v1", "kind": kind}
                items += [decode_json(item, f"a {kind}") | told async for item in list_objects(api, path)]
        except ApiError as error:
            complain(f"missing from the archive: claims (resources.json); {error}")
            items = []
    return (
        decode_json(pods, "a List of Pods", "the API server"),
        decode_json(node, "a Node", "the API server"),
        {"items": of_node(items, node_name)} if items else None,
    )


def of_node(items: Sequence[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Return the objects of claims without slices of other nodes only, and claims that have devices of these only."""
    from alignup.claims.read import resources_of

    known = resources_of(items, "the API server")
    near = {one.name for one in known.slices_near(name)}
    pools = {(one.driver, one.pool.name) for one in known.slices_near(name)}
    far = {
        (one.namespace, one.name)
        for one in known.claims
        if one.allocated and not any((device.driver, device.pool) in pools for device in one.allocated)
    }

    def matters(one: dict[str, Any]) -> bool:
        metadata = one["metadata"]
        if one["kind"] == "ResourceSlice":
            return metadata["name"] in near
        return one["kind"] != "ResourceClaim" or (metadata.get("namespace", ""), metadata["name"]) not in far

    return [one for one in items if matters(one)]
