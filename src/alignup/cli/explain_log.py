"""`alignup explain --log`: merges again the hints of pods that a kubelet refused.

Of a kubelet that does not start it says why, and how to mend that. It says what the kubelet's log
leaves open. The hints are the kubelet's, the merge is ours, and so
are the words of the cause, as of `alignup.explanations.cause`.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Any, Final

import click

from alignup.cli import inputs
from alignup.cli.explain_view import View, explanation_dict, show_explanation, show_failed_start
from alignup.cli.failures import complain
from alignup.cli.terminal import print_json, print_line
from alignup.errors import InputError, one_line, sentence_of
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
from alignup.kubelet.layout import KUBELET
from alignup.kubelet.log import MOST_EXPLAINED, read_log
from alignup.kubelet.messages import meaning_of_rejection, meaning_of_start
from alignup.kubernetes.pod import Container, is_device
from alignup.machine.bits import bit_numbers, bit_set
from alignup.node.holdings import Holdings
from alignup.providers.cpu.provider import SMT_ALIGNMENT_ERROR, too_few_cores
from alignup.text.counting import counted
from alignup.topology_manager.admission import affinity_dict
from alignup.topology_manager.hints import BitMask, HintList, TopologyHint
from alignup.topology_manager.policy import make_policy
from alignup.topology_manager.scope import TOPOLOGY_AFFINITY_ERROR

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from alignup.kubelet.log import (
        Decision,
        FailedStart,
        KubeletLog,
        LoggedHint,
        LoggedRefusal,
    )
    from alignup.node.holdings import HintScores
    from alignup.topology_manager.policy import Policy
    from alignup.topology_manager.provider import ResourceHints

# The longest log that is read, in bytes and in lines: it takes less than ten seconds, and 512 MiB.
LOG_LIMIT: Final = 48 << 20
MOST_LINES: Final = 1_000_000

UNKNOWN: Final = "unknown"
# Of a resource without hints, of which the log does not say that there are too few devices.
NO_NODE: Final = "the log counts none, and the device plugin may name no NUMA node that is there"
# In the order in which a kubelet asks them.
_PROVIDERS: Final = ("devices", "cpu", "memory", "another")
# The kubelet's words.
_TOO_FEW: Final = re.compile(
    r"(?:for (\S+)\. Requested: |: requested=)(\d+), (?:Available: |available=)(\d+)"
)
_NOT_WHOLE: Final = re.compile(
    r"(?:physical CPUs = (\d{1,18}), )?requested (?:CPUs = )?(\d{1,18})\D+(\d{1,18})"
)
_LACKS: Final = re.compile(
    r"Node didn't have enough resource: (\S+), requested: (\d{1,19}), used: (\d{1,19}), "
    r"capacity: (\d{1,19})"
)


def explain_log(
    name: str, chosen: str | None, view: View, other_inputs: Iterable[object], *, as_json: bool
) -> int:
    """Explain what a kubelet's log says was refused, and its starts that failed.

    Return the exit status.

    Args:
        name: of the log.
        chosen: the only pod to explain; None: all.
        view: how much of an explanation is shown.
        other_inputs: what does not go with a log.
        as_json: print JSON.
    """
    if any(other_inputs):
        raise click.UsageError("--log goes without pods, --node and --nodes")

    log = _read(name, chosen)
    refusals = list(log.refusals.values())
    for number, refusal in enumerate(refusals):
        explanation = explain_logged(log, refusal)
        if as_json:
            print_json(explanation_dict(explanation, None, product=view.product))
        else:
            click.echo(nl=number > 0)
            show_explanation(explanation, None, view)

    failed_starts = [] if chosen and refusals else list(log.failed_starts.values())
    for number, failed in enumerate(failed_starts):
        fields = failed_start_dict(failed)
        if as_json:
            print_json(fields)
        else:
            click.echo(nl=bool(number or refusals))
            show_failed_start(fields)

    if not (refusals or failed_starts or as_json):
        sentence = "the log tells of no refusal"
        if chosen:
            sentence += f" of {chosen}"

        print_line(sentence)

    return 1 if refusals or failed_starts else 0


def _read(name: str, chosen: str | None) -> KubeletLog:
    """Return what a log says, of one pod or of all; complain of what is left out.

    Raises:
        InputError: it cannot be read, or is none.
    """
    pod = chosen or ""
    if pod and "/" not in pod:
        pod = f"default/{pod}"

    with inputs.open_input(name) as file:
        if _size_of(file) > LOG_LIMIT:
            raise _too_long(name)
        log = read_log(_lines_of(inputs.as_utf8(file), name), name, pod)

    if log.omitted:
        complain(
            f"{counted(log.omitted, 'line')} of {name} left out as too long: journalctl -o json "
            "needs --all"
        )
    if log.dropped:
        complain(
            f"{counted(log.dropped, 'refusal')} of {name} left out, the oldest: {MOST_EXPLAINED} "
            "are explained at most; --pod NAMESPACE/NAME picks a pod"
        )
    return log


def _size_of(file: IO[bytes]) -> int:
    """Return how many bytes a file has; 0: nobody knows before they are read."""
    with suppress(OSError):  # it is none of the system's
        return os.fstat(file.fileno()).st_size
    return 0


def _lines_of(file: IO[bytes], name: str) -> Iterator[bytes]:
    """Yield the lines of a log.

    Raises:
        InputError: it is longer than a log may be.
    """
    length = 0
    for number, line in enumerate(inputs.read_lines(file, name), 1):
        length += len(line)
        if length > LOG_LIMIT or number > MOST_LINES:
            raise _too_long(name)
        yield line


def _too_long(name: str) -> InputError:
    return InputError(
        f"{name} has more than {LOG_LIMIT >> 20} MiB or {MOST_LINES} lines: write less of the log, "
        "as journalctl -u kubelet --since '1 hour ago' does"
    )


def failed_start_dict(failed: FailedStart) -> dict[str, Any]:
    """Return why starts of a kubelet failed, in JSON's types."""
    error = meaning_of_start(failed.message)
    fields = {"kubelet": "does not start", "component": "unknown", "file": "", "repair": ""}
    fields["cause"] = "these words are of no manager of CPUs, memory or devices"
    if error is not None:
        fields |= {
            "component": error.message.component,
            "file": f"/{KUBELET}/{error.message.file}" if error.message.file else "",
            "cause": failed.difference or error.cause,
            "repair": failed.repair or error.repair,
            "see": error.message.anchor,
        }

    return {
        **fields,
        "message": sentence_of(failed.message),
        "count": max(failed.count, 1),
        "startedSince": failed.started_since,
    }


def explain_logged(log: KubeletLog, refusal: LoggedRefusal) -> Explanation:
    """Return why a pod was refused, as far as a log tells."""
    startup = refusal.startup
    ids = tuple(bit_numbers(log.numa_nodes)) or (0,)
    last = refusal.decisions[-1] if refusal.decisions else None
    logged_hint = None
    if last is not None and last.best is not None:
        logged_hint = _hint(last.best, ids)

    by_merge = refusal.reason == TOPOLOGY_AFFINITY_ERROR

    # single-numa-node drops the mask of a hint that names all NUMA nodes, as of one that refuses
    likely_policy = "restricted"
    if logged_hint and logged_hint.affinity is None:
        likely_policy = "single-numa-node"

    policy_name = startup.policy or UNKNOWN
    if not startup.policy and by_merge and logged_hint:
        policy_name = likely_policy

    policy = make_policy(
        likely_policy if policy_name == UNKNOWN else policy_name,
        len(ids),
        options={"max-allowable-numa-nodes": "64"},
    )
    holdings = Holdings(ids, (), ())
    questions = [_question(decision, policy, holdings) for decision in refusal.decisions]

    merged_hint = questions[-1].affinity if questions else None
    if by_merge and merged_hint:
        cause = merge_cause(refusal_of(questions[-1], policy.name), ids)
    else:
        cause = _cause_of_message(refusal.reason, refusal.message)

    meaning = meaning_of_rejection(refusal.reason, refusal.message)
    steps = tuple(step_of(question, policy, {}) for question in questions)
    agrees = None
    if logged_hint and merged_hint and not startup.prefers_closest:
        agrees = logged_hint == merged_hint

    return Explanation(
        refusal.pod,
        refusal.uid,
        False,
        refusal.reason,
        causes=(cause.sentence,),
        cause_kind=cause.kind,
        blamed=cause.resources,
        container=last.container if last and cause.kind != "node" else None,
        policy=policy_name,
        scope=startup.scope or _scope_of(last),
        qos=UNKNOWN,
        steps=steps,
        containers=(),
        before=holdings,
        log={
            "message": refusal.message,
            "repair": meaning.remedy if meaning else "",
            "unknown": list(_unknown(refusal, by_merge=by_merge)),
            "agrees": agrees,
            "best": _with_score(
                affinity_dict(logged_hint, ids), last.best.score if last and last.best else None
            ),
            "merged": _with_score(
                affinity_dict(merged_hint, ids), steps[-1].best_score if steps else None
            ),
        },
    )


def _with_score(hint: dict[str, Any] | None, score: int | None) -> dict[str, Any] | None:
    """Return a hint in JSON's types with its score, if both are known."""
    if hint is None or score is None:
        return hint
    return {**hint, "score": score}


def _scope_of(decision: Decision | None) -> str:
    """Return the scope that a decision shows."""
    if decision is None:
        return UNKNOWN
    return "pod" if decision.container is None else "container"


def _question(decision: Decision, policy: Policy, holdings: Holdings) -> Question:
    """Return a decision as the question that was asked, with what its hints merge into."""
    container = None
    if decision.container is not None:
        container = Container(decision.container)

    accounts = {
        name: NO_NODE.__str__
        for provider_hints in decision.hints
        for name, resource_hints in provider_hints.items()
        if resource_hints == [] and is_device(name)
    }
    for name, (requested, free) in decision.too_few.items():
        accounts[name] = f"{requested} asked, {free} free".__str__

    hints = _hints(decision, holdings.numa_node_ids)
    best = None
    if decision.hints and len(decision.hints) == decision.offers:
        best, *_ = policy.merge(hints.values())

    scores = _scores(decision, holdings.numa_node_ids)
    return Question(container, holdings, accounts, hints, best, scores=scores)


def _scores(decision: Decision, ids: tuple[int, ...]) -> HintScores | None:
    """Return the scores of a decision's hints; None: they have none."""
    scores = {
        (provider, resource, _mask(hint.mask, ids)): hint.score
        for provider, provider_hints in zip(_PROVIDERS, decision.hints, strict=False)
        for resource, hints in provider_hints.items()
        for hint in hints or ()
        if hint.mask is not None and hint.score is not None
    }
    if not scores:
        return None

    def score_of(provider: str, resource: str, mask: int) -> int:
        return scores.get((provider, resource, mask), 0)

    return score_of


def _hints(decision: Decision, ids: tuple[int, ...]) -> dict[str, ResourceHints]:
    """Return the hints of a decision by provider."""
    by_provider: dict[str, ResourceHints] = {}
    for provider, provider_hints in zip(_PROVIDERS, decision.hints, strict=False):
        resource_hints: dict[str, HintList | None] = {}
        for name, hints in provider_hints.items():
            resource_hints[name] = None
            if hints is not None:
                resource_hints[name] = HintList(_hint(hint, ids) for hint in hints)

        by_provider[provider] = resource_hints

    return by_provider


def _hint(hint: LoggedHint, ids: tuple[int, ...]) -> TopologyHint:
    """Return a hint, whose bits are positions and not ids."""
    if hint.mask is None:
        return TopologyHint(None, hint.preferred)
    return TopologyHint(BitMask.from_int(_mask(hint.mask, ids)), hint.preferred)


def _mask(logged_mask: int, ids: tuple[int, ...]) -> int:
    """Return the positions of NUMA nodes, of which a log has the ids."""
    return bit_set(map(ids.index, bit_numbers(logged_mask)))


def _cause_of_message(reason: str, message: str) -> Cause:
    """Return the cause that a kubelet's message tells, in our words where there are better ones."""
    too_few = _TOO_FEW.search(message)
    if too_few:
        name = too_few[1] or "cpu"
        sentence = f"not enough {name} is free: {too_few[2]} asked, {too_few[3]} free"
        return Cause(one_line(sentence), "allocation", (name,))

    not_whole = _NOT_WHOLE.search(message)
    if reason == SMT_ALIGNMENT_ERROR and not_whole:
        physical_cpus, requested, per_core = (int(number or 0) for number in not_whole.groups())
        return whole_cores(requested, per_core, too_few_cores(requested, physical_cpus))

    shortages = _LACKS.findall(message)
    if shortages:
        parts = [lacking_in_words(name, *map(int, amounts)) for name, *amounts in shortages]
        sentence = f"too little is left on the node as a whole: {'; '.join(parts)}"
        return Cause(one_line(sentence), "node", tuple(name for name, *_ in shortages))

    sentence = message.removeprefix("Allocate failed due to ")
    sentence = sentence.removesuffix(", which is unexpected")
    if sentence != message:
        kind = "allocation"
    elif reason in NODE_CAUSES:
        kind = "node"
    else:
        kind = UNKNOWN

    blamed = ("memory",) if sentence.startswith("[memorymanager]") else ()
    cause = NODE_CAUSES.get(reason) or one_line(sentence) or "the log does not say why"
    return Cause(cause, kind, blamed)


def _unknown(refusal: LoggedRefusal, *, by_merge: bool) -> Iterator[str]:
    """Yield what the log does not tell of a refusal."""
    if not refusal.decisions and refusal.startup.policy != "none":
        yield "the hints: no line TopologyHints is about this pod"
    if any(len(decision.hints) < decision.offers for decision in refusal.decisions):
        yield "all hints: a line of them is cut off"
    if not refusal.startup.policy:
        is_inferred = by_merge and refusal.decisions
        yield "the policy" + (" (here inferred from the best hint)" if is_inferred else "")
    if refusal.startup.prefers_closest:
        yield "distances, by which prefer-closest-numa-nodes chooses"
    yield "the amounts asked and free; who holds the rest; what would help"
