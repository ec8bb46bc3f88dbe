"""The claim that kube-scheduler makes for extended resources which a DeviceClass serves (KEP-5004).

A container asks for `example.com/gpu: 2` as it would ask a device plugin. On a node where no plugin
offers such devices, the scheduler asks for devices of the class that serves this name, in a claim
of its own for all such resources of the pod. The kubelet then leaves them to the claim.

Source: `dynamicresources/extendeddynamicresources.go` of kube-scheduler 1.35 to 1.38.0-beta.0, and
`dynamicresources.go` of 1.34, which makes a request for each init container, knows no implicit
names, and leaves to a plugin what it offers none of.
"""

from __future__ import annotations

import re
from operator import itemgetter
from typing import TYPE_CHECKING, Final, NamedTuple

from alignup.claims.objects import Claim, Request, Subrequest
from alignup.kubernetes.pod import EXTENDED_CLAIM, PodClaim, without_extended_claim
from alignup.records import Record, field, replace

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from alignup.claims.objects import DeviceClass
    from alignup.claims.scheduler_gates import Gates
    from alignup.kubernetes.pod import Container, Pod

# Before the name of a class, it makes a resource that this class serves, whatever else it serves.
IMPLICIT: Final = "deviceclass.resource.kubernetes.io/"
_REQUEST_NAME: Final = re.compile(r"container-\d+-request-\d+")


class Use(NamedTuple):
    """That a container uses a request of the claim for one of its resources."""

    container: str
    resource: str
    request: str

    def to_dict(self) -> dict[str, str]:
        """Return it as the status of the pod has it (`requestMappings`)."""
        return {
            "containerName": self.container,
            "resourceName": self.resource,
            "requestName": self.request,
        }


class ExtendedResources(Record):
    """Which extended resources of a cluster are served by classes of devices.

    Attributes:
        classes: by resource, the name of the class that counts.
        is_first: as kube-scheduler 1.34 knows them.
    """

    classes: Mapping[str, str] = field(default_factory=dict)
    is_first: bool = False

    @classmethod
    def of(cls, classes: Sequence[DeviceClass], gates: Gates) -> ExtendedResources:
        """Return those that some classes serve.

        Of several classes that serve the same, it is the youngest; of those, the first by name.
        """
        if not gates.extended_resources:
            return cls()

        served: dict[str, str] = {}
        if not gates.is_before_35:
            names = (device_class.name for device_class in classes)
            served = {f"{IMPLICIT}{name}": name for name in names}

        last_first = sorted(classes, key=lambda device_class: device_class.name, reverse=True)
        for device_class in sorted(last_first, key=lambda device_class: device_class.created):
            if device_class.extended_resource_name:
                served[device_class.extended_resource_name] = device_class.name

        return cls(
            {name: class_name for name, class_name in served.items() if _is_extended(name)},
            gates.is_before_35,
        )

    def are_asked_by(self, pod: Pod) -> bool:
        """Return whether a pod asks for one."""
        return bool(self.classes) and any(
            count and resource in self.classes
            for container in pod.all_containers
            for resource, count in container.devices
        )

    def on_node(
        self, pod: Pod, offered: Callable[[str], int | None], claims: Sequence[Claim] = ()
    ) -> Pod:
        """Return a pod with the claim for those of its resources that no plugin of a node offers.

        A pod that needs none stays as it is.

        Args:
            pod: as it is, or with such a claim for another node.
            offered: how many devices of a resource the plugins of the node offer; None: the node
                does not know the resource.
            claims: those that are there: one that the pod's status names is kept.
        """
        if not self.are_asked_by(pod) or _has_claim(pod, claims):
            return pod

        pod = without_extended_claim(pod)
        resources = sorted(
            resource
            for resource in self.left_to_claims(offered)
            if any(container.requests.get(resource) for container in pod.all_containers)
        )
        if not resources and not self._is_made_in_vain(pod):
            return pod

        uses = [use for resource in resources for use in _requests_and_uses(self, pod, resource)[1]]
        users = sorted({use.container for use in uses})
        pod_claim = PodClaim(
            EXTENDED_CLAIM,
            containers=tuple(users),
            requests=tuple((use.container, use.request) for use in uses),
        )
        constraints = replace(
            pod.constraints,
            claims=(*pod.constraints.claims, pod_claim),
            claimed_devices=frozenset((use.container, use.resource) for use in uses),
        )
        return replace(pod, constraints=constraints)

    def _is_made_in_vain(self, pod: Pod) -> bool:
        """Return whether the scheduler makes a claim although plugins offer all that is asked for.

        It goes on to its allocator where the pod has claims of its own.
        """
        return bool(pod.constraints.claims) and not self.is_first

    @staticmethod
    def problem(pod: Pod) -> str:
        """Return why the scheduler cannot bind a pod for its claim without requests; empty: it can.

        Source: `patchPodExtendedResourceClaimStatus`.

        Args:
            pod: from `on_node`.
        """
        for pod_claim in pod.constraints.claims:
            if pod_claim.is_extended and not (pod_claim.claim or pod_claim.requests):
                return (
                    f"nil or empty request mappings, no update of pod {pod.namespaced_name} "
                    "ExtendedResourceClaimStatus: kube-scheduler does not bind a pod that has "
                    "claims to a node whose device plugins offer its extended resources where a "
                    "DeviceClass serves these, too"
                )

        return ""

    def _is_left_to_claims(self, offered: int | None) -> bool:
        if self.is_first:
            return offered is None

        return not offered

    def left_to_claims(self, offered: Callable[[str], int | None]) -> frozenset[str]:
        """Return the resources that no plugin of a node offers; see `on_node`."""
        return frozenset(
            resource for resource in self.classes if self._is_left_to_claims(offered(resource))
        )

    def claim(self, pod: Pod) -> Claim:
        """Return the claim that is made for a pod on a node.

        Args:
            pod: from `on_node`.
        """
        requests = [
            request
            for resource in _resources_of(pod)
            for request in _requests_and_uses(self, pod, resource)[0]
        ]
        return Claim(
            f"{pod.name}-extended-resources",
            pod.namespace,
            tuple(sorted(requests, key=lambda request: request.name)),
        )

    def with_own_claim(self, pod: Pod) -> tuple[Pod, Claim]:
        """Return a pod that asks by a claim of its own for what is made for it, and this claim.

        Args:
            pod: from `on_node`.
        """
        claim = self.claim(pod)
        claimed = pod.constraints.claimed_devices
        pod_claims = tuple(
            replace(pod_claim, name="devices", claim=claim.name)
            if pod_claim.is_extended
            else pod_claim
            for pod_claim in pod.constraints.claims
        )
        constraints = replace(pod.constraints, claims=pod_claims, claimed_devices=frozenset())
        init_containers, containers = (
            tuple(_without_resources(container, claimed) for container in of_kind)
            for of_kind in (pod.init_containers, pod.containers)
        )
        changed_pod = replace(
            pod,
            constraints=constraints,
            init_containers=init_containers,
            containers=containers,
            all_containers=init_containers + containers,
        )
        return changed_pod, claim

    def uses(self, pod: Pod) -> tuple[Use, ...]:
        """Return which containers of a pod use which requests of its claim.

        Args:
            pod: from `on_node`.
        """
        return tuple(
            use
            for resource in _resources_of(pod)
            if resource in self.classes  # the pod may be older than the class
            for use in _requests_and_uses(self, pod, resource)[1]
        )

    def request(self, place: int, container: Container, resource: str, count: int) -> Request:
        """Return the request for a resource of the container at a place among all."""
        index = sorted(container.requests).index(resource)
        return Request(
            f"container-{place}-request-{index}",
            exactly=Subrequest(self.classes[resource], count=count),
        )


def with_resources(text: str, uses: Sequence[Use]) -> str:
    """Return a text in which requests of the claim are called by resource and container."""
    resources: dict[str, str] = {}
    users: dict[str, list[str]] = {}
    for use in uses:
        resources[use.request] = use.resource
        users.setdefault(use.request, []).append(use.container)

    def name_of(match: re.Match[str]) -> str:
        request = match[0]
        if request not in users:
            return request

        plural = "s" if len(users[request]) > 1 else ""
        return f"{resources[request]} of container{plural} {' and '.join(users[request])}"

    return _REQUEST_NAME.sub(name_of, text)


def _is_extended(resource: str) -> bool:
    """Return whether the scheduler takes a resource for one that a class may serve.

    Source: `IsDRAExtendedResourceName`.
    """
    if resource.startswith(IMPLICIT):
        return True

    is_native = "/" not in resource or "kubernetes.io/" in resource
    return not (is_native or resource.startswith("requests."))


def _resources_of(pod: Pod) -> list[str]:
    """Return the extended resources for which a claim of a pod stands."""
    return sorted({resource for _, resource in pod.constraints.claimed_devices})


def _has_claim(pod: Pod, claims: Sequence[Claim]) -> bool:
    """Return whether the claim that was made for a pod is among some."""
    name = next((claim.claim for claim in pod.constraints.claims if claim.is_extended), "")
    return bool(name) and any(is_named(claim, name, pod) for claim in claims)


def is_named(claim: Claim, name: str, pod: Pod) -> bool:
    """Return whether a claim has a name, and is in the namespace of a pod."""
    return claim.name == name and (claim.namespace or "default") == pod.namespace


def _requests_and_uses(
    served: ExtendedResources, pod: Pod, resource: str
) -> tuple[list[Request], list[Use]]:
    """Return the requests for one resource of a pod, and which containers use them.

    Containers that run for good have a request each. Init containers that end use those of the
    containers after them; for what is still lacking they share one request.
    """
    lasting: dict[int, Request] = {}
    ending: list[tuple[int, Container, int]] = []
    uses: list[Use] = []
    for place, container in enumerate(pod.all_containers):
        count = container.requests.get(resource, 0)
        if count and container.ends and not served.is_first:
            ending.append((place, container, count))
        elif count:
            lasting[place] = request = served.request(place, container, resource, count)
            uses.append(Use(container.name, resource, request.name))

    lacking: list[tuple[int, Container, int]] = []
    for place, container, asked_count in ending:
        count = asked_count
        for later_place, request in lasting.items():
            if later_place > place and count > 0 and request.exactly is not None:
                uses.append(Use(container.name, resource, request.name))
                count -= request.exactly.count

        if count > 0:
            lacking.append((place, container, count))

    requests = list(lasting.values())
    if lacking:
        place, container, most = max(lacking, key=itemgetter(2))
        shared_request = served.request(place, container, resource, most)
        requests.append(shared_request)
        uses += [Use(container.name, resource, shared_request.name) for _, container, _ in lacking]

    return requests, uses


def _without_resources(container: Container, claimed: Collection[tuple[str, str]]) -> Container:
    """Return a container that does not ask for the resources for which a claim stands."""

    def is_left(resource: str) -> bool:
        return (container.name, resource) not in claimed

    return replace(
        container,
        requests={name: count for name, count in container.requests.items() if is_left(name)},
        limits={name: count for name, count in container.limits.items() if is_left(name)},
        devices=tuple(pair for pair in container.devices if is_left(pair[0])),
    )
