"""`alignup admit`: admits pods on a machine.

It prints the resources of each container, or the reason of a refusal. With `--hints` it shows what
each provider offered, too; several kubelets are compared.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from alignup.cli import options
from alignup.cli.failures import complain
from alignup.cli.inputs import LoadedNode, NodeSource, asked_pods, asked_resizes, load_node
from alignup.cli.terminal import (
    Table,
    first_to_last,
    make_console,
    mark,
    print_json,
    print_line,
    print_whole,
    runs,
    safe,
)
from alignup.errors import ConfigError
from alignup.machine.bits import bit_set
from alignup.records import json_fields
from alignup.text.counting import counted, short_bytes
from alignup.text.known_keys import unknown_keys

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from alignup.claims.preview import ClaimsOutcome
    from alignup.cli.terminal import Console
    from alignup.explanations.trial import Question
    from alignup.kubernetes.pod import Pod
    from alignup.kubernetes.versions import KubeletVersion
    from alignup.node import Node
    from alignup.node.faults import Fault
    from alignup.topology_manager.admission import Admission
    from alignup.topology_manager.refusal_message import ResourceView

    Answer = tuple[Pod, Admission, Sequence[Question] | None, ClaimsOutcome | None]
    Attempt = tuple[Pod, Admission, *tuple[object, ...]]


# By whether devices of claims are near the pod's CPUs and memory; None: this is not known.
_ALIGNMENT_IN_WORDS: Final = {
    True: "are aligned",
    False: "are not aligned",
    None: "may or may not be aligned",
}


@options.subcommand(
    "admit", "0 if every pod is admitted; 1 if one is refused, or requests what is unknown here"
)
def command(
    *,
    source: NodeSource = options.all_of(NodeSource),
    versions: tuple[KubeletVersion, ...] = options.kubelet_versions,
    with_hints: bool = options.flag("Show the hints of each provider, too.", "--hints"),
    resizes: bool = options.flag(
        "Ask whether the kubelet of --node would resize pods in place. The files hold pods of "
        "that node with their new resources. Exit status 1 if a resize is not allocated.",
        "--resize",
    ),
    as_json: bool = options.json("pod (or release)"),
    pods: tuple[str, ...] = options.files("[POD.yaml]..."),
) -> int:
    """Admit pods on a machine, one after the other, or say why they are refused.

        alignup admit --machine xeon-2s --config kubelet.yaml pod.yaml
        alignup admit --node node1.tar.xz pod.yaml

    Manifests are what `kubectl apply -f` takes: Pods, Lists of them, Deployments, Jobs and other
    objects with a pod template. `-` reads standard input. Without a manifest, the example pods of a
    catalog machine are admitted.

    Objects without a pod template and pods that have ended are ignored. Pods that are refused are
    printed first (--json keeps the order of the input). With --node, pods that are already on the
    node are listed separately.
    """
    if resizes:
        if with_hints or len(versions) > 1:
            raise click.UsageError("--resize goes with one version, and without --hints")
        return resize(source, versions, pods, as_json=as_json)

    if len(versions) > 1:
        if with_hints:
            raise click.UsageError("--hints goes with one version only")
        return 0 if compare(source, versions, pods, as_json=as_json) else 1

    loaded = load_node(source, versions[0] if versions else None)
    node = loaded.node
    requested = asked_pods(pods, source, loaded)
    present_answers = [
        answer_dict(node, pod, node.admission(pod)) | {"isThere": True} for pod in requested.present
    ]
    say_what_is_ignored(loaded, requested.pods, source)

    answers: list[Answer] = []
    faults: dict[str, dict[str, str]] = {}
    for pod in requested.pods:
        outcome = claims_on(node, pod)
        offers = offers_to(node, pod) if with_hints else None  # as they are before
        faults[pod.uid] = fault_of(node, pod)
        answers.append((pod, node.admit(pod), offers, outcome))

    if not node.whole_verdict:
        for sentence in too_large(node, [pod for pod, admission, *_ in answers if admission]):
            complain(sentence)

    if as_json:
        print_json(*present_answers)
        for pod, admission, offers, outcome in answers:
            print_json(
                answer_dict(node, pod, admission, offers)
                | claims_dict(outcome)
                | faults[pod.uid]
                | unknown_dict(node.unknown_requests(pod))
                | notes_dict(node, [(pod, admission)])
            )
    else:
        show(node, loaded.title, answers, requested.present)

    are_admitted = all(admission.admitted for _, admission, *_ in answers)
    is_sure = source.ignore_unknown or not any_is_open(node, requested.pods)
    return 0 if are_admitted and is_sure else 1


def any_is_open(node: Node, pods: Sequence[Pod]) -> bool:
    """Return whether a manager could refuse one of some pods for requests that are unknown here."""
    return any(node.leaves_open(node.unknown_requests(pod)) for pod in pods)


def notes_dict(node: Node, attempts: Iterable[Attempt]) -> dict[str, Any]:
    """Return what matters of the shared pool now, as JSON has it, if anything."""
    notes = pool_notes(node, attempts)
    return {"notes": list(notes)} if notes else {}


def pool_notes(node: Node, attempts: Iterable[Attempt]) -> tuple[str, ...]:
    """Return what matters of the shared pool as it is now, in sentences.

    Args:
        node: the node.
        attempts: the pods that were asked about, with their admissions.
    """
    from alignup.explanations.words import shared_pool_notes

    is_used = any(
        admission.admitted and any(sharing_lines(node, pod)) for pod, admission, *_ in attempts
    )
    return shared_pool_notes(node, node.shared_cpus, is_used=is_used)


def unknown_dict(unknown: Mapping[str, int]) -> dict[str, Any]:
    """Return what a pod requests of which nothing is known, as JSON has it, if there is any."""
    return {"unknown": dict(unknown)} if unknown else {}


def fault_of(node: Node, pod: Pod) -> dict[str, str]:
    """Say on standard error which known fault the kubelet comes upon with a pod.

    Return it as JSON has it, if there is one.
    """
    return fault_dict(said_faults(node, pod))


def said_faults(node: Node, pod: Pod) -> tuple[Fault, ...]:
    """Return the known faults that the kubelet comes upon with a pod, each said on standard error.

    They are as the node is before the pod.
    """
    from alignup.node.faults import known_faults

    faults = known_faults(node, pod)
    for fault in faults:
        complain(
            f"{pod.namespaced_name}: kubelet {node.config.version.title} {fault.does}: {fault.text}"
        )

    return faults


def fault_dict(faults: Sequence[Fault]) -> dict[str, str]:
    """Return the first of the faults that a pod comes upon as JSON has it; empty: there is none."""
    return {"kubelet": faults[0].does} if faults else {}


def claims_on(node: Node, pod: Pod) -> ClaimsOutcome | None:
    """Return the outcome of a pod's claims on a node; None: nothing is known of claims."""
    if node.claims is None:
        return None

    from alignup.claims.preview import preview_claims

    outcome = preview_claims(node, pod)
    if outcome is None or outcome.meet is not False:
        return outcome

    # few pods have claims
    from alignup.explanations.suggestions import reservations_near_claims
    from alignup.records import replace

    return replace(outcome, helps=(*outcome.helps, *reservations_near_claims(node, pod)))


def claims_dict(outcome: ClaimsOutcome | None) -> dict[str, Any]:
    """Return the same in JSON's types, for a key of its own."""
    if outcome is None:
        return {}
    return {"claims": outcome.to_dict()}


def outcome_lines(outcome: ClaimsOutcome | None) -> Iterator[str]:
    """Yield what a pod's claims come to, for people."""
    if outcome is None:
        return

    from alignup.claims.extended_resources import with_resources

    for device in outcome.devices:
        request = with_resources(device.request, outcome.uses)
        line = f"claim {device.claim}: {request}: {device.id}"
        if device.numa_nodes:
            line += f", NUMA node {device.numa_nodes[0]}"

        yield line

    if outcome.refusal:
        yield f"cannot allocate all claims: {outcome.refusal}"
    elif outcome.devices:
        yield f"the devices {_ALIGNMENT_IN_WORDS[outcome.meet]} with the pod's CPUs and memory"

    for help_text in outcome.helps:
        yield f"would help: {help_text}"


def compare(
    source: NodeSource, versions: tuple[KubeletVersion, ...], names: Sequence[str], *, as_json: bool
) -> bool:
    """Print what several releases decide.

    Return whether every one of them starts and admits every pod.
    """
    from alignup.kubernetes.policy_options import set_options
    from alignup.kubernetes.versions import release_of

    if "-" in (source.config, source.inventory):
        raise click.UsageError(
            "several versions read every file anew, and standard input is read only once"
        )

    reports: dict[KubeletVersion, dict[str, Any]] = {
        version: {"kubeletVersion": str(version)} for version in versions
    }
    pods: Sequence[Pod] | None = None
    options: set[str] = set()
    is_open = False
    # for each pod, what each release comes upon with it
    faults: list[dict[KubeletVersion, str]] = []
    for version, report in reports.items():
        try:
            if version != min(versions):  # what runs now may have gates of its vendor
                check_upgrade(source, version)
            loaded = load_node(source, version)
        except ConfigError as error:
            report["configError"] = str(error)
            continue

        if pods is None:
            pods = asked_pods(names, source, loaded).pods
            say_what_is_ignored(loaded, pods, source)

        node = loaded.node
        options.update(set_options(node.config.topology_manager_policy_options))
        options.update(set_options(node.config.cpu_manager_policy_options))
        report["pods"] = []
        is_open = is_open or any_is_open(node, pods)
        for index, pod in enumerate(pods):
            pod_faults = said_faults(node, pod)
            unknown = unknown_dict(node.unknown_requests(pod))
            answer = answer_dict(node, pod, node.admit(pod))
            report["pods"].append(fault_dict(pod_faults) | answer | unknown)
            if index == len(faults):
                faults.append({})
            sentences = [f"the kubelet {fault.does}: {fault.text}" for fault in pod_faults]
            faults[index][version] = "; ".join(sentences) or "none"

    for version, report in reports.items():
        stages = {**release_of(version).cpu_options, **release_of(version).topology_options}
        # None: the release does not know it
        report["options"] = {name: stages.get(name) for name in sorted(options)}

    if as_json:
        print_json(*reports.values())
    else:
        show_comparison(reports, pods or (), sorted(options), faults)

    are_admitted = all(
        "pods" in report and all(answer["admitted"] for answer in report["pods"])
        for report in reports.values()
    )
    return are_admitted and (source.ignore_unknown or not is_open)


def check_upgrade(source: NodeSource, version: KubeletVersion) -> None:
    """Check that a kubelet of a release starts with the configuration of the node of another one.

    Raises:
        ConfigError: it does not; the message is its own.
    """
    if source.kubelet_node is None or source.lenient:
        return

    from alignup.kubelet.check import refused_configuration
    from alignup.kubelet.layout import open_node

    files = open_node(source.kubelet_node, None, source.node_name)
    refusal = refused_configuration(files, {"config": source.config, "kubelet_version": version})
    if refusal:
        raise ConfigError(refusal)


def show_comparison(
    reports: Mapping[KubeletVersion, dict[str, Any]],
    pods: Sequence[Pod],
    options: list[str],
    faults: Sequence[Mapping[KubeletVersion, str]],
) -> None:
    """Print where the releases part.

    Args:
        reports: of each release.
        pods: that were asked for.
        options: names of policy options.
        faults: for each pod, the known faults of each release that starts.
    """
    from alignup.cli.replay import answer_text, difference_lines

    console = make_console()
    for version, report in reports.items():
        if "configError" in report:
            print_line(f"kubelet {version.title} would not start: {report['configError']}")

    for name in options:
        texts = {
            version: report["options"][name] or "unknown" for version, report in reports.items()
        }
        if len(set(texts.values())) > 1:
            console.print("\n".join(difference_lines(f"option {name}", texts)))

    for index, pod in enumerate(pods):
        texts = {
            version: answer_text(report["pods"][index])
            for version, report in reports.items()
            if "pods" in report
        }
        console.print("\n".join(difference_lines(pod.namespaced_name, texts)))
        if len(set(faults[index].values())) > 1:
            label = f"known faults with {pod.namespaced_name}"
            console.print("\n".join(difference_lines(label, faults[index])))


def resize(
    source: NodeSource, versions: Sequence[KubeletVersion], names: Sequence[str], *, as_json: bool
) -> int:
    """Resize pods one after the other, print the kubelet's answers, and return the exit status."""
    from alignup.node.resize import kept_amounts
    from alignup.replay.scenario import resized

    loaded = load_node(source, versions[0] if versions else None)
    node = loaded.node
    console = make_console()
    status = 0
    for request in asked_resizes(names, source, loaded):
        before = node.manager.pod(request.uid)
        admission = resized(node, request)
        pod = node.manager.pod(request.uid)
        if not admission.admitted:
            status = 1

        if as_json:
            print_json(answer_dict(node, pod, admission))
            continue

        label = safe(pod.namespaced_name)
        console.print(
            f"{mark(console, good=admission.admitted)} {label} resize: [bold]{admission.reason}[/]"
        )
        if admission.message:
            console.print(f"  {safe(admission.message)}")
        elif admission.admitted:
            for sentence in kept_amounts(node, before):
                console.print(f"  but {safe(sentence)}")

        show_containers(console, node, admission)

    if not as_json:
        console.print(safe(loaded.title))

    return status


def _say_which_claims_are_not_heeded(node: Node, pods: Iterable[Pod]) -> None:
    """Say on standard error which claims for extended resources the kubelet does not look at."""
    if node.config.profile.pods.claimed_devices_left_out:
        return

    for pod in pods:
        if any(claim.is_extended for claim in pod.constraints.claims):
            complain(
                f"{pod.namespaced_name}: kubelet {node.config.version.title} does not heed the "
                "claim for extended resources (DRAExtendedResource is off there): containers start "
                "without its devices"
            )


def say_what_is_ignored(loaded: LoadedNode, pods: Sequence[Pod], source: NodeSource) -> None:
    """Say on standard error what of the input has no effect.

    These are devices that the node lacks, policies that a kubelet does not know, and what is not
    checked for want of a Node object, or not aligned for want of a configuration.
    """
    from alignup.kubernetes.kubelet_config import KubeletConfig
    from alignup.kubernetes.pod import POLICIES

    node_object = loaded.node.node_object
    is_unlabelled = node_object is None or not node_object.knows_labels
    if source.kubelet_node and loaded.node.whole_verdict and pods and is_unlabelled:
        complain(
            "no Node object (node.json): the node's labels and taints are unknown, and were not "
            "checked"
        )

    pods_here = [loaded.node.read(pod) for pod in pods]
    _say_which_claims_are_not_heeded(loaded.node, pods_here)
    resources = {
        resource
        for pod in pods_here
        for container in pod.all_containers
        for resource, count in container.devices
        if count and (container.name, resource) not in pod.constraints.claimed_devices
    }
    for resource in sorted(resources.difference(loaded.node.pools)):
        question = meant_words(resource, loaded)
        if loaded.node.knows_devices:
            complain(f"{resource} is not on this machine; ignored, as a kubelet does{question}")
        elif source.ignore_unknown:
            complain(f"{resource} is unknown here; ignored{question}")
        else:
            complain(
                f"{resource} is unknown here, so exit status 1; --devices tells of it, "
                f"--ignore-unknown ignores it{question}"
            )

    for pod in pods:
        if POLICIES in (pod.annotations or ()) and not loaded.node.beyond_kubelet:
            complain(
                f"{pod.namespaced_name}: {POLICIES} is ignored, as by a kubelet; see "
                "--beyond-kubelet"
            )

        if pod.constraints.os == "windows" and not loaded.node.whole_verdict:
            complain(f"{pod.namespaced_name} is a Windows pod, which a kubelet on Linux refuses")

    is_configured = source.config or source.kubelet_node
    defaults = KubeletConfig(version=loaded.node.config.version)
    if not is_configured and loaded.node.config == defaults:
        complain(
            "no KubeletConfiguration was read (--config FILE); by default a kubelet aligns nothing"
        )


def meant_words(resource: str, loaded: LoadedNode) -> str:
    """Return the question whether another resource is meant.

    It is empty where no resource of the node has a name like it.
    """
    by_last_part = {name.rpartition("/")[2]: name for name in loaded.node.pools}
    for _, closest in unknown_keys([resource.rpartition("/")[2]], by_last_part):
        if closest:
            return f"; did you mean {by_last_part[closest]}?"

    return ""


def too_large(node: Node, pods: Sequence[Pod]) -> Iterator[str]:
    """Yield a sentence for each pod that requests more CPU or memory than the whole node has."""
    from alignup.kubernetes.node_fit import node_limits, requests_of

    allocatable = node_limits(node.machine, node.config, {}, node.node_object).allocatable
    formats = {"cpu": lambda amount: f"{amount / 1000:g}", "memory": short_bytes}
    for pod in pods:
        requests = requests_of(pod)
        excesses = [
            f"{in_words(requests[name])} {name} of {in_words(allocatable[name])}"
            for name, in_words in formats.items()
            if requests.get(name, 0) > allocatable[name]
        ]
        if excesses:
            verdict = "a kubelet refuses it, but --managers-only leaves out that check"
            yield f"{pod.namespaced_name} requests {' and '.join(excesses)}: {verdict}"


def answer_dict(
    node: Node, pod: Pod, admission: Admission, offers: Sequence[Question] | None = None
) -> dict[str, Any]:
    """Return the answer for one pod in JSON's types.

    Its hints are where `alignup replay --hints` has them.
    """
    from alignup.replay.scenario import admission_dict, with_hints_of
    from alignup.topology_manager.refusal_message import refusal_dict

    answer = {"pod": pod.name, **json_fields(pod, "namespace", "uid")}
    answer["qosClass"] = str(pod.read_as(node.config.profile.pods).qos)
    answer |= admission_dict(node, pod, admission)
    if not admission.admitted:
        from alignup.kubelet.messages import meaning_of_rejection

        meaning = meaning_of_rejection(admission.reason, admission.message)
        if meaning is not None:
            answer["see"] = meaning.message.anchor

    if admission.refusal is not None:
        answer["explanation"] = refusal_dict(admission.refusal, node.machine.numa_node_ids)

    hints = {}
    scores = {}
    for question in offers or ():
        name = None if question.container is None else question.container.name
        hints[name] = question.hints
        if question.scores is not None:
            scores[name] = question.scores

    return with_hints_of(answer, hints, scores, node.machine.numa_node_ids)


def show(node: Node, title: str, answers: Sequence[Answer], present: Sequence[Pod]) -> None:
    """Print what a person reads at a glance: refused pods, then those that are admitted.

    Refusals of pods that differ only in their names are printed once.

    Args:
        node: that admitted the pods.
        title: of the node.
        answers: for each pod.
        present: pods that were on the node already.
    """
    console = make_console()
    console.print(safe(title))
    if present:
        rows = [
            (f"{pod.namespaced_name}/{name}", *holdings)
            for pod in present
            for name, _, _, *holdings in container_rows(node, node.admission(pod))
        ]
        table = Table("on the node already", "CPUs", "memory", "devices", rows=rows)
        print_whole(console, table, below=True)

    refused_first = sorted(answers, key=_is_admitted)
    for alike in runs(refused_first, same_refusal):
        pod, admission, offers, outcome = alike[0]
        console.print()
        show_pod(console, node, pod, admission)
        for line in outcome_lines(outcome):
            console.print(f"  {safe(line)}")

        if len(alike) > 1:
            more = counted(len(alike) - 1, "more pod")
            names = first_to_last(other_pod.name for other_pod, *_ in alike[1:])
            console.print(f"  and {more} alike: {safe(names)}")

        if offers is not None:
            show_hints(console, offers, node.machine.numa_node_ids)

    if node.shared_cpus is not None:
        console.print(f"\nshared pool: CPUs {node.shared_cpus or 'none'}")
        for note in pool_notes(node, answers):
            console.print(f"  {safe(note)}")


def _is_admitted(answer: Answer) -> bool:
    _, admission, *_ = answer
    return admission.admitted


def show_containers(console: Console, node: Node, admission: Admission) -> None:
    """Print what each container has."""
    headings = ("container", "NUMA nodes", "preferred", "CPUs", "memory", "devices")
    print_whole(console, Table(*headings, rows=container_rows(node, admission)))


def show_pod(console: Console, node: Node, pod: Pod, admission: Admission) -> None:
    """Print one pod: a table, or the reason."""
    from alignup.explanations.words import extent_in_words, extent_with_help

    label = safe(pod.namespaced_name)
    if not admission.admitted:
        from alignup.kubelet.messages import meaning_of_rejection, reference_to

        console.print(f"{mark(console, good=False)} {label} refused: [bold]{admission.reason}[/]")
        console.print(f"  {safe(admission.message)}")
        reference = reference_to(meaning_of_rejection(admission.reason, admission.message))
        if reference:
            console.print(f"  {safe(reference)}")

        return

    unknown = node.unknown_requests(pod)
    verdict = f"{label} admitted"
    verdict += safe(extent_with_help(extent_in_words(node, pod, unknown), unknown))
    if not admission.exact:
        verdict += " (the search for the best alignment reached its limit; this is the best found)"

    evicted_pods = admission.preempted
    if evicted_pods:
        verb = "is" if len(evicted_pods) == 1 else "are"
        count = counted(len(evicted_pods), "pod")
        verdict += safe(f", after {count} {verb} evicted: {', '.join(evicted_pods)}")

    console.print(f"{mark(console, good=None if node.leaves_open(unknown) else True)} {verdict}")
    show_containers(console, node, admission)
    for line in sharing_lines(node, pod):
        console.print(f"  {safe(line)}")


def same_refusal(first: Attempt, second: Attempt) -> bool:
    """Return whether two pods that differ in their names only are refused for the same words."""
    first_pod, first_admission, *_ = first
    second_pod, second_admission, *_ = second
    if first_admission.admitted or second_admission.admitted:
        return False
    if first_admission.reason != second_admission.reason:
        return False
    if first_admission.message != second_admission.message:
        return False
    return first_pod.renamed(name=second_pod.name, uid=second_pod.uid) == second_pod


def sharing_lines(node: Node, pod: Pod) -> Iterator[str]:
    """Yield why containers share CPUs although the node's CPU manager gives some away."""
    from alignup.kubernetes.pod import why_shared

    if node.cpu is None:
        return

    names: dict[str, list[str]] = {}
    pod_as_read = pod.read_as(node.config.profile.pods)
    for container in pod_as_read.all_containers:
        names.setdefault(why_shared(pod_as_read, container), []).append(container.name)

    for reason, containers in names.items():
        if reason:
            yield f"{', '.join(containers)} in the shared pool: {reason}"


def container_rows(node: Node, admission: Admission) -> Iterator[tuple[str, ...]]:
    """Yield the cells of each container."""
    from alignup.node.holdings import allocation_cells

    for name, allocation in admission.containers.items():
        yield name, *allocation_cells(allocation.to_dict(node.machine.numa_node_ids))


def offers_to(node: Node, pod: Pod) -> Sequence[Question]:
    """Return what the providers would offer to the pod now, as far as they would be asked."""
    from alignup.explanations.trial import tried

    return [question for question in tried(node, pod).questions if question.hints]


def show_hints(console: Console, offers: Sequence[Question], numa_node_ids: Sequence[int]) -> None:
    """Print what was offered to a pod, with the scores of a release whose hints have some."""
    from alignup.topology_manager.refusal_message import other_sets, preferred_sets, view_of

    has_scores = any(question.scores is not None for question in offers)
    columns = ["container", "hints for", "preferred", "not preferred"]
    if has_scores:
        columns.append("scores")

    table = Table(*columns)
    for question in offers:
        label = "the whole pod" if question.container is None else safe(question.container.name)
        for provider, resources in question.hints.items():
            for resource, hint_list in (resources or {}).items():
                offer = view_of(resource, hint_list, numa_node_ids)
                preferred = preferred_sets(offer) or "-"
                if offer.anywhere:
                    preferred = "any"

                cells = [label, safe(resource), preferred, other_sets(offer) or "-"]
                if question.scores is not None:
                    score_of = partial(question.scores, provider, resource)
                    cells.append(scores_in_words(offer, numa_node_ids, score_of))

                table.add_row(*cells)

    if table.rows:
        print_whole(console, table, below=True)
    else:
        console.print("\n  no hints: it asks for nothing that is aligned")


def scores_in_words(
    offer: ResourceView, numa_node_ids: Sequence[int], score_of: Callable[[int], int]
) -> str:
    """Return the scores of the sets of NUMA nodes that are shown of an offer.

    Args:
        offer: the sets, by kernel ids.
        numa_node_ids: by position.
        score_of: returns the score of a mask of positions.
    """
    from alignup.topology_manager.refusal_message import SHOWN

    texts = []
    for nodes in (*offer.preferred[:SHOWN], *offer.other[:SHOWN]):
        score = score_of(bit_set(map(numa_node_ids.index, nodes)))
        texts.append(f"{'+'.join(map(str, nodes))}: {score}")

    return ", ".join(texts) or "-"
