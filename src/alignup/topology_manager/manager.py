"""The Topology Manager: admits a pod, or refuses it and releases all that it was given.

Puts scope, policy, providers and Store together and reports to an observer. The sentence about a
refusal is made in `alignup.topology_manager.refusal_message`.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, cast

from alignup.core.amounts.changes import ManagerLock, release_all
from alignup.core.shared_dict import SharedDict
from alignup.errors import PodExistsError, UnknownPodError, typed_text_of, warn
from alignup.kubernetes.manifest import read_pod
from alignup.topology_manager.admission import Admission, ContainerAllocation
from alignup.topology_manager.scope import Refusal, Scope, Store, make_scope

if TYPE_CHECKING:
    from alignup.core.amounts.placer import Placer, Share
    from alignup.kubernetes.pod import Pod
    from alignup.topology_manager.hints import TopologyHint
    from alignup.topology_manager.policy import Policy
    from alignup.topology_manager.provider import HintProvider

__all__ = ["Observer", "TopologyManager"]


class Observer(Protocol):
    """Is told about every admission, for example to count them (`alignup.node.admission_metrics`).

    An error that it raises is a warning (`AlignupWarning`): the pod's answer stays what it is.

    Examples:
        >>> class Seconds:
        ...     def __init__(self):
        ...         self.all = []
        ...
        ...     def admission(self, seconds, admitted):
        ...         self.all.append(seconds)
        >>> observer = Seconds()
        >>> node = Node(read_machine("xeon-2s"), observer=observer)
        >>> pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        >>> _ = node.admit(pod)
        >>> len(observer.all)
        1
    """

    def admission(self, seconds: float, admitted: bool) -> None:
        """Record one admission: its duration and its verdict."""


class TopologyManager:
    """Admits pods, one at a time; safe to call from several threads.

    Args:
        policy: from `make_policy`.
        scope: `container` or `pod`, or a scope object.
        providers: asked, and allocating, in this order.
        observer: told about every admission, if given.
        in_pod_order: release the containers of a pod in the pod's order, init containers first; by
            default in reverse, so that each provider retraces its states.
        placer: places pods under this policy and scope as these providers would, in one call; None:
            each is asked.

    Examples:
        >>> manager = TopologyManager(make_policy("restricted", numa_nodes=2))
        >>> pod = {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}
        >>> manager.admit(pod).admitted
        True
    """

    __slots__ = (
        "_in_pod_order",
        "_observer",
        "_pods",
        "_store",
        "lock",
        "placer",
        "policy",
        "providers",
        "scope",
    )

    def __init__(
        self,
        policy: Policy,
        scope: str | Scope = "container",
        providers: Iterable[HintProvider] = (),
        observer: Observer | None = None,
        *,
        in_pod_order: bool = False,
        placer: Placer | None = None,
    ) -> None:
        if not callable(getattr(policy, "merge", None)):
            raise TypeError(f"expected a policy as `make_policy` returns it, got {policy!r}")
        if not isinstance(scope, str) and not callable(getattr(scope, "admit", None)):
            raise TypeError(f"expected 'container', 'pod' or a scope, got {scope!r}")

        is_observer = not isinstance(observer, type) and callable(
            getattr(observer, "admission", None)
        )
        if observer is not None and not is_observer:
            raise TypeError(
                f"expected an observer with a method admission(seconds, admitted), got {observer!r}"
            )

        self.policy = policy
        self.scope = make_scope(scope, policy) if isinstance(scope, str) else scope
        self.placer = placer
        self.lock = ManagerLock()
        # The providers, in the order in which they are asked.
        self.providers: tuple[HintProvider, ...] = tuple(
            checked_provider(provider) for provider in providers
        )
        self._store = Store()
        self._pods: SharedDict[str, Pod] = SharedDict()
        self._observer = observer
        self._in_pod_order = in_pod_order

    @property
    def pods(self) -> tuple[Pod, ...]:
        """The pods that are admitted now, in the order of their admission."""
        return tuple(self._pods.values())

    @property
    def has_pods(self) -> bool:
        """True if any pod is admitted now."""
        return bool(self._pods)

    def has_pod(self, pod_uid: str) -> bool:
        """Return whether the pod of a uid is admitted now."""
        return pod_uid in self._pods

    def copy(
        self, providers: tuple[HintProvider, ...], placer: Placer | None = None
    ) -> TopologyManager:
        """Return an independent manager of the same pods, without an observer.

        Args:
            providers: copies of the providers.
            placer: places pods as these would, if given.
        """
        duplicate = TopologyManager.__new__(TopologyManager)
        duplicate.policy = self.policy
        duplicate.scope = self.scope
        duplicate.placer = placer
        duplicate.lock = ManagerLock()
        duplicate.providers = providers
        duplicate._store = self._store.copy()
        duplicate._pods = self._pods.copy()
        duplicate._observer = None
        duplicate._in_pod_order = self._in_pod_order
        return duplicate

    def add_provider(self, provider: HintProvider) -> None:
        """Ask one more provider from now on."""
        with self.lock.guard() as guard, guard.take():
            self.providers, self.placer = (*self.providers, checked_provider(provider)), None

    def admit(self, pod: Pod | Mapping[str, Any]) -> Admission:
        """Admit the pod, or refuse it and release all that it was given.

        A provider may keep something after it has released a container: like the kubelet's, the
        memory provider can leave a memory binding behind.

        Args:
            pod: a `Pod`, or a manifest.

        Returns:
            The verdict, with the affinity of each container. The providers know the resources of
            each container.

        Raises:
            InputError: the manifest is not one of a pod.
            PodExistsError: a pod of this uid is admitted already.
            RuntimeError: called by a provider during an admission or removal, or another thread
                used the manager when this process was forked.
        """
        if isinstance(pod, Mapping):
            pod = read_pod(pod)

        with self.lock.guard() as guard, guard.take():
            if (refusal := self.decide(pod, self.policy, self.scope)) is not None:
                return Admission(False, refusal.reason, refusal=refusal)

            affinities = self.affinities(pod.uid)
            return Admission(
                True,
                containers={name: ContainerAllocation(hint) for name, hint in affinities.items()},
            )

    def decide(
        self, pod: Pod, policy: Policy, scope: Scope, *, observed: bool = True
    ) -> Refusal | None:
        """Admit or refuse under a given policy and scope; None means admitted.

        Args:
            pod: the pod.
            policy: merges the hints.
            scope: decides for each container, or for the pod as a whole.
            observed: tell the observer.

        Raises:
            PodExistsError: a pod of this uid is admitted already.
        """
        if pod.uid in self._pods:
            self.check_new(pod)

        if self._observer is None or not observed:
            return self.lock.change(self._place, self._forget, pod, policy, scope)

        start = time.perf_counter()
        refusal = self.lock.change(self._place, self._forget, pod, policy, scope)
        self._tell(time.perf_counter() - start, refusal is None)
        return refusal

    def preview(self, pod: Pod) -> tuple[Share, ...] | None:
        """Return what the containers of a new pod would get.

        None where that is not known before they are given it.
        """
        if self.placer is None or pod.uid in self._pods:
            return None
        if pod.made_of is not None and pod.constraints.claimed_devices:
            return None  # devices of a claim stand for some that the placer would give
        return self.lock.change(self.placer.preview, None, pod)

    def shares(self, pod: Pod) -> tuple[Share, ...] | None:
        """Return what the containers of a pod have; None where the providers have to be asked."""
        if self.placer is None:
            return None
        return self.placer.held(pod, self._store.affinities)

    def refuse(self, refusal: Refusal) -> Refusal:
        """Tell the observer about a pod that is refused before any provider is asked.

        Returns:
            The refusal.
        """
        self._tell(0.0, False)
        return refusal

    def _tell(self, seconds: float, admitted: bool) -> None:
        try:
            if self._observer is not None:
                self._observer.admission(seconds, admitted)
        except Exception as error:  # noqa: BLE001  # anything that a user's observer raises
            warn(f"the observer {self._observer!r} failed: {typed_text_of(error)}")

    def check_new(self, pod: Pod) -> None:
        """Refuse a pod that is there.

        Raises:
            PodExistsError: a pod of this uid is admitted already.
        """
        if pod.uid in self._pods:
            raise PodExistsError(f"a pod of uid {pod.uid!r} is admitted already")

    def _place(self, pod: Pod, policy: Policy, scope: Scope) -> Refusal | None:
        placer = None
        # devices of a claim stand for some that the placer would give; what most pods are made of
        # is not kept
        is_plain = pod.made_of is None or not pod.constraints.claimed_devices
        if is_plain and policy is self.policy and scope is self.scope:
            placer = self.placer

        refusal = None
        if placer is None or not placer.place(pod, self._store.affinities):
            refusal = scope.admit(pod, policy, self.providers, self._store)

        if refusal is None:
            self._pods[pod.uid] = pod
        elif (error := self._release(pod)) is not None:
            raise error
        return refusal

    def _forget(self, pod: Pod, *_: object) -> BaseException | None:
        """Release all that a pod was given, and count it as admitted no more.

        Returns:
            A provider's error.
        """
        self._pods.pop(pod.uid)
        return self._release(pod)

    def _release(self, pod: Pod) -> BaseException | None:
        """Release all that a pod was given, and forget its affinities.

        Of each container the providers are called in reverse. If a provider fails, the others are
        still called; the first error is returned.
        """
        containers = pod.all_containers[:: 1 if self._in_pod_order else -1]
        if self.placer is not None and self.placer.take_back(pod, containers):
            self._store.forget_pod(pod.uid)
            return None

        return release_all(containers, self.providers[::-1], pod.uid, self._store.forget_pod)

    def pod(self, pod_uid: str) -> Pod:
        """Return the admitted pod of a uid.

        Raises:
            UnknownPodError: no such pod is admitted.
        """
        pod = self._pods.get(pod_uid)
        if pod is None:
            raise UnknownPodError(f"no pod of uid {pod_uid!r} is admitted")
        return pod

    def remove(self, pod_uid: str) -> Pod:
        """Release everything that a pod holds, and return the pod.

        Raises:
            UnknownPodError: no such pod is admitted.
            RuntimeError: called by a provider during an admission or removal.
        """
        return self.lock.finish(self.pod, self._forget, pod_uid)

    def allocate_again(self, pod: Pod, providers: Sequence[HintProvider]) -> Refusal | None:
        """Ask providers for hints for an admitted pod that has other requests now, and to allocate.

        As in the kubelet, nothing that they gave is released after a refusal. The lock must be
        held.

        Raises:
            RuntimeError: called by a provider during an admission or removal.
        """
        return self.lock.change(self.scope.admit, None, pod, self.policy, providers, self._store)

    def update_requests(self, pod: Pod) -> None:
        """Replace the recorded requests of an admitted pod; its allocations stay as they are."""
        with self.lock.guard() as guard, guard.take():
            self.pod(pod.uid)
            self._pods[pod.uid] = pod

    def set_affinities(self, pod_uid: str, affinities: Mapping[str, TopologyHint]) -> None:
        """Replace the affinities of a pod, by container name."""
        with self.lock.guard() as guard, guard.take():
            self._store.set_pod(pod_uid, affinities)

    def restore(self, pods: Iterable[Pod]) -> None:
        """Count pods as admitted that a kubelet admitted earlier.

        What they hold is restored by the providers.

        Raises:
            PodExistsError: a pod of one of the uids is admitted already; nothing changed.
        """
        restored = {pod.uid: pod for pod in pods}
        with self.lock.guard() as guard, guard.take():
            twice = next((uid for uid in restored if uid in self._pods), None)
            if twice is not None:
                raise PodExistsError(f"a pod of uid {twice!r} is admitted already")

            self._pods.update(restored)

    def affinity(self, pod_uid: str, container_name: str) -> TopologyHint:
        """Return the affinity of a container; no mask and not preferred if none was decided."""
        return self._store.affinity(pod_uid, container_name)

    def affinities(self, pod_uid: str) -> Mapping[str, TopologyHint]:
        """Return the affinities of a pod by container name; empty if nothing was decided."""
        return self._store.pod_affinities(pod_uid)

    def add_container(self, pod: Pod, container_name: str, container_id: str) -> None:
        """Associate a container runtime's id with a container of the pod."""
        with self.lock.guard() as guard, guard.take():
            self._store.add_container(pod.uid, container_name, container_id)

    def remove_container(self, container_id: str) -> None:
        """Forget a container id, and the affinity with the last id of that container.

        Unknown ids are ignored.
        """
        with self.lock.guard() as guard, guard.take():
            self._store.remove_container(container_id)


def checked_provider(provider: object) -> HintProvider:
    """Return the provider after checking that it has all methods of a `HintProvider`.

    Raises:
        TypeError: a method is missing.
    """
    methods = ("topology_hints", "pod_topology_hints", "allocate", "release")
    if missing := ", ".join(name for name in methods if getattr(provider, name, None) is None):
        raise TypeError(f"expected a hint provider, got {provider!r} without {missing}")
    return cast("HintProvider", provider)
