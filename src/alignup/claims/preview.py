"""What the claims of a pod would come to on a node, before the pod is there.

Where its devices would not be near its CPUs and memory, changes are tried with which they would.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from msgspec.structs import replace as changed

from alignup.claims import objects
from alignup.claims.on_node import ClaimProvider, waiting_of
from alignup.claims.refusal_reasons import all_ways
from alignup.kubernetes.manifest import resized_pod
from alignup.records import Record, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from alignup.claims.extended_resources import Use
    from alignup.claims.on_node import ClaimedDevice
    from alignup.claims.read import Resources
    from alignup.kubernetes.pod import Pod
    from alignup.topology_manager.admission import Admission
    from alignup.topology_manager.provider import HintProvider

_CPU_DRIVER: Final = "dra.cpu"
_BILLION: Final = 10**9


class _Node(Protocol):
    """A node that knows claims: `alignup.node.Node`."""

    @property
    def claims(self) -> ClaimProvider | None: ...

    def copy(self, *, wrap: Callable[[HintProvider], HintProvider] | None = None) -> _Node: ...

    def admit(self, pod: Pod) -> Admission: ...

    def read(self, pod: Pod) -> Pod: ...


class ClaimsOutcome(Record):
    """What a pod's claims come to on a node.

    Attributes:
        meet: see `ClaimProvider.are_aligned`.
        helps: the changes with which devices, CPUs and memory would be aligned; each was tried.
        refusal: why the claims cannot be allocated.
        uses: which requests of the claim for extended resources stand for what; empty: the pod has
            no such claim.
    """

    devices: tuple[ClaimedDevice, ...] = ()
    meet: bool | None = None
    helps: tuple[str, ...] = ()
    refusal: str = ""
    uses: tuple[Use, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it in JSON's types."""
        fields: dict[str, Any] = {
            "devices": [device.to_dict() for device in self.devices],
            "meet": self.meet,
            "helps": list(self.helps),
        }
        if self.refusal:
            fields["refusal"] = self.refusal
        if self.uses:
            fields["extendedResources"] = [use.to_dict() for use in self.uses]

        return fields


def preview_claims(node: _Node, pod: Pod, *, suggest: bool = True) -> ClaimsOutcome | None:
    """Return the outcome of a pod's claims on a node.

    Args:
        node: the node, which stays as it is.
        pod: the pod, which is not there yet.
        suggest: look for changes with which they would be aligned.

    Returns:
        None: the pod has no claims, or the node has no claim provider.
    """
    if node.claims is None:
        return None

    pod = node.read(pod)
    if not pod.constraints.claims:
        return None

    provider = node.claims.copy()
    admitted, meet = _tried(node, pod, provider)
    uses = provider.extended.uses(pod)
    if not admitted:
        return ClaimsOutcome(refusal=node.claims.why_not(pod), uses=uses)

    helps: tuple[str, ...] = ()
    if suggest and meet is False:

        def meets(pod: Pod, provider: ClaimProvider) -> bool | None:
            return _tried(node, pod, provider)[1]

        helps = tuple(what_helps(node.claims, pod, meets))

    return ClaimsOutcome(provider.devices(pod.uid), meet, helps, uses=uses)


def _tried(node: _Node, pod: Pod, provider: ClaimProvider) -> tuple[bool, bool | None]:
    """Return whether a node would admit a pod, and whether the pod's claims would be aligned.

    Args:
        node: the node, which stays as it is.
        pod: the pod.
        provider: of the claims, in place of the node's.
    """

    def wrap(node_provider: HintProvider) -> HintProvider:
        return provider if isinstance(node_provider, ClaimProvider) else node_provider

    admission = node.copy(wrap=wrap).admit(pod)
    if not admission:
        return False, None

    return True, provider.are_aligned(pod, admission.containers)


def what_helps(
    provider: ClaimProvider, pod: Pod, meets: Callable[[Pod, ClaimProvider], bool | None]
) -> Iterator[str]:
    """Yield changes with which the pod's devices, CPUs and memory meet, each tried.

    Args:
        provider: without the pod.
        pod: the pod.
        meets: whether a pod meets its devices with claims as a provider has them.
    """
    yield from _changed_claims(provider, pod, meets)
    yield from _fewer_cpus(provider, pod, meets)
    yield from _from_cpu_driver(provider, pod, meets)
    with_hints = provider.copy()
    with_hints.gives_hints = True
    if not provider.gives_hints and meets(pod, with_hints):
        yield "let claims give hints (draHints), in placement without a kubelet"


def _changed_claims(
    provider: ClaimProvider, pod: Pod, meets: Callable[[Pod, ClaimProvider], bool | None]
) -> Iterator[str]:
    """Yield changes of the pod's claims; nobody can change one that the scheduler makes.

    A claim of the pod's own then takes its place.
    """
    before = ""
    fewer = "devices a request"
    if any(pod_claim.is_extended and not pod_claim.claim for pod_claim in pod.constraints.claims):
        resources = sorted({use.resource for use in provider.extended.uses(pod)})
        before = f"ask by a ResourceClaim in place of {' and '.join(resources)}, and "
        fewer = f"{' and '.join(resources)} a container"
        pod, own_claim = provider.extended.with_own_claim(pod)
        known = provider.resources
        provider = provider.copy(replace(known, claims=(*known.claims, own_claim)))

    claims = waiting_of(provider.claims(pod)).values()
    named = f"in {', '.join(map(str, claims))}"

    def tried(change: Callable[[objects.Claim], objects.Claim]) -> bool | None:
        return meets(pod, provider.copy(_changed(provider.resources, pod, change)))

    for attribute in sorted(provider.attributes):
        for change, description in _constraints(attribute, provider.machine.numa_node_ids):
            if tried(change):
                yield f"{before}{description} {named}"
                break

    counts = [
        request.exactly.device_count
        for claim in claims
        for request in claim.requests
        if request.exactly is not None
    ]
    for count in range(max(counts, default=1) - 1, 0, -1):
        if tried(partial(_at_most, count)):
            yield f"ask for at most {count} {fewer} {named}"
            break


def _fewer_cpus(
    provider: ClaimProvider, pod: Pod, meets: Callable[[Pod, ClaimProvider], bool | None]
) -> Iterator[str]:
    """Yield for each container the most CPUs, below its own, with which the pod would do."""
    for container in pod.all_containers:
        for cpus in range(container.exclusive_cpus - 1, 0, -1):
            amounts = {"requests": {"cpu": cpus}, "limits": {"cpu": cpus}}
            if meets(resized_pod(pod, {container.name: amounts}), provider.copy()):
                yield f"ask for {cpus} CPUs in container {container.name}"
                break


def _from_cpu_driver(
    provider: ClaimProvider, pod: Pod, meets: Callable[[Pod, ClaimProvider], bool | None]
) -> Iterator[str]:
    """Yield how the DRA driver for CPUs could give the pod's CPUs in place of the CPU manager.

    Nothing, where the driver is not there.
    """
    cpu_devices = [
        device for part in provider.slices if part.driver == _CPU_DRIVER for device in part.devices
    ]
    waiting = list(waiting_of(provider.claims(pod)).values())
    count = pod.exclusive_cpus
    if not cpu_devices or not count or len(waiting) != 1:
        return

    description, cpu_request = _request_for_cpus(cpu_devices[0], count)
    without_cpus = _without_cpus(pod)
    class_names = {device_class.name for device_class in provider.resources.classes}
    for name in sorted(class_names, key=lambda name: (name != _CPU_DRIVER, name)):
        request = objects.Request("cpus", changed(cpu_request, device_class_name=name))
        for attribute in sorted(provider.attributes):
            change = partial(_constrained, attribute, further=(request,))
            trial = provider.copy(_changed(provider.resources, pod, change))
            if meets(without_cpus, trial) is not False and trial.devices(pod.uid):
                added = (
                    f"add a request for {description} of class {name} and the constraint "
                    f"matchAttribute {attribute}"
                )
                place = f"take the CPUs from the driver {_CPU_DRIVER} in place of the CPU manager"
                yield f"{place}: {added} in {waiting[0]}"
                return


def _request_for_cpus(device: objects.Device, count: int) -> tuple[str, objects.Subrequest]:
    """Return a request for CPUs as devices such as this one, in words and as part of a claim."""
    selector = objects.Selector(objects.Cel(f'device.driver == "{_CPU_DRIVER}"'))
    if not device.allow_multiple_allocations or not device.capacity:
        return f"{count} devices", objects.Subrequest(count=count, selectors=(selector,))

    # each is many CPUs
    name = next(iter(device.capacity))
    capacity = objects.Capacities({name: objects.Amount(count * _BILLION)})
    request = objects.Subrequest(count=1, selectors=(selector,), capacity=capacity)
    return f"a device with capacity {name} of {count}", request


def _without_cpus(pod: Pod) -> Pod:
    """Return a pod that asks for no CPUs of its own."""
    init_containers = tuple(
        replace(container, exclusive_cpus=0) for container in pod.init_containers
    )
    containers = tuple(replace(container, exclusive_cpus=0) for container in pod.containers)
    return replace(
        pod,
        exclusive_cpus=0,
        containers=containers,
        init_containers=init_containers,
        all_containers=init_containers + containers,
    )


def _changed(
    resources: Resources, pod: Pod, change: Callable[[objects.Claim], objects.Claim]
) -> Resources:
    """Return the resources with the pod's claims changed."""

    def changed_claims(
        claims: tuple[objects.Claim, ...], names: set[str]
    ) -> tuple[objects.Claim, ...]:
        return tuple(
            change(claim) if claim.name in names and claim.allocated is None else claim
            for claim in claims
        )

    pod_claims = pod.constraints.claims
    claim_names = {pod_claim.claim for pod_claim in pod_claims}
    template_names = {pod_claim.template for pod_claim in pod_claims if not pod_claim.claim}
    return replace(
        resources,
        claims=changed_claims(resources.claims, claim_names),
        templates=changed_claims(resources.templates, template_names),
    )


def _constraints(
    attribute: str, nodes: Sequence[int]
) -> Iterator[tuple[Callable[[objects.Claim], objects.Claim], str]]:
    """Yield what can be added to a claim, and the words for it."""
    yield partial(_constrained, attribute), f"add the constraint matchAttribute {attribute}"
    domain, _, name = attribute.rpartition("/")
    for node in nodes:
        expression = f'device.attributes["{domain}"].{name} == {node}'
        yield (
            partial(_selecting, objects.Selector(objects.Cel(expression))),
            f"add the selector {expression}",
        )


def _constrained(
    attribute: str, claim: objects.Claim, further: tuple[objects.Request, ...] = ()
) -> objects.Claim:
    constraints = (*claim.constraints, objects.Constraint(match_attribute=attribute))
    return changed(claim, requests=claim.requests + further, constraints=constraints)


def _selecting(selector: objects.Selector, claim: objects.Claim) -> objects.Claim:
    return _each(claim, lambda way: changed(way, selectors=(*way.selectors, selector)))


def _at_most(count: int, claim: objects.Claim) -> objects.Claim:
    return _each(claim, lambda way: changed(way, count=min(way.device_count, count)))


def _each(
    claim: objects.Claim, change: Callable[[objects.Subrequest], objects.Subrequest]
) -> objects.Claim:
    """Return a claim with each way to serve each request changed."""
    requests = tuple(all_ways(request, change) for request in claim.requests)
    return changed(claim, requests=requests)
