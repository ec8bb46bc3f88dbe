"""`alignup explain --log`: merges again the hints of pods that a kubelet refused, and says what its log leaves open.

The hints are the kubelet's, the merge is ours, and so are the words of the cause, as of
`alignup.explanations.cause`.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import click

from alignup.cli import inputs
from alignup.cli.explain_view import View, show_explanation
from alignup.cli.failures import complain
from alignup.cli.terminal import print_json
from alignup.errors import one_line
from alignup.explanations.cause import (
    NODE_CAUSES,
    Cause,
    lacking_in_words,
    merge_cause,
    refusal_of,
    whole_cores,
)
from alignup.explanations.explanation import Explanation
from alignup.explanations.trial import Question
from alignup.explanations.why import step_of
from alignup.kubelet.log import read_log
from alignup.kubernetes.pod import Container, is_device
from alignup.machine.bits import bit_numbers
from alignup.node.holdings import Holdings
from alignup.providers.cpu.provider import SMT_ALIGNMENT_ERROR, too_few_cores
from alignup.text.counting import counted
from alignup.topology_manager.admission import affinity_dict
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint
from alignup.topology_manager.policy import make_policy
from alignup.topology_manager.scope import TOPOLOGY_AFFINITY_ERROR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from alignup.kubelet.log import Decision, KubeletLog, LoggedHint, LoggedRefusal
    from alignup.topology_manager.provider import ResourceHints

UNKNOWN: Final = "unknown"
# Of a resource without hints, of which the log does not say that there are too few devices.
NO_NODE: Final = "the log counts none, and the device plugin may name no NUMA node that is there"
# In the order in which a kubelet asks them.
_PROVIDERS: Final = ("devices", "cpu", "memory", "another")
# The kubelet's words.
_TOO_FEW: Final = re.compile(
    r"(?:for (\S+)\. Requested: |: requested=)(\d+), (?:Available: |available=)(\d+)"
)
_NOT_WHOLE: Final = re.compile(r"(?:physical CPUs = (\d+), )?requested (?:CPUs = )?(\d+)\D+(\d+)")
_LACKS: Final = re.compile(
    r"Node didn't have enough resource: (\S+), requested: (\d+), used: (\d+), capacity: (\d+)"
)


def explain_log(
    name: str, chosen: str | None, view: View, others: Iterable[object], *, as_json: bool
) -> int:
    """Explain the pods that a kubelet's log says were refused; return the exit status. `others` is other input."""
    if any(others):
        raise click.UsageError("--log goes without pods, --node and --nodes")

    with inputs.open_input(name) as file:
        log = read_log(inputs.read_lines(file, name), name)

    if log.omitted:
        complain(
            f"{counted(log.omitted, 'line')} of {name} left out as too long: journalctl -o json "
            "needs --all"
        )

    refusals = [
        one
        for one in log.refusals.values()
        if chosen in {None, one.pod, one.pod.removeprefix("default/")}
    ]
    for number, one in enumerate(explain_logged(log, one) for one in refusals):
        if as_json:
            print_json(one.to_dict(product=view.product))
        else:
            click.echo(nl=number > 0)
            show_explanation(one, None, view)

    if not refusals and not as_json:
        click.echo(one_line(f"the log tells of no refusal{f' of {chosen}' if chosen else ''}"))

    return 1 if refusals else 0


def explain_logged(log: KubeletLog, refusal: LoggedRefusal) -> Explanation:
    """Return why a pod was refused, as far as a log tells."""
    startup, decisions, ids = (
        refusal.startup,
        refusal.decisions,
        tuple(bit_numbers(log.numa_nodes)) or (0,),
    )
    last = decisions[-1] if decisions else None
    logged = None if last is None or last.best is None else _hint(last.best, ids)
    # single-numa-node drops the mask of a hint that names all NUMA nodes, as of one that refuses
    follows = "single-numa-node" if logged and logged.affinity is None else "restricted"
    by_merge = refusal.reason == TOPOLOGY_AFFINITY_ERROR
    name = startup.policy or (follows if by_merge and logged else UNKNOWN)
    policy = make_policy(
        follows if name == UNKNOWN else name, len(ids), options={"max-allowable-numa-nodes": "64"}
    )
    questions, place = [], Holdings(ids, (), ())
    for one in decisions:
        container = None if one.container is None else Container(one.container)
        empty = {
            name
            for given in one.hints
            for name, some in given.items()
            if some == [] and is_device(name)
        }
        accounts = {
            name: f"{asked} asked, {free} free".__str__
            for name, (asked, free) in one.too_few.items()
        }
        accounts = dict.fromkeys(empty, NO_NODE.__str__) | accounts
        hints = _hints(one, ids)
        best = (
            policy.merge(hints.values())[0] if one.hints and len(one.hints) == one.offers else None
        )
        questions.append(Question(container, place, accounts, hints, best))

    merged = questions[-1].affinity if questions else None
    if by_merge and merged:
        found = merge_cause(refusal_of(questions[-1], policy.name), ids)
    else:
        found = _of_message(refusal.reason, refusal.message)

    scope = startup.scope or (
        UNKNOWN if last is None else "pod" if last.container is None else "container"
    )
    steps = tuple(step_of(one, policy, {}) for one in questions)
    told = {"message": refusal.message, "unknown": list(_unknown(refusal, by_merge=by_merge))}
    agrees = {
        "agrees": logged == merged if logged and merged and not startup.prefers_closest else None
    }
    return Explanation(
        refusal.pod, refusal.uid, False, refusal.reason, (found.sentence,), found.kind, found.resources,
        last.container if last and found.kind != "node" else None, name, scope, UNKNOWN, steps, (), place,
        log={**told, **agrees, "best": affinity_dict(logged, ids), "merged": affinity_dict(merged, ids)},
    )  # fmt: skip


def _hints(decision: Decision, ids: tuple[int, ...]) -> dict[str, ResourceHints]:
    """Return the hints of a decision by provider."""
    return {
        provider: {
            name: None if some is None else HintList(_hint(one, ids) for one in some)
            for name, some in given.items()
        }
        for provider, given in zip(_PROVIDERS, decision.hints, strict=False)
    }


def _hint(hint: LoggedHint, ids: tuple[int, ...]) -> TopologyHint:
    """Return a hint, whose bits are positions and not ids."""
    mask, preferred = hint
    return TopologyHint(
        None if mask is None else BitMask(map(ids.index, bit_numbers(mask))), preferred
    )


def _of_message(reason: str, message: str) -> Cause:
    """Return the cause that a kubelet's message tells, in our words where there are better ones."""
    if told := _TOO_FEW.search(message):
        name = told[1] or "cpu"
        return Cause(
            one_line(f"not enough {name} is free: {told[2]} asked, {told[3]} free"),
            "allocation",
            (name,),
        )

    if reason == SMT_ALIGNMENT_ERROR and (told := _NOT_WHOLE.search(message)):
        return whole_cores(
            int(told[2]), int(told[3]), too_few_cores(int(told[2]), int(told[1] or 0))
        )

    if lacks := _LACKS.findall(message):
        parts = [lacking_in_words(name, *map(int, amounts)) for name, *amounts in lacks]
        words = f"too little is left on the node as a whole: {'; '.join(parts)}"
        return Cause(one_line(words), "node", tuple(name for name, *_ in lacks))

    words = message.removeprefix("Allocate failed due to ").removesuffix(", which is unexpected")
    kind = "allocation" if words != message else "node" if reason in NODE_CAUSES else UNKNOWN
    blamed = ("memory",) if words.startswith("[memorymanager]") else ()
    return Cause(
        NODE_CAUSES.get(reason) or one_line(words) or "the log does not say why", kind, blamed
    )


def _unknown(refusal: LoggedRefusal, *, by_merge: bool) -> Iterator[str]:
    """Yield what the log does not tell of a refusal."""
    if not refusal.decisions and refusal.startup.policy != "none":
        yield "the hints: no line TopologyHints is about this pod"
    if any(len(one.hints) < one.offers for one in refusal.decisions):
        yield "all hints: a line of them is cut off"
    if not refusal.startup.policy:
        yield (
            "the policy, but for what the best hint "
            f"{'tells' if by_merge and refusal.decisions else 'may tell'}"
        )
    if refusal.startup.prefers_closest:
        yield "distances, by which prefer-closest-numa-nodes chooses"
    yield "how much was asked for and free where, who holds the rest, and what would help"
