"""A scheduler for pods whose schedulerName is `aligned`: binds each to the node where it is aligned best.

    scheduler.py nodes.jsonl        needs the extra `cluster`; try it on `alignup fleet --nodes nodes.jsonl`

It admits a pod on its copy of the node before it binds it. A pod that no node takes waits until another one ends.
"""

from __future__ import annotations

import argparse
import asyncio
from pathlib import Path

from kubernetes_asyncio import client, config, watch

from alignup import Cluster, Node, Pod, read_pod


class Scheduler:
    """A cluster, the pods that it has, and those that wait."""

    def __init__(self, cluster: Cluster, api: client.CoreV1Api) -> None:
        self.cluster, self.api = cluster, api
        self.placed: dict[str, str] = {}
        self.waiting: dict[str, dict] = {}

    async def run(self) -> None:
        """Follow all pods, until cancelled."""
        async with watch.Watch().stream(self.api.list_pod_for_all_namespaces) as events:
            async for event in events:
                found = event["raw_object"]
                uid, phase = found["metadata"]["uid"], found.get("status", {}).get("phase")
                if event["type"] == "DELETED" or phase in {"Succeeded", "Failed"}:
                    self.waiting.pop(uid, None)
                    if uid in self.placed:
                        self.node(self.placed.pop(uid)).remove(uid)
                        for waits in list(self.waiting.values()):
                            await self.place(waits)
                elif found["spec"].get("schedulerName") == "aligned" and uid not in self.placed:
                    await self.place(found)

    async def place(self, found: dict) -> None:
        """Bind a pod to the best node that admits it, or let it wait."""
        pod, bound = read_pod(found), found["spec"].get("nodeName")
        name = bound or next((self.cluster.names[one] for one in self.cluster.evaluate(pod).best(1)), "")
        if not name or not self.node(name).admit(pod):
            self.waiting[pod.uid] = found
            return
        self.placed[pod.uid] = name
        self.waiting.pop(pod.uid, None)
        if not bound and not await self.bind(pod, name):
            self.node(self.placed.pop(pod.uid)).remove(pod.uid)  # it is gone, or somebody else has bound it

    async def bind(self, pod: Pod, node: str) -> bool:
        """Bind a pod, and return whether the API server did."""
        target = client.V1ObjectReference(kind="Node", name=node)
        body = client.V1Binding(metadata=client.V1ObjectMeta(name=pod.name), target=target)
        done = await self.api.create_namespaced_pod_binding(pod.name, pod.namespace, body, _preload_content=False)
        return 200 <= done.status < 300  # noqa: PLR2004  # the statuses of success

    def node(self, name: str) -> Node:
        """Return the scheduler's copy of a node."""
        return self.cluster.nodes[self.cluster.index(name)]


async def main(nodes: bytes) -> None:
    """Schedule the cluster that kubectl would use and that has these nodes."""
    cluster = Cluster.from_json_lines(nodes)
    await config.load_kube_config()
    async with client.ApiClient() as api:
        await Scheduler(cluster, client.CoreV1Api(api)).run()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("nodes", help="a file of nodes, as for `alignup rank`")
    asyncio.run(main(Path(parser.parse_args().nodes).read_bytes()))
