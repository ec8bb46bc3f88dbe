"""A scheduler for pods whose schedulerName is `aligned`: each goes where it is aligned best.

    scheduler.py nodes.jsonl        try it on `alignup fleet --nodes nodes.jsonl`

It needs the extra `cluster`. A pod that no node takes waits until another one ends.
"""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser, RawDescriptionHelpFormatter
from pathlib import Path

from kubernetes_asyncio import client, config, watch

from alignup import Cluster, Pod, read_pod


class Scheduler:
    """A cluster, the pods that it has, and those that wait."""

    def __init__(self, cluster: Cluster, api: client.CoreV1Api) -> None:
        self.cluster = cluster
        self.api = api
        self.nodes = dict(zip(cluster.names, cluster.nodes, strict=True))
        self.placed: dict[str, str] = {}
        self.waiting: dict[str, dict] = {}

    async def run(self) -> None:
        """Follow all pods, until cancelled."""
        async with watch.Watch().stream(self.api.list_pod_for_all_namespaces) as events:
            async for event in events:
                manifest = event["raw_object"]
                uid, phase = manifest["metadata"]["uid"], manifest.get("status", {}).get("phase")

                if event["type"] == "DELETED" or phase in {"Succeeded", "Failed"}:
                    self.waiting.pop(uid, None)
                    if uid in self.placed:
                        self.nodes[self.placed.pop(uid)].remove(uid)
                        for waiting in list(self.waiting.values()):
                            await self.place(waiting)
                elif manifest["spec"].get("schedulerName") == "aligned" and uid not in self.placed:
                    await self.place(manifest)

    async def place(self, manifest: dict) -> None:
        """Bind a pod to the best node that admits it, or let it wait."""
        pod, bound = read_pod(manifest), manifest["spec"].get("nodeName")
        best = [] if bound else self.cluster.evaluate(pod).best(1)
        name = bound or "".join(self.cluster.names[index] for index in best)

        if not name or not self.nodes[name].admit(pod):
            self.waiting[pod.uid] = manifest
            return

        self.placed[pod.uid] = name
        self.waiting.pop(pod.uid, None)
        if not bound and not await self.bind(pod, name):  # it is gone, or somebody else bound it
            self.nodes[self.placed.pop(pod.uid)].remove(pod.uid)

    async def bind(self, pod: Pod, node: str) -> bool:
        """Bind a pod, and return whether the API server did."""
        create = self.api.create_namespaced_pod_binding
        target = client.V1ObjectReference(kind="Node", name=node)
        body = client.V1Binding(metadata=client.V1ObjectMeta(name=pod.name), target=target)
        done = await create(pod.name, pod.namespace, body, _preload_content=False)
        return 200 <= done.status < 300  # noqa: PLR2004  # the statuses of success


async def main(nodes: bytes) -> None:
    """Schedule the cluster that kubectl would use and that has these nodes."""
    await config.load_kube_config()
    async with client.ApiClient() as api:
        await Scheduler(Cluster.from_json_lines(nodes), client.CoreV1Api(api)).run()


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__, formatter_class=RawDescriptionHelpFormatter)
    parser.add_argument("nodes", type=Path, help="a file of nodes, as for `alignup rank`")
    asyncio.run(main(parser.parse_args().nodes.read_bytes()))
