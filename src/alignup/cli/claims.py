"""`alignup claims`: says which devices the scheduler allocates to claims on a node, or why none."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli import options
from alignup.cli.inputs import read_bytes, read_claims, read_mapping, read_resources
from alignup.cli.terminal import print_json, print_line
from alignup.errors import InputError
from alignup.records import replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from alignup.claims.extended_resources import ExtendedResources
    from alignup.claims.objects import Claim, Device, DeviceId
    from alignup.claims.question import Question
    from alignup.claims.read import Resources
    from alignup.claims.scheduler_gates import Gates
    from alignup.kubelet.layout import NodeFiles
    from alignup.kubernetes.node_fit import NodeObject
    from alignup.kubernetes.pod import Pod


# By the kind of an error in the allocation: the nodes that it concerns; else all.
_ERROR_SCOPES: Final = {"node": "on this node", "timeout": "here", "notUnderstood": "here"}


@options.subcommand(
    "claims", "0 if all claims are allocated, or once the lines were answered; 1 if not"
)
def command(
    *,
    resources: tuple[str, ...] = options.resources,
    root: str | None = options.file(
        "The node: the root of its files, or an archive of `alignup node collect`. It tells "
        "labels, NUMA nodes of PCI devices and, without --resources, the collected objects of "
        "claims.",
        "--node",
        metavar="ROOT|ARCHIVE",
    ),
    node_object: str | None = options.file(
        "The Node object as kubectl prints it.", metavar="NODE.yaml"
    ),
    release: str | None = options.value(
        "The scheduler's release, 1.34 to 1.37, or 1.38, a preview.  [default: 1.37]",
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
    """Say which devices the scheduler allocates to a pod's claims (DRA) on a node, or why none.

        alignup claims --resources resources.yaml --node-object node.yaml pod.yaml

    The claims of one pod are allocated together, in the pod's order. Devices come in the order in
    which the scheduler chooses them.
    """
    from alignup.claims.extended_resources import ExtendedResources
    from alignup.claims.question import question_of
    from alignup.claims.read import Resources
    from alignup.claims.scheduler_gates import NEWEST, check_settings, gates_of
    from alignup.kubelet.layout import CLAIMS, open_node

    questions = scenarios or selectors
    if questions is not None:
        if not as_json or files or (scenarios and selectors):
            raise click.UsageError("--scenarios and --selectors go with --json and nothing else")
        _answer_lines(questions, is_selectors=selectors is not None)
        return 0

    node_files = None if root is None else open_node(root)
    collected = None if node_files is None or resources else node_files.read(CLAIMS)
    if not files or not (resources or collected):
        raise click.UsageError(
            "needs --resources, or a --node with objects of claims, and a CLAIM.yaml or POD.yaml"
        )

    cluster_objects = read_resources(resources)
    if node_files is not None and collected:
        cluster_objects = read_claims({node_files.place(CLAIMS): collected})

    input_objects = read_resources(files)
    cluster_objects += Resources(claims=input_objects.claims, templates=input_objects.templates)
    node, addresses = _node(node_files, node_object, cluster_objects)
    settings = dict(_gate(text) for text in gates)
    check_settings(release or NEWEST, settings)
    scheduler_gates = gates_of(release or NEWEST, settings)
    extended = ExtendedResources.of(cluster_objects.classes, scheduler_gates)
    pods = tuple(
        extended.on_node(pod, node.allocatable.get, cluster_objects.claims)
        for pod in input_objects.pods
    )
    input_objects = replace(input_objects, pods=pods)
    claims = _claims(input_objects, cluster_objects, extended)
    question = question_of(node, cluster_objects, claims, scheduler_gates)
    if claims:
        fields, sentences = _answered(question, input_objects, extended, addresses)
    else:
        fields, sentences = _without_claims(question, pods, ", ".join(files))

    if as_json:
        print_json({"node": node.name, "result": None, **fields})
    else:
        for sentence in sentences:
            is_indented = sentence.startswith(" ")
            line = sentence if is_indented else f"{node.name}: {sentence}"
            print_line(line)

    return 0 if "result" in fields else 1


def _answered(
    question: Question,
    input_objects: Resources,
    extended: ExtendedResources,
    addresses: Mapping[str, int],
) -> tuple[dict[str, Any], list[str]]:
    """Return what comes of claims, in JSON's types and as lines."""
    from alignup.claims.extended_resources import with_resources
    from alignup.claims.question import AllocationError
    from alignup.claims.refusal_reasons import helpful_gates

    for pod in input_objects.pods:
        problem = extended.problem(pod)
        if problem:
            return {"error": problem, "class": "node"}, [f"no devices on this node: {problem}"]

    try:
        fields, sentences = _answer(question, question.node.name, input_objects, addresses)
    except AllocationError as error:
        helps = helpful_gates(question)
        fields = {"error": str(error), "class": error.kind}
        if helps:
            fields["helps"] = helps

        scope = _ERROR_SCOPES.get(error.kind, "on any node")
        sentences = [f"no devices {scope}: {error}"]
        sentences += [f"  would help: {help_text}" for help_text in helps]

    uses = [use for pod in input_objects.pods for use in extended.uses(pod)]
    if uses:
        fields["extendedResources"] = [use.to_dict() for use in uses]

    return fields, [with_resources(sentence, uses) for sentence in sentences]


def _answer(
    question: Question, node_name: str, input_objects: Resources, addresses: Mapping[str, int]
) -> tuple[dict[str, Any], list[str]]:
    """Return what is allocated or why nothing is, in JSON's types and as lines.

    Raises:
        AllocationError: the scheduler comes to no answer.
    """
    from alignup.claims.allocation import results_of, solve
    from alignup.claims.on_node import node_resources
    from alignup.claims.search_tables import SearchTables

    tables = SearchTables(question)
    results = results_of(tables, node_name, solve(tables))
    if results is None:
        return _refused(question)

    devices = {candidate.id: candidate.device for candidate in tables.devices}
    counts: list[Mapping[str, int]] = [{} for _ in results]
    if question.gates.node_resources:
        users = _user_counts(input_objects, results)
        counts = [
            node_resources(claim, devices, count, question.gates)
            for claim, count in zip(results, users, strict=False)
        ]

    fields, sentences = _allocated(results, devices, addresses, counts)
    sentences += _apart(results, devices)
    sentences += _not_in_limits(input_objects.pods, counts, question.gates)
    return fields, sentences


def _apart(claims: Sequence[Claim], devices: Mapping[DeviceId, Device]) -> Iterator[str]:
    """Yield which devices a constraint lets go together that are near several NUMA nodes.

    Lists of NUMA nodes match where they have one in common.
    """
    from alignup.claims.on_node import numa_attribute_of, numa_nodes_of

    for claim in claims:
        for constraint in claim.constraints:
            first_nodes: dict[int, str] = {}
            for device in claim.allocated or ():
                is_covered = device.request.partition("/")[0] in (
                    constraint.requests or (device.request.partition("/")[0],)
                )
                attribute = numa_attribute_of(device.driver, devices[device.id])
                if is_covered and attribute and attribute == constraint.match_attribute:
                    numa_node = numa_nodes_of(device.driver, devices[device.id], {})[0]
                    first_nodes.setdefault(numa_node, device.device)

            if len(first_nodes) > 1:
                places = " and ".join(
                    f"{device} near NUMA node {numa_node}"
                    for numa_node, device in first_nodes.items()
                )
                yield (
                    f"  matchAttribute {constraint.match_attribute} holds, as the lists have a "
                    f"NUMA node in common; yet {places}"
                )


def _not_in_limits(
    pods: Sequence[Pod], counts: Sequence[Mapping[str, int]], gates: Gates
) -> Iterator[str]:
    """Yield which of the resources that claims count as are not in the limits of the pod.

    Source: `AggregateContainerLimits` of `k8s.io/component-helpers`.
    """
    from alignup.kubernetes.pod import is_hugepages

    for pod in pods:
        if pod.constraints.level is not None:
            continue

        is_enough = any if gates.is_before_38 else all
        left_out = sorted(
            name
            for name in {name for amounts in counts for name, amount in amounts.items() if amount}
            if not is_hugepages(name)
            and not is_enough(container.limits.get(name) for container in pod.all_containers)
        )
        if left_out:
            which = "no container limits" if gates.is_before_38 else "not every container limits"
            listed = " and ".join(left_out)
            yield f"  the limits of the pod do not grow by {listed}, which {which}"


def _user_counts(input_objects: Resources, claims: Sequence[Claim]) -> list[int]:
    """Return how many containers use each of the claims."""
    counts = [len(use.containers) for pod in input_objects.pods for use in pod.constraints.claims]
    return counts or [0] * len(claims)


def _answer_lines(name: str, *, is_selectors: bool) -> None:
    from alignup.claims.scenarios import answer_scenario, answer_selector
    from alignup.text.json_text import decode_json, numbered_lines

    answer: Callable[[object, str], Mapping[str, Any]] = answer_scenario
    if is_selectors:
        answer = answer_selector

    for place, line in numbered_lines(read_bytes(name), name):
        question: object = decode_json(line, "one JSON object a line", place)
        if not isinstance(question, dict):
            raise InputError.at(place, "one JSON object", question)
        print_json(answer(question, place))


def _without_claims(
    question: Question, pods: Sequence[Pod], source: str
) -> tuple[dict[str, Any], list[str]]:
    """Return what becomes of a pod without claims, in JSON's types and as lines.

    Its extended resources may be a device plugin's, or left to plugins by a scheduler without the
    gate.

    Raises:
        InputError: no class serves any of its extended resources.
    """
    from alignup.claims.extended_resources import ExtendedResources
    from alignup.claims.scheduler_gates import EXTENDED_RESOURCES, gates_of

    gates = question.gates
    settings = {**gates.settings, EXTENDED_RESOURCES: True}
    served = ExtendedResources.of(question.classes, gates_of(gates.release, settings))
    asked = [pod for pod in pods if served.are_asked_by(pod)]
    if not asked:
        expected = (
            "a ResourceClaim, or a Pod with claims or with extended resources that a DeviceClass "
            "serves"
        )
        raise InputError.at(source, expected, "none")

    offered = question.node.allocatable
    names = sorted(
        {
            resource
            for container in asked[0].all_containers
            for resource, count in container.devices
            if count and resource in served.classes
        }
    )
    listed = ", ".join(names)
    if gates.extended_resources:
        amounts = ", ".join(f"{offered[name]} {name}" for name in names)
        return {"result": []}, [f"no claim is made: the node's device plugins offer {amounts}"]

    text = f"{listed} are left to device plugins: the gate {EXTENDED_RESOURCES} is off"
    help_text = f"turn on the feature gate {EXTENDED_RESOURCES} of the control plane and kubelets"
    return {"error": text, "class": "fatal", "helps": [help_text]}, [
        f"no devices: {text} in kube-scheduler {gates.release}",
        f"  would help: {help_text}",
    ]


def _claims(
    input_objects: Resources, cluster_objects: Resources, extended: ExtendedResources
) -> tuple[Claim, ...]:
    """Return the claims that are asked for: those of the pod, or those in the files."""
    from alignup.claims.read import claims_of_pod

    pods = input_objects.pods
    if len(pods) > 1:
        raise InputError(f"expected one pod, got {len(pods)}")
    if pods:
        return claims_of_pod(pods[0], cluster_objects, extended)
    return *input_objects.claims, *input_objects.templates


def _node(
    files: NodeFiles | None, node_file: str | None, cluster_objects: Resources
) -> tuple[NodeObject, dict[str, int]]:
    """Return the node, and the NUMA nodes of its PCI devices by address."""
    from alignup.kubelet.layout import NODE
    from alignup.kubelet.read import machine_of, read_node_object
    from alignup.kubernetes.node_fit import node_object

    addresses: dict[str, int] = {}
    facts = None
    if files is not None:
        addresses = {
            device.address: device.numa_node
            for device in machine_of(files).pci_devices
            if device.numa_node is not None
        }
        data = files.read(NODE)
        facts = None if data is None else read_node_object(data)

    if node_file is not None:
        facts = node_object(read_mapping(node_file), node_file)

    try:
        return facts or cluster_objects.only_node, addresses
    except InputError as error:
        raise click.UsageError(f"{error}; give --node or --node-object") from error


def _gate(text: str) -> tuple[str, bool]:
    name, _, value = text.partition("=")
    if value.lower() not in ("true", "false"):
        raise InputError.at("--feature-gate", "NAME=true or NAME=false", text)
    return name, value.lower() == "true"


def _refused(question: Question) -> tuple[dict[str, Any], list[str]]:
    """Return why nothing is allocated, in JSON's types and as lines."""
    from alignup.claims.refusal_reasons import why_not

    refusal = why_not(question)
    fields = {"reason" if key == "text" else key: value for key, value in asdict(refusal).items()}
    sentences = [f"cannot allocate all claims: {refusal.where}: {refusal.text}"]
    sentences += [f"  would help: {help_text}" for help_text in refusal.helps]
    return fields, sentences


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
    for claim, claim_fields, amounts in zip(claims, answer, counts, strict=True):
        if amounts:
            claim_fields["nodeAllocatableResources"] = {
                name: quantity_text(amount) for name, amount in amounts.items()
            }

        for device, fields in zip(claim.allocated or (), claim_fields["devices"], strict=True):
            numa_nodes = numa_nodes_of(device.driver, devices[device.id], addresses)
            if numa_nodes:
                fields["numaNodes"] = list(numa_nodes)

    sentences = []
    for claim_fields in answer:
        sentences.append(f"claim {claim_fields['claim']}: allocated")
        sentences += [f"  {_device_in_words(fields)}" for fields in claim_fields["devices"]]
        node_amounts = claim_fields.get("nodeAllocatableResources")
        if node_amounts:
            in_words = ", ".join(f"{name} {text}" for name, text in node_amounts.items())
            sentences.append(f"  counts on the node as {in_words}")

    return {"result": answer}, sentences


def _device_in_words(fields: Mapping[str, Any]) -> str:
    """Return an allocated device for people, which is here in JSON's types."""
    parts = [f"{fields['request']}: {fields['driver']}/{fields['pool']}/{fields['device']}"]
    if "numaNodes" in fields:
        parts.append(f"NUMA node {fields['numaNodes'][0]}")

    for name, amount in fields.get("consumedCapacity", {}).items():
        parts.append(f"{name} {amount}")

    if fields.get("adminAccess"):
        parts.append("with admin access")

    return ", ".join(parts)
