"""`alignup admit`: admits pods on a machine and prints the resources of each container, or the reason of a refusal."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli.completion import files
from alignup.cli.failures import complain
from alignup.cli.inputs import (
    config_option,
    kubelet_node_option,
    load_node,
    machine_option,
    near_cpus_option,
    node_name_option,
    read_pods,
)
from alignup.cli.options import (
    device_resource_option,
    devices_option,
    kubelet_versions_option,
    lenient_option,
    replicas_option,
)
from alignup.cli.terminal import make_console, make_table, mark, nodes_text, print_whole, safe
from alignup.errors import one_line
from alignup.text.byte_sizes import short_bytes

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from rich.console import Console

    from alignup.cli.admit_hints import PodHints
    from alignup.cli.inputs import LoadedNode
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node
    from alignup.topology_manager.admission import Admission, ContainerAllocation

    Answer = tuple[Pod, Admission, PodHints | None]

__all__ = ["command", "say_what_is_ignored"]

HINTS_OF_SEVERAL: Final = "expected one version with --hints, got several"
STANDARD_INPUT_TWICE: Final = "expected files, got standard input, which is read only once"


@click.command(
    name="admit",
    epilog="Exit status: 0 if every pod is admitted; 1 if one is refused; 2 bad usage or bad input.",
)
@machine_option
@kubelet_node_option
@config_option
@devices_option
@device_resource_option
@near_cpus_option
@replicas_option("Admit")
@node_name_option
@kubelet_versions_option
@lenient_option
@click.option("--hints", "with_hints", is_flag=True, help="Show what each provider offered, too.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one JSON object a pod, or a version, and nothing else."
)
@click.argument("pods", nargs=-1, metavar="[POD.yaml]...", shell_complete=files)
@click.pass_context
def command(
    ctx: click.Context,
    machine: str,
    kubelet_node: str | None,
    config: str | None,
    inventory: str | None,
    selectors: tuple[str, ...],
    near_cpus: bool,
    replicas: int | None,
    node_name: str | None,
    versions: tuple[KubeletVersion, ...],
    lenient: bool,
    with_hints: bool,
    as_json: bool,
    pods: tuple[str, ...],
) -> None:
    """Admit pods on a machine, one after the other, or say why not.

    Manifests are Pods, Lists as `kubectl get pods -o yaml` prints them, Deployments, StatefulSets, Jobs and the like;
    pods that have ended are passed over. Without a manifest, the example pods of a catalog machine are admitted. `-`
    reads standard input.
    """
    options: dict[str, Any] = {"near_cpus": near_cpus, "lenient": lenient}
    given = partial(load_node, machine, config, inventory, selectors, kubelet_node=kubelet_node, **options)

    def load(version: KubeletVersion | None) -> LoadedNode:
        return given(version=version)

    def read(loaded: LoadedNode) -> list[Pod]:
        made = None if pods else loaded.example_pods(replicas)
        return made or read_pods(pods, replicas=replicas, node_name=node_name)

    if len(versions) > 1:
        from alignup.cli.admit_versions import compare_versions

        if with_hints or "-" in (config, inventory):
            raise click.UsageError(HINTS_OF_SEVERAL if with_hints else STANDARD_INPUT_TWICE)
        ctx.exit(0 if compare_versions(versions, load, read, admitted_dict, as_json=as_json) else 1)
    loaded = load(versions[0] if versions else None)
    is_configured = bool(config or kubelet_node)
    answers = admit_all(loaded, read(loaded), is_configured=is_configured, with_hints=with_hints)
    if as_json:
        print_json(loaded.node, answers)
    else:
        show(loaded.node, loaded.title, answers)
    ctx.exit(0 if all(admission.admitted for _, admission, _ in answers) else 1)


def print_json(node: Node, answers: Sequence[Answer]) -> None:
    """Print one object a pod."""
    for pod, admission, hints in answers:
        answer = answer_dict(node, pod, admission)
        if hints is not None:
            from alignup.cli.admit_hints import add_hints

            add_hints(answer, hints, node.machine.numa_node_ids)
        click.echo(json.dumps(answer, separators=(",", ":")))


def admit_all(
    loaded: LoadedNode, manifests: Sequence[Pod], *, is_configured: bool, with_hints: bool = False
) -> list[Answer]:
    """Admit pods, and say what the answers leave out."""
    say_what_is_ignored(loaded, manifests, is_configured=is_configured)
    answers = [admitted(loaded.node, pod, with_hints=with_hints) for pod in manifests]
    for sentence in too_large(loaded.node, [pod for pod, admission, _ in answers if admission]):
        complain(sentence)
    return answers


def say_what_is_ignored(loaded: LoadedNode, pods: Sequence[Pod], *, is_configured: bool) -> None:
    """Say on standard error which devices the node lacks, and that nothing is aligned without a configuration."""
    from alignup.kubernetes.kubelet_config import KubeletConfig

    for resource in foreign_devices(pods, loaded.resources):
        name = resource if resource.isprintable() else ascii(resource)
        complain(f"{name} is not on this machine; ignored, as a kubelet does")
    if not is_configured and loaded.node.config == KubeletConfig(version=loaded.node.config.version):
        complain("no KubeletConfiguration was read (--config FILE); by default a kubelet aligns nothing")


def admitted(node: Node, pod: Pod, *, with_hints: bool) -> Answer:
    """Admit a pod; its hints are looked at before."""
    if not with_hints:
        return pod, node.admit(pod), None
    from alignup.cli.admit_hints import hints_of

    hints = hints_of(node, pod)
    return pod, node.admit(pod), hints


def admitted_dict(node: Node, pod: Pod) -> dict[str, Any]:
    """Admit a pod, and return the answer in JSON's types."""
    return answer_dict(node, pod, node.admit(pod))


def foreign_devices(pods: Sequence[Pod], known: Collection[str]) -> list[str]:
    """Return the devices that pods ask for and no plugin on the node knows; the kubelet admits as if they did not."""
    return sorted({resource for pod in pods for resource in asked_devices(pod)}.difference(known))


def asked_devices(pod: Pod) -> Iterator[str]:
    """Yield the devices that the containers of a pod ask for."""
    for container in pod.all_containers:
        yield from (resource for resource, count in container.devices if count)


def too_large(node: Node, pods: Sequence[Pod]) -> Iterator[str]:
    """Yield a sentence for each pod that asks for more CPU or memory than there is on the whole node."""
    from alignup.kubernetes.node_sums import allocatable_sums, requested
    from alignup.text.byte_sizes import short_bytes

    there = allocatable_sums(node.machine, node.config, {})
    words = {"cpu": lambda amount: f"{amount / 1000:g}", "memory": short_bytes}
    for pod in pods:
        asked = requested(pod)
        short = [name for name in words if asked.get(name, 0) > there[name]]
        if short:
            amounts = " and ".join(
                f"{words[name](asked[name])} {name} of {words[name](there[name])}" for name in short
            )
            yield (
                f"{pod.namespace}/{pod.name} requests {amounts}: a scheduler's fit check, which is not made here, "
                "keeps it off this node"
            )


def answer_dict(node: Node, pod: Pod, admission: Admission) -> dict[str, Any]:
    """Return the answer for one pod in JSON's types."""
    from alignup.replay.scenario import admission_dict
    from alignup.topology_manager.refusal_message import explain

    answer = {
        "pod": pod.name,
        "namespace": pod.namespace,
        "uid": pod.uid,
        "qosClass": str(pod.read_as(node.config.profile.pods).qos),
        **admission_dict(node, pod, admission),
    }
    if admission.refusal is not None:
        answer["explanation"] = explain(admission.refusal, node.machine.numa_node_ids).to_dict()
    return answer


def show(node: Node, title: str, answers: Sequence[Answer]) -> None:
    """Print what a person reads at a glance."""
    console = make_console()
    console.print(safe(title))
    for pod, admission, hints in answers:
        console.print()
        show_pod(console, node, pod, admission)
        if hints is not None:
            from alignup.cli.admit_hints import show_hints

            console.print()
            show_hints(console, hints, node.machine.numa_node_ids)
    if node.shared_cpus is not None:
        console.print(f"\nshared pool: CPUs {node.shared_cpus}")


def show_pod(console: Console, node: Node, pod: Pod, admission: Admission) -> None:
    """Print one pod: a table, or the reason."""
    label = safe(f"{pod.namespace}/{pod.name}")
    if not admission.admitted:
        console.print(f"{mark(console, good=False)} {label} refused: [bold]{admission.reason}[/]")
        console.print(f"  {safe(admission.message)}")
        return
    limit = (
        ""
        if admission.exact
        else " (the search for the best alignment ended at its limit; this is the best found)"
    )
    console.print(f"{mark(console, good=True)} {label} admitted{limit}")
    table = make_table("container", "NUMA nodes", "preferred", "CPUs", "memory", "devices")
    for name, got in admission.containers.items():
        table.add_row(*container_row(node, name, got))
    print_whole(console, table)
    for line in sharing_lines(node, pod):
        console.print(f"  {safe(line)}")


def sharing_lines(node: Node, pod: Pod) -> Iterator[str]:
    """Yield why containers share CPUs although the node's CPU manager gives some away."""
    from alignup.kubernetes.shared_pool import why_shared

    if node.cpu is None:
        return
    names: dict[str, list[str]] = {}
    read = pod.read_as(node.config.profile.pods)
    for container in read.all_containers:
        names.setdefault(why_shared(read, container), []).append(container.name)
    for reason, containers in names.items():
        if reason:
            yield f"{', '.join(containers)} in the shared pool: {reason}"


def container_row(node: Node, name: str, got: ContainerAllocation) -> tuple[str, ...]:
    """Return the cells of one container."""
    ids = node.machine.numa_node_ids
    hint = got.affinity
    mask = None if hint is None else hint.affinity
    nodes = nodes_text(None if mask is None else [ids[bit] for bit in mask.bits()])
    preferred = "-" if hint is None else ("yes" if hint.preferred else "no")
    memory = "\n".join(
        f"{block.type} {short_bytes(block.size)} @ {nodes_text(block.numa_nodes)}"
        for block in got.memory
        if block.size  # an init container may have handed all of it on
    )
    devices = "\n".join(
        one_line(f"{resource} {','.join(device_ids)}")
        for resource, device_ids in sorted(got.devices.items())
        if device_ids
    )
    cells = (
        name,
        nodes,
        preferred,
        "shared" if got.cpus is None else str(got.cpus),
        memory or "-",
        devices or "-",
    )
    return tuple(safe(cell) for cell in cells)
