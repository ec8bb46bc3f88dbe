"""`alignup rebalance`: plans the fewest evictions after which waiting pods find a place, and carries the plan out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from alignup.cli import options
from alignup.cli.failures import need_extra
from alignup.cli.inputs import read_pods
from alignup.cli.rank import load_cluster
from alignup.cli.terminal import Table, make_console, nodes_text, print_json, print_whole, safe
from alignup.text.counting import counted

if TYPE_CHECKING:
    from alignup.cluster.evictions import RoomPlan
    from alignup.control_plane.api_server.api_client import Api
    from alignup.kubernetes.versions import KubeletVersion


@options.subcommand("rebalance", "0 if all waiting pods get a place; 1 if some do not, or a plan came to nothing")
def command(
    *,
    nodes: str | None = options.nodes_or_cluster,
    kubeconfig: str | None = options.asked_kubeconfig,
    version: KubeletVersion | None = options.kubelet_version,
    apply: bool = options.flag("Carry the plan out: evict pods of the cluster, and wait for the planned placements."),
    patience: float = options.seconds("How long to wait for a pod to be bound.", default=120.0),
    continuous: bool = options.flag("Make room again and again, until SIGTERM; with --apply only."),
    interval: float = options.seconds("With --continuous: how often to look.", default=30.0),
    per_hour: int = options.value(
        "With --continuous: evict no more pods within an hour.", default=20, type=click.IntRange(min=1)
    ),
    as_json: bool = options.json(),
    pods: tuple[str, ...] = options.files("[POD.yaml]..."),
) -> int:
    """Say which pods have to go so that waiting pods find a place: as few and as unimportant ones as possible.

    With --nodes, the pods in the files wait, and every pod on the nodes may move. In a cluster, its pending pods wait;
    a pod is evicted only if a controller replaces it, if it is no more important than the pod that needs its place, and
    if PodDisruptionBudgets allow it. Every evicted pod has a place in the plan, aligned as well as before. Without
    --apply nothing is done.
    """
    if nodes is not None:
        if kubeconfig is not None or apply or continuous or not pods:
            raise click.UsageError(
                "--nodes goes with files of pods, and without --kubeconfig, --apply and --continuous"
            )
        from alignup.cluster.evictions import plan_room
        from alignup.kubernetes.pod_documents import expanded, live_pods

        waiting = expanded(live_pods(read_pods(pods), None, one_node=False))
        plan = plan_room(load_cluster(nodes, version, can_admit=True), waiting)
        show(plan, as_json=as_json)
        return 1 if plan.left_out else 0
    if pods or (continuous and not apply):
        raise click.UsageError("POD.yaml files need --nodes; --continuous needs --apply")
    need_extra("cluster")
    from alignup.control_plane.scheduler.ask import ask
    from alignup.control_plane.scheduler.rebalance import apply_plan, plan_cluster, rebalance_for_ever
    from alignup.control_plane.serving import run_until_told

    async def work(api: Api) -> bool:
        if continuous:
            forever = rebalance_for_ever(api, per_hour=per_hour, interval=interval, patience=patience, say=click.echo)
            await run_until_told(forever)
            return True
        plan = await plan_cluster(api)
        show(plan, as_json=as_json)
        done = not apply or await apply_plan(api, plan, lambda line: click.echo(line, err=as_json), patience)
        return done and not plan.left_out

    return 0 if ask(kubeconfig, work) else 1


def show(plan: RoomPlan, *, as_json: bool) -> None:
    """Print a plan."""
    if as_json:
        print_json(plan.to_dict())
        return
    console = make_console()
    table = Table("step", "pod", "node", "NUMA nodes")
    for step in plan.steps:
        where = "-" if step.action == "evict" else nodes_text(step.numa_nodes)
        table.add_row(step.action, safe(step.pod.namespaced_name), safe(step.node), where)
    if plan.steps:
        print_whole(console, table)
    fewest = ", the fewest there can be" if plan.proven else ", not proven to be the fewest"
    words = f"{counted(len(plan.placements), 'pod')} placed, {counted(len(plan.evictions), 'eviction')}"
    console.print(f"{words}{fewest if plan.evictions else ''}")
    for pod in plan.left_out:
        console.print(f"no place for {safe(pod.namespaced_name)}")
