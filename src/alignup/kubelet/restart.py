"""Foretells what a restart of the kubelet does to the pods of a node: which keep what they hold, and which are refused.

Whether it starts on its state files is what `check` beside this module finds; the rules of the admission that follows
are those of `alignup.node.restart`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from alignup.errors import ConfigError
from alignup.kubelet.check import check_node, finding
from alignup.kubelet.read import machine_of, make_node, read_records
from alignup.kubernetes.kubelet_config import config_from_document
from alignup.node.holdings import holdings_of
from alignup.node.restart import admit_again
from alignup.records import Record, json_fields

if TYPE_CHECKING:
    from alignup.kubelet.check import Finding
    from alignup.kubelet.layout import NodeFiles
    from alignup.kubelet.read import KubeletOptions
    from alignup.kubernetes.pod import Pod
    from alignup.node.holdings import ContainerHolding
    from alignup.node.node import Node
    from alignup.topology_manager.admission import Admission


class Outcome(Record):
    """What becomes of a pod that runs.

    Attributes:
        held: what its containers hold before the restart.
        holds: what they hold in the kubelet's books after it; empty: it is refused.
        refusal: None: it stays.
        again: of a refused pod: how it would be admitted if it came again, once all refused ones are gone.
    """

    pod: Pod
    held: tuple[ContainerHolding, ...]
    holds: tuple[ContainerHolding, ...]
    refusal: Admission | None = None
    again: Admission | None = None

    @property
    def keeps(self) -> bool:
        """Whether it stays with what it holds; the memory of init containers that have ended does not matter."""
        ended = {one.name for one in self.pod.init_containers if not one.is_sidecar}
        before, after = ([one for one in some if one.container not in ended] for some in (self.held, self.holds))
        return self.refusal is None and before == after

    def to_dict(self, numa_node_ids: tuple[int, ...]) -> dict[str, Any]:
        """Return the outcome in JSON's types."""
        again = self.again
        return {
            **json_fields(self.pod, "name", "namespace", "uid"),
            "keeps": self.keeps,
            "admitted": self.refusal is None,
            "reason": "" if self.refusal is None else self.refusal.reason,
            "message": "" if self.refusal is None else self.refusal.message,
            "held": [one.to_dict() for one in self.held],
            "holds": [one.to_dict() for one in self.holds],
            "again": None
            if again is None
            else {
                **json_fields(again, "admitted", "reason"),
                "containers": {name: got.to_dict(numa_node_ids) for name, got in again.containers.items()},
            },
        }


class Restart(Record):
    """What a restart of the kubelet does.

    Attributes:
        faults: why it does not start; empty: it does.
        outcomes: the pods, in the order in which they are admitted again.
        node: the node after it; None: it does not start.
    """

    faults: tuple[Finding, ...]
    outcomes: tuple[Outcome, ...] = ()
    node: Node | None = None

    @property
    def keeps_all(self) -> bool:
        """Whether the kubelet starts, and every pod keeps what it holds."""
        return not self.faults and all(one.keeps for one in self.outcomes)

    def to_dict(self) -> dict[str, Any]:
        """Return what it does in JSON's types."""
        ids = self.node.machine.numa_node_ids if self.node else ()
        return {
            "starts": not self.faults,
            "faults": [json_fields(one) for one in self.faults],
            "pods": [one.to_dict(ids) for one in self.outcomes],
        }


def foretell(files: NodeFiles, options: KubeletOptions) -> Restart:
    """Return what a restart of the kubelet does.

    Args:
        files: the node's files, as they are now.
        options: the configuration and the release that the kubelet starts with, and the machine as it is then.

    Raises:
        InputError: there is no file of a kubelet, or a file is damaged that the kubelet does not stop at.
        AllocationError: the device checkpoint names devices that are not known.
    """
    faults = tuple(one for one in check_node(files, options) if one.stops)
    if faults:
        return Restart(faults)
    records = read_records(files, options)
    source = records.configuration.source
    try:
        # gates count as the kubelet has them, unlike those of a kubelet that is known to run
        config_from_document(records.configuration.fields, source, version=records.version)
    except ConfigError as error:
        return Restart((finding("configuration", str(error), file=source),))
    node = make_node(records, options.get("machine") or machine_of(files)).node
    node.whole_verdict = True
    created = {one.pod.uid: one.created or one.started for one in records.pods or ()}
    pods = sorted(node.pods, key=lambda one: created.get(one.uid, ""))
    before = holdings_of(node)
    refused = admit_again(node, pods).refused
    after = holdings_of(node)

    def outcome(pod: Pod) -> Outcome:
        held, holds = (
            tuple(one for one in some.containers if one and one.pod_uid == pod.uid) for some in (before, after)
        )
        if pod.uid not in refused:
            return Outcome(pod, held, holds)
        return Outcome(pod, held, holds, node.admission(pod, refused[pod.uid]), node.try_admit(pod))

    return Restart((), tuple(map(outcome, pods)), node)
