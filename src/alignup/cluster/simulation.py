"""Plays a trace of pods over a cluster.

A scheduler chooses nodes, and the nodes themselves admit or refuse. A scheduler that sees topology
asks the nodes (`Cluster.judge`), a blind one sees node totals only, as the default scheduler does.
The difference in what the nodes refuse is the cost of topology-blind scheduling.

Pods that find no node are given up, or wait; a plan of `alignup.cluster.evictions` may then make
room for some.

The members of a group are placed all or none by a scheduler that sees topology, and one after the
other by a blind one, as the default scheduler does.
"""

from __future__ import annotations

import heapq
from collections import Counter
from random import Random
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from alignup.cluster.cluster import (
    AMOUNTS_ONLY,
    MISMATCHED,
    REASONS,
    Cluster,
    Evaluation,
    Ints,
    Truths,
)
from alignup.cluster.evictions import Standing, plan_room, without
from alignup.cluster.node_totals import Totals, check_blind, demand_key
from alignup.cluster.pod_groups import TotalRoom, place_group
from alignup.cluster.ranking import short_cause
from alignup.cluster.simulated_groups import GroupCounts, SimulatedGroup, SimulatedGroups
from alignup.cluster.traces import Arrival, Removal
from alignup.errors import ConfigError, InputError
from alignup.records import Record, field, json_fields

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import numpy.typing as npt

    from alignup.cluster.pod_groups import GroupPlan
    from alignup.cluster.traces import Event
    from alignup.core.amounts.board import Job
    from alignup.kubernetes.pod import Pod

_PLACED: Final = "placed"
_REFUSED: Final = "refused"
_LEFT_OUT: Final = "left_out"

# The outcomes after which a pod does not wait.
_OVER: Final = (_PLACED, _REFUSED)

# At how many arrivals stranded capacity is measured.
_SAMPLES: Final = 100

# Different demands that are kept up to date; forgotten together when there are more.
_DEMANDS_KEPT: Final = 256

# Changes of nodes that are remembered until all demands are forgotten.
_CHANGES_KEPT: Final = 1 << 20


class Waiting(Record):
    """How long pods waited until they found a node, or until the trace was over.

    Attributes:
        mean: seconds, over all arrivals.
        pods: those that still wait at the end.
        evictions: pods that went for others, to another place at once.
    """

    mean: float
    longest: float
    pods: int
    evictions: int


class Report(Record):
    """The outcome of a trace.

    Attributes:
        no_room: pods for which no node had enough of everything in total.
        no_alignment: pods for which nodes had room, and the scheduler saw that none could align
            them; a blind one never does.
        refused: pods that every node refused on which they were tried, which the scheduler had not
            foreseen.
        refusals: the number of times that a node refused a pod, by the kubelet's reason; a pod can
            be tried on several nodes.
        utilisation: by resource, the mean part of what there is that was requested by running pods,
            weighted with time.
        peak: the largest such part.
        stranded: by resource, the mean share of free amounts that lay on nodes with enough in total
            for the pod at hand which would have refused it; over arrivals spread evenly over the
            trace.
        misaligned: placed pods of which some device of a claim is not near their CPUs and memory;
            None: no claims are known.
        causes: by reason and cause, equal for nodes that refuse a pod alike, how often a node
            refused: one on which a pod was tried, or, of a pod that no node could align, one that
            had enough in total.
        waiting: None: pods that found no node were given up.
        left_out: members of groups of which too few had come, or for all of which there was no
            place together.
        groups: what came of the groups; None: there were none.
    """

    arrivals: int
    placed: int
    no_room: int
    no_alignment: int
    refused: int
    refusals: Mapping[str, int]
    utilisation: Mapping[str, float]
    peak: Mapping[str, float]
    stranded: Mapping[str, float]

    misaligned: int | None = None
    causes: Mapping[tuple[str, str], int] = field(default_factory=dict)
    waiting: Waiting | None = None
    left_out: int = 0
    groups: GroupCounts | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON can hold it."""
        report = json_fields(self, "arrivals", "placed", "no_room", "no_alignment", "refused")
        if self.groups is not None:
            report |= {"leftOut": self.left_out, "groups": self.groups.to_dict()}
        if self.misaligned is not None:
            report["misaligned"] = self.misaligned

        causes = sorted(self.causes.items(), key=lambda entry: (-entry[1], entry[0]))
        report |= {
            "refusals": dict(self.refusals),
            "causes": [
                {"reason": reason, "cause": cause, "count": count}
                for (reason, cause), count in causes
            ],
            "utilisation": _rounded(self.utilisation),
            "peak": _rounded(self.peak),
            "stranded": _rounded(self.stranded),
        }
        if self.waiting is not None:
            report["waiting"] = json_fields(self.waiting)

        return report


def _rounded(values: Mapping[str, float]) -> dict[str, float]:
    return {name: round(value, 6) for name, value in values.items()}


class Simulation:
    """A scheduler and a cluster that it places pods on.

    The nodes change; pods that they hold stay until removed.

    Args:
        cluster: A cluster made from nodes.
        strategy: How nodes are ranked; None: `least-numa-nodes`, or `least-allocated` for a blind
            scheduler.
        blind: The scheduler sees node totals only.
        seed: Decides between nodes of equal score.
        attempts: On how many nodes a pod is tried until it is given up.
        waits: A pod that finds no node waits until one has room; one that no empty node would take
            is given up.
        rebalance: Plan evictions for pods that wait although a node has enough in total, and carry
            them out, at most once in this many seconds; None: never.

    Raises:
        InputError: The cluster has no nodes to admit pods, or the strategy is not for such a
            scheduler.
    """

    def __init__(
        self,
        cluster: Cluster,
        strategy: str | None = None,
        *,
        blind: bool = False,
        seed: int = 0,
        attempts: int = 1,
        waits: bool = False,
        rebalance: float | None = None,
    ) -> None:
        if not cluster.nodes:
            raise InputError(AMOUNTS_ONLY)
        if attempts < 1:
            raise InputError.at("attempts", "at least one attempt", attempts)

        self.cluster = cluster
        self.totals = Totals(cluster.nodes)
        self.strategy = strategy or ("least-allocated" if blind else "least-numa-nodes")
        if blind:
            check_blind(self.strategy)

        self._random = Random(seed)  # noqa: S311  # ties, not secrets
        self._attempts = attempts
        self._rebalance = rebalance
        self._knows_groups = not blind
        self._empty: Cluster | None = None
        if waits or rebalance is not None:
            self._empty = Cluster.from_nodes([without(node, node.pods) for node in cluster.nodes])

        self._candidates = Candidates(cluster, self.totals, self.strategy, blind=blind)
        # By uid, the index of a pod's node and what the pod counts with there.
        self._where: dict[str, tuple[int, Ints | None]] = {
            pod.uid: (index, self.totals.held(pod))
            for index, node in enumerate(cluster.nodes)
            for pod in node.pods
        }
        self._nodes = cluster.nodes
        self._begin(())

    def _begin(self, events: Sequence[Event]) -> None:
        """Forget what came of the trace before."""
        self._groups = SimulatedGroups(event for event in events if isinstance(event, Arrival))
        self._counts: Counter[str] = Counter()
        self._refusals: Counter[str] = Counter()
        self._causes: Counter[tuple[str, str]] = Counter()
        self._meter = Meter(self.totals)
        self._ends: list[tuple[float, str]] = []
        # By uid, pods that wait, with the word under which they are counted.
        self._waiting: dict[str, tuple[Arrival, str]] = {}
        self._waited: list[float] = []
        self._next_plan = float("-inf")

    def run(self, events: Sequence[Event]) -> Report:
        """Play a trace and return what came of it.

        Raises:
            InputError: As `steps`.
        """
        for _ in self.steps(events):
            pass
        return self.report

    def steps(self, events: Sequence[Event]) -> Iterator[int]:
        """Play a trace, yielding the number of its events that are done.

        The report is ready after the last.

        Raises:
            InputError: A pod is removed that never came, or comes although it is there.
        """
        arrivals = sum(isinstance(event, Arrival) for event in events)
        every = -(-arrivals // _SAMPLES)
        self._begin(events)
        meter = self._meter
        known_uids = set(self._where)

        for number, event in enumerate(events, 1):
            self._end_pods(event.time, meter)
            meter.advance(event.time)
            if isinstance(event, Removal):
                # one that was not placed has nothing to take away
                if not self._remove(event) and event.uid not in known_uids:
                    raise InputError.at("the trace", "the uid of a pod that has come", event.uid)

                self._look_again(event.time)
            else:
                if event.pod.uid in self._where:
                    raise InputError.at("the trace", "a pod that is not there yet", event.pod.uid)

                known_uids.add(event.pod.uid)
                demand = self._candidates.of(event.pod)
                if self._counts["arrivals"] % every == 0:
                    meter.strand(demand.fits, self._candidates.admitted(demand))
                self._arrive(event, demand)
                self._make_room(event.time)

            meter.note()
            yield number

        still_waiting = [arrival for arrival, _ in self._waiting.values()] + self._groups.waiting
        self._waited += [event.time - arrival.time for arrival in still_waiting]
        for group in self._groups:
            if group.is_complete:
                plan = self._plan_of(group)
                group.reason = self._groups.shortfall(self.cluster, plan, self.strategy)

    def _remove(self, event: Removal) -> bool:
        """Take a pod away that runs or waits; return whether there is one."""
        uid = event.uid
        if uid in self._where:
            self._take_away(uid)
            return True

        arrival = self._groups.gone(uid)
        if arrival is None and uid in self._waiting:
            arrival, _ = self._waiting.pop(uid)
        if arrival is not None:
            self._waited.append(event.time - arrival.time)
        return arrival is not None

    @property
    def report(self) -> Report:
        """The outcome of the trace that was played last, as far as it was played."""
        counts = self._counts
        totals = self.totals
        meter = self._meter

        misaligned = None
        if any(node.claims for node in self._nodes):
            misaligned = counts["misaligned"]

        waiting = None
        if self._empty is not None:
            waiting = Waiting(
                mean=sum(self._waited) / max(1, counts["arrivals"]),
                longest=max(self._waited, default=0.0),
                pods=len(self._waiting) + len(self._groups.waiting),
                evictions=counts["evictions"],
            )

        return Report(
            arrivals=counts["arrivals"],
            placed=counts[_PLACED],
            no_room=counts["no_room"],
            no_alignment=counts["no_alignment"],
            refused=counts[_REFUSED],
            refusals=dict(sorted(self._refusals.items())),
            utilisation=totals.by_name(meter.mean),
            peak=totals.by_name(meter.peak),
            stranded=totals.by_name(meter.stranded),
            misaligned=misaligned,
            causes=dict(self._causes),
            waiting=waiting,
            left_out=counts[_LEFT_OUT],
            groups=self._groups.counts(),
        )

    def _end_pods(self, time: float, meter: Meter) -> None:
        """Remove the pods whose time is over."""
        while self._ends and self._ends[0][0] <= time:
            end, uid = heapq.heappop(self._ends)
            meter.advance(end)
            if uid in self._where:
                self._take_away(uid)
                self._look_again(end)
                meter.note()

    def _look_again(self, time: float) -> None:
        """Place what waits, now that something was freed: groups, then pods, the first ones first.

        Then make room for those that still wait.
        """
        self._place_groups(time)
        full: set[int] = set()
        for uid, (event, _) in list(self._waiting.items()):
            demand = self._candidates.of(event.pod)
            if id(demand) in full:
                continue

            outcome = self._place(event, demand, time)
            if outcome in _OVER:
                self._waits_no_more(uid, outcome, time)
            else:
                full.add(id(demand))

        self._make_room(time)

    def _waits_no_more(self, uid: str, outcome: str, time: float) -> None:
        event, counted = self._waiting.pop(uid)
        self._counts[counted] -= 1
        self._counts[outcome] += 1
        self._waited.append(time - event.time)

    def _make_room(self, time: float) -> None:
        """Carry out a plan for waiting pods, if it is time for one.

        It is for those that wait although a node has enough in total.
        """
        if self._rebalance is None or time < self._next_plan:
            return

        pods = [
            arrival.pod
            for arrival, _ in self._waiting.values()
            if self._candidates.of(arrival.pod).fits.any()
        ]
        if not pods:
            return

        self._next_plan = time + self._rebalance
        # a group is worth nothing without one of its members
        members = {uid: Standing(comes_back=False) for uid in self._where if self._groups.of(uid)}
        for step in plan_room(self.cluster, pods, standings=members).steps:
            if step.action == "evict":
                self._take_away(step.pod.uid)
                self._counts["evictions"] += 1
                continue

            index = self.cluster.index(step.node)
            admitted = self._try(step.pod, index, self._candidates.of(step.pod))
            assert admitted, step  # noqa: S101  # it was replayed
            if step.action == "place":
                self._will_end(self._waiting[step.pod.uid][0], time)
                self._waits_no_more(step.pod.uid, _PLACED, time)

    def _will_end(self, event: Arrival, time: float) -> None:
        if event.duration is not None:
            heapq.heappush(self._ends, (time + event.duration, event.pod.uid))

    def _take_away(self, uid: str) -> None:
        index, request = self._where.pop(uid)
        self._nodes[index].remove(uid)
        self.totals.remove(index, request)
        self._candidates.changed(index)
        self._groups.gone(uid)

    def _arrive(self, event: Arrival, demand: Demand) -> None:
        """Place a pod, or count why not; a member waits for as many as have to run together."""
        self._counts["arrivals"] += 1
        if event.membership is not None:
            group = self._groups.came(event, event.membership)
            if self._knows_groups and not group.running:
                group.waiting[event.pod.uid] = event
                group.was_refused = False
                self._counts[_LEFT_OUT] += 1
                self._place_groups(event.time)
                return

        self._arrive_alone(event, demand, event.time)

    def _arrive_alone(self, event: Arrival, demand: Demand, time: float) -> None:
        """Place a pod that waits for no other one, or count why not."""
        counted = self._place(event, demand, time)
        self._counts[counted] += 1
        if counted in _OVER:
            return

        if self._empty is not None:
            admitted = self._empty.evaluate(demand.pod).admitted
            takers = admitted & self.totals.could_fit(demand.request)
            if takers.any():
                self._waiting[event.pod.uid] = event, counted

        for index in np.flatnonzero(demand.fits).tolist():
            reason = REASONS[demand.answer.reason[index]]
            self._causes[reason, self._candidates.cause(demand, index)] += 1

    def _place_groups(self, time: float) -> None:
        """Place the groups of which enough members have come, or give them up."""
        refused_shapes: set[object] = set()
        for group in self._groups:
            if not group.is_complete:
                continue

            kinds = Counter(demand_key(event.pod) for event in group.waiting.values())
            shape = group.needed, frozenset(kinds.items())
            if shape not in refused_shapes and not self._place_group(group, time):
                refused_shapes.add(shape)

    def _place_group(self, group: SimulatedGroup, time: float) -> bool:
        """Place as many members of a group as have to run together, or none.

        Those that are over go alone then.
        """
        plan = self._plan_of(group)
        if len(plan.places) < group.needed:
            self._group_refused(group, plan)
            return False

        arrivals = dict(group.waiting)
        for place in plan.places:
            event = arrivals.pop(place.pod.uid)
            index = self.cluster.index(place.node)
            admitted = self._try(place.pod, index, self._candidates.of(place.pod))
            assert admitted, place  # noqa: S101  # a copy did
            self._will_end(event, time)
            self._counts[_PLACED] += 1
            self._waited.append(time - event.time)

        self._counts[_LEFT_OUT] -= len(plan.places) + len(arrivals)
        for event in arrivals.values():
            del group.waiting[event.pod.uid]
            self._arrive_alone(event, self._candidates.of(event.pod), time)
        return True

    def _group_refused(self, group: SimulatedGroup, plan: GroupPlan) -> None:
        """Give a group up for which there is no place, unless it waits for one."""
        is_first = not group.was_refused
        group.was_refused = True
        if self._empty is not None:
            pods = [event.pod for event in group.waiting.values()]
            if not is_first or len(place_group(self._empty, pods).places) >= group.needed:
                return

        reason = self._groups.shortfall(self.cluster, plan, self.strategy)
        self._groups.given_up(group, reason)

    def _plan_of(self, group: SimulatedGroup) -> GroupPlan:
        pods = [event.pod for event in group.waiting.values()]
        return place_group(self.cluster, pods, TotalRoom(self.totals), strategy=self.strategy)

    def _place(self, event: Arrival, demand: Demand, time: float) -> str:
        """Place a pod; return the word under which it is counted."""
        scores = demand.scores
        tried = 0
        while tried < self._attempts:
            best = scores.max()
            if best == -np.inf:
                break

            equal = (scores == best).nonzero()[0]
            place = 0 if len(equal) == 1 else self._random.randrange(len(equal))
            index = int(equal[place])
            if self._try(event.pod, index, demand):
                self._will_end(event, time)
                return _PLACED

            if not tried:
                scores = scores.copy()
            scores[index] = -np.inf
            tried += 1

        if tried:
            return _REFUSED

        return "no_alignment" if demand.fits.any() else "no_room"

    def _try(self, pod: Pod, index: int, demand: Demand) -> bool:
        """Let a node admit the pod."""
        try:
            admission = self._nodes[index].admit(pod)
        except ConfigError:  # the pod's own policy does not go with so many NUMA nodes
            reason = REASONS[MISMATCHED]
            self._refusals[reason] += 1
            self._causes[reason, short_cause(self._nodes[index], pod)] += 1
            return False

        self._candidates.changed(index)
        if not admission.admitted:
            cause = short_cause(self._nodes[index], pod, admission.refusal)
            self._refusals[admission.reason] += 1
            self._causes[admission.reason, cause] += 1
            return False

        claims = self._nodes[index].claims
        if claims is not None and claims.are_aligned(pod, admission.containers) is False:
            self._counts["misaligned"] += 1

        group = self._groups.of(pod.uid)
        if group is not None:
            group.placed(pod.uid)

        self._where[pod.uid] = (index, demand.request)
        self.totals.add(index, demand.request)
        return True


class Demand(Record, frozen=False):
    """What pods that ask for the same are told by every node.

    Attributes:
        pod: the first of them.
        request: in the order of `Totals.resources`; None: something that no node has.
        fits: whether a node has as much left in total.
        scores: how much a node is worth; minus infinity: it is no candidate.
        answer: the verdicts of the nodes; those of nodes where the pod does not fit are not kept up
            to date.
        seen: the number of changes of nodes that `fits` and `scores` take into account.
        judged: the number of changes that the answer takes into account; -1: none was given yet.
        causes: by index, why nodes refused when they were asked, and how often they had changed by
            then.
    """

    pod: Pod
    request: Ints | None
    fits: Truths
    scores: npt.NDArray[np.float64]
    job: Job
    answer: Evaluation
    seen: int = 0
    judged: int = -1
    causes: dict[int, tuple[int, str]] = field(default_factory=dict)


class Candidates:
    """What every node of a cluster says to each demand, kept up to date.

    Args:
        cluster: the nodes.
        totals: their sums.
        strategy: how nodes are ranked.
        blind: the scheduler sees sums only.
    """

    def __init__(self, cluster: Cluster, totals: Totals, strategy: str, *, blind: bool) -> None:
        self._cluster = cluster
        self._totals = totals
        self._strategy = strategy
        self._blind = blind
        self._judging = "least-numa-nodes" if blind else strategy
        self._demands: dict[object, Demand] = {}
        self._changes: list[int] = []
        self._times_changed = [0] * len(cluster)

    def changed(self, index: int) -> None:
        """Note that a pod came to a node or left it."""
        self._changes.append(index)
        self._times_changed[index] += 1

    def of(self, pod: Pod) -> Demand:
        """Return what each node is worth to the pod now."""
        key = demand_key(pod)
        demand = self._demands.get(key)
        if demand is None:
            if len(self._demands) >= _DEMANDS_KEPT or len(self._changes) > _CHANGES_KEPT:
                self._demands.clear()
                self._changes.clear()

            count = len(self._cluster)
            demand = Demand(
                # nodes that are asked themselves may have the pod by then
                pod=pod.renamed(uid=f"{pod.uid}/asked"),
                request=self._totals.request(pod),
                fits=np.zeros(count, np.bool_),
                scores=np.full(count, -np.inf),
                job=self._cluster.job(pod),
                answer=Evaluation.empty(count),
            )
            self._demands[key] = demand
            self._look_at(demand, None)
        elif demand.seen < len(self._changes):
            self._look_at(demand, self._changed_since(demand.seen))

        demand.seen = len(self._changes)
        return demand

    def admitted(self, demand: Demand) -> Truths:
        """Return which nodes would admit the pod, of those where it fits."""
        if self._blind and demand.judged < len(self._changes):
            self._judge(demand, None if demand.judged < 0 else self._changed_since(demand.judged))
        return demand.answer.admitted

    def cause(self, demand: Demand, index: int) -> str:
        """Return why a node refuses the pod, in the words of `short_cause`."""

        def admits(pod: Pod) -> bool:
            return bool(self.admitted(self.of(pod))[index])

        times, cause = demand.causes.get(index, (-1, ""))
        if times != self._times_changed[index]:
            cause = short_cause(self._cluster.nodes[index], demand.pod, admits=admits)
            demand.causes[index] = self._times_changed[index], cause
        return cause

    def _changed_since(self, seen: int) -> Ints | None:
        """Return the indices of nodes that changed since then.

        None: so many did that it is as well to look at all nodes.
        """
        if len(self._changes) - seen > len(self._cluster):
            return None

        changed = set(self._changes[seen:])
        return np.fromiter(changed, np.int64, len(changed))

    def _look_at(self, demand: Demand, nodes: Ints | None) -> None:
        """Look at some nodes again, None: at all of them."""
        where = slice(None) if nodes is None else nodes
        fits = self._totals.fits(demand.request, nodes)
        demand.fits[where] = fits

        if self._blind:
            scores = self._totals.score(demand.request, self._strategy, nodes)
        else:
            self._judge(demand, nodes)
            scores = demand.answer.score[where]

        demand.scores[where] = np.where(fits, scores, -np.inf)

    def _judge(self, demand: Demand, nodes: Ints | None) -> None:
        """Ask some nodes for their verdict, None: all of them."""
        count = len(self._cluster) if nodes is None else len(nodes)
        self._cluster.judge(demand.job, demand.pod, self._judging, demand.answer, 0, count, nodes)
        demand.judged = len(self._changes)


class Meter:
    """Measures what is used, over time, and what is stranded, at some moments.

    Time has to `advance` to each change before it is made. There are few resources, and many
    events: plain numbers are faster than arrays here.

    Args:
        totals: the sums of the nodes.
    """

    def __init__(self, totals: Totals) -> None:
        self._totals = totals
        self._amounts: list[int] = np.maximum(totals.allocatable.sum(axis=0), 1).tolist()
        self._time: float | None = None
        self._elapsed = 0.0
        self._weighted = [0.0] * len(self._amounts)
        self._most = totals.used_in_all.copy()
        self._strands = np.zeros(len(self._amounts))
        self._samples = 0

    def advance(self, time: float) -> None:
        """Let time pass, with everything as it is."""
        if self._time is not None and time > self._time:
            passed = time - self._time
            for number, used in enumerate(self._totals.used_in_all):
                self._weighted[number] += used * passed
            self._elapsed += passed

        if self._time is None or time > self._time:
            self._time = time

    def note(self) -> None:
        """Note what is used now, for the peak."""
        self._most = list(map(max, self._most, self._totals.used_in_all))

    def strand(self, fits: Truths, admitted: Truths) -> None:
        """Measure what is free on nodes that have room in total and would refuse."""
        free = self._totals.free
        self._strands += free[fits & ~admitted].sum(axis=0) / np.maximum(free.sum(axis=0), 1)
        self._samples += 1

    def _parts(self, used: Sequence[float]) -> npt.NDArray[np.float64]:
        return np.array([amount / total for amount, total in zip(used, self._amounts, strict=True)])

    @property
    def peak(self) -> npt.NDArray[np.float64]:
        """The largest part in use."""
        return self._parts(self._most)

    @property
    def mean(self) -> npt.NDArray[np.float64]:
        """The mean part in use; what it is now if no time passed."""
        if self._elapsed:
            return self._parts([weighted / self._elapsed for weighted in self._weighted])
        return self._parts(self._totals.used_in_all)

    @property
    def stranded(self) -> npt.NDArray[np.float64]:
        """The mean part of what was free that was stranded."""
        return self._strands / max(1, self._samples)
