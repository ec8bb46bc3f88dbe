"""`alignup claims`: says which devices the scheduler allocates to claims on a node, or why none."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from alignup.cli import options
from alignup.cli.inputs import read_bytes, read_claims, read_mapping, read_resources
from alignup.errors import InputError, one_line

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from alignup.claims.objects import Claim, Device, DeviceId
    from alignup.claims.problem import Question
    from alignup.claims.read import Resources
    from alignup.kubelet.layout import NodeFiles
    from alignup.kubernetes.node_fit import NodeObject


@options.subcommand(
    "claims", "0 if all claims are allocated, or once the lines were answered; 1 if not"
)
def command(
    *,
    resources: tuple[str, ...] = options.resources,
    root: str | None = options.file(
        "The node: the root of its files, or an archive of `alignup node collect`. It tells "
        "labels, NUMA nodes of PCI "
        "devices and, without --resources, the collected objects of claims.",
        "--node",
        metavar="ROOT|ARCHIVE",
    ),
    node_object: str | None = options.file(
        "The Node object as kubectl prints it.", metavar="NODE.yaml"
    ),
    release: str | None = options.value(
        "The scheduler's release, 1.34 to 1.37.  [default: 1.37]",
        metavar="1.N",
        shell_complete=options.complete_versions,
    ),
    gates: tuple[str, ...] = options.several(
        "A feature gate of the scheduler that differs from the release's default.",
        "NAME=true|false",
        "--feature-gate",
    ),
    scenarios: str | None = options.file(
        "Answer recorded questions, one a line. Needs --json.", metavar="FILE.jsonl"
    ),
    selectors: str | None = options.file(
        "Answer questions about selectors, one a line. Needs --json.", metavar="FILE.jsonl"
    ),
    as_json: bool = options.flag("Print JSON, and nothing else.", "--json"),
    files: tuple[str, ...] = options.files("CLAIM.yaml|POD.yaml..."),
) -> int:
    """Say which devices the scheduler allocates to the claims of a pod (DRA) on a node, or why it allocates none.

        alignup claims --resources resources.yaml --node-object node.yaml pod.yaml

    The claims of one pod are allocated together, in the pod's order. Devices come in the order in
    which the scheduler chooses them.
    """
    from alignup.claims.on_node import node_resources
    from alignup.claims.problem import AllocationError, Problem, question_of, results_of, solve
    from alignup.claims.read import Resources
    from alignup.claims.scheduler_gates import NEWEST, gates_of
    from alignup.kubelet.layout import CLAIMS, open_node

    if (lines := scenarios or selectors) is not None:
        if not as_json or files or (scenarios and selectors):
            raise click.UsageError("--scenarios and --selectors go with --json and nothing else")
        _answer_lines(lines, is_selectors=selectors is not None)
        return 0

    node_files = None if root is None else open_node(root)
    collected = None if node_files is None or resources else node_files.read(CLAIMS)
    if not files or not (resources or collected):
        raise click.UsageError(
            "needs --resources, or a --node with objects of claims, and a CLAIM.yaml or POD.yaml"
        )

    known = read_resources(resources)
    if node_files is not None and collected:
        known = read_claims({node_files.place(CLAIMS): collected})

    asked = read_resources(files)
    known += Resources(claims=asked.claims, templates=asked.templates)
    claims = _claims(asked, known)
    if not claims:
        raise InputError.at(", ".join(files), "a ResourceClaim, or a Pod with claims", "none")

    node, addresses = _node(node_files, node_object, known)
    question = question_of(
        node, known, claims, gates_of(release or NEWEST, dict(_gate(text) for text in gates))
    )
    results = None
    try:
        problem = Problem(question)
        results = results_of(problem, node.name, solve(problem))
        devices = {one.id: one.device for one in problem.devices}
        users = [len(one.containers) for pod in asked.pods for one in pod.constraints.claims] or [
            0
        ] * len(claims)
        given = zip(results or (), users, strict=False)
        counts_too = question.gates.node_resources
        counts = [
            node_resources(claim, devices, count) if counts_too else {} for claim, count in given
        ]
        told, said = (
            _refused(question)
            if results is None
            else _allocated(results, devices, addresses, counts)
        )
    except AllocationError as error:
        where = {"node": "on this node", "timeout": "here", "notUnderstood": "here"}.get(
            error.kind, "on any node"
        )
        results, told = None, {"error": str(error), "class": error.kind}
        said = [f"no devices {where}: {error}"]

    if as_json:
        click.echo(json.dumps({"node": node.name, "result": None, **told}))

    for line in () if as_json else said:
        click.echo(one_line(line if line.startswith(" ") else f"{node.name}: {line}"))

    return 1 if results is None else 0


def _answer_lines(name: str, *, is_selectors: bool) -> None:
    from alignup.claims.scenarios import answer_scenario, answer_selector
    from alignup.text.json_text import decode_json, numbered_lines

    answer: Callable[[object, str], Mapping[str, Any]] = (
        answer_selector if is_selectors else answer_scenario
    )
    for place, line in numbered_lines(read_bytes(name), name):
        question: object = decode_json(line, "one JSON object a line", place)
        if not isinstance(question, dict):
            raise InputError.at(place, "one JSON object", question)
        click.echo(json.dumps(answer(question, place)))


def _claims(asked: Resources, known: Resources) -> tuple[Claim, ...]:
    """Return the claims that are asked for: those of the pod, or those in the files."""
    from alignup.claims.read import claims_of_pod

    if len(asked.pods) > 1:
        raise InputError(f"expected one pod, got {len(asked.pods)}")
    return claims_of_pod(asked.pods[0], known) if asked.pods else (*asked.claims, *asked.templates)


def _node(
    files: NodeFiles | None, node_file: str | None, known: Resources
) -> tuple[NodeObject, dict[str, int]]:
    """Return the node, and the NUMA nodes of its PCI devices by address."""
    from alignup.kubelet.layout import NODE
    from alignup.kubelet.read import machine_of, read_node_object
    from alignup.kubernetes.node_fit import node_object

    addresses: dict[str, int] = {}
    facts = None
    if files is not None:
        devices = machine_of(files).pci_devices
        addresses = {one.address: one.numa_node for one in devices if one.numa_node is not None}
        data = files.read(NODE)
        facts = None if data is None else read_node_object(data)

    if node_file is not None:
        facts = node_object(read_mapping(node_file), node_file)

    try:
        return facts or known.only_node, addresses
    except InputError as error:
        raise click.UsageError(f"{error}; give --node or --node-object") from error


def _gate(text: str) -> tuple[str, bool]:
    name, _, value = text.partition("=")
    if value.lower() not in ("true", "false"):
        raise InputError.at("--feature-gate", "NAME=true or NAME=false", text)
    return name, value.lower() == "true"


def _refused(question: Question) -> tuple[dict[str, Any], list[str]]:
    """Return why nothing is allocated, in JSON's types and as lines."""
    from alignup.claims.why import why_not

    refusal = why_not(question)
    told = {"reason" if key == "text" else key: value for key, value in asdict(refusal).items()}
    helps = [f"  would help: {one}" for one in refusal.helps]
    return told, [f"cannot allocate all claims: {refusal.where}: {refusal.text}", *helps]


def _allocated(
    claims: tuple[Claim, ...],
    devices: Mapping[DeviceId, Device],
    addresses: Mapping[str, int],
    counts: Sequence[Mapping[str, int]],
) -> tuple[dict[str, Any], list[str]]:
    """Return what is allocated, in JSON's types and as lines."""
    from alignup.claims.on_node import numa_nodes_of
    from alignup.claims.scenarios import answer_of, quantity_text

    answer = answer_of(claims) or []
    for claim, one, amounts in zip(claims, answer, counts, strict=True):
        if amounts:
            one["nodeAllocatableResources"] = {
                name: quantity_text(amount) for name, amount in amounts.items()
            }

        for device, told in zip(claim.allocated or (), one["devices"], strict=True):
            if nodes := numa_nodes_of(device.driver, devices[device.id], addresses):
                told["numaNodes"] = list(nodes)

    lines = []
    for one in answer:
        lines.append(f"claim {one['claim']}: allocated")
        for told in one["devices"]:
            near = f", NUMA node {told['numaNodes'][0]}" if "numaNodes" in told else ""
            takes = "".join(
                f", {name} {amount}" for name, amount in told.get("consumedCapacity", {}).items()
            )
            extra = ", with admin access" if told.get("adminAccess") else ""
            name = f"{told['driver']}/{told['pool']}/{told['device']}"
            lines.append(f"  {told['request']}: {name}{near}{takes}{extra}")

        if counts_as := one.get("nodeAllocatableResources"):
            lines.append(
                "  counts on the node as "
                f"{', '.join(f'{name} {text}' for name, text in counts_as.items())}"
            )

    return {"result": answer}, lines
