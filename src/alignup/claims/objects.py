"""The objects of `resource.k8s.io` as far as they decide which devices a claim gets.

Quantities are in billionths. Names of fields are the API's in lower case with underscores.
`alignup.claims.read` makes these records of documents.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import msgspec

from alignup.kubernetes.quantity import parse_quantity

# The allocation mode that takes every matching device.
ALL: Final = "All"
# The attribute of a device that names its NUMA node, or a list that begins with it (KEP-6072).
STANDARD_NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
_ONE: Final = 10**9


class Amount(int):
    """A quantity in billionths of its unit; capacities may be larger than 64 bits.

    Attributes:
        text: as it is written, which selectors may ask for.
    """

    text: str = ""

    @classmethod
    def parse(cls, value: object) -> Amount:
        """Return the amount that a document has.

        Raises:
            InputError: it is no quantity.
        """
        amount = cls(parse_quantity(value, most=10**40))
        amount.text = str(value)
        return amount


class Wire(msgspec.Struct, frozen=True, rename="camel", omit_defaults=True, gc=False):
    """A part of an object as documents have it."""


class Requirement(Wire, frozen=True):
    """One condition on a node's label, or on its name."""

    key: str
    operator: str
    values: tuple[str, ...] = ()


class Term(Wire, frozen=True):
    """Conditions that hold together."""

    match_expressions: tuple[Requirement, ...] = ()
    match_fields: tuple[Requirement, ...] = ()


class NodeSelector(Wire, frozen=True):
    """Which nodes reach a device: those of any term."""

    node_selector_terms: tuple[Term, ...] = ()


_KINDS: Final = ("int", "bool", "string", "version")


class AttributeValue(Wire, frozen=True):
    """The value of an attribute: one of these is set."""

    ints: tuple[int, ...] | None = None
    bools: tuple[bool, ...] | None = None
    strings: tuple[str, ...] | None = None
    versions: tuple[str, ...] | None = None
    scalar_int: int | None = msgspec.field(default=None, name="int")
    scalar_bool: bool | None = msgspec.field(default=None, name="bool")
    scalar_string: str | None = msgspec.field(default=None, name="string")
    scalar_version: str | None = msgspec.field(default=None, name="version")

    @property
    def is_list(self) -> bool:
        """Whether it is one of the list forms."""
        return not (
            self.ints is None
            and self.bools is None
            and self.strings is None
            and self.versions is None
        )

    @property
    def kind(self) -> str:
        """`int`, `bool`, `string`, `version`, or empty for a type that is not known."""
        return self._found()[0]

    @property
    def values(self) -> tuple[Any, ...]:
        """The values; one where it is no list."""
        return self._found()[1]

    def _found(self) -> tuple[str, tuple[Any, ...]]:
        for kind, value in zip(_KINDS * 2, msgspec.structs.astuple(self), strict=True):
            if value is not None:
                return kind, value if isinstance(value, tuple) else (value,)
        return "", ()


class Range(Wire, frozen=True):
    """What a request of a capacity may be: a minimum, and steps above it."""

    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


class RequestPolicy(Wire, frozen=True):
    """How a request of a capacity is rounded, and what it may be."""

    default: Amount | None = None
    valid_values: tuple[Amount, ...] | None = None
    valid_range: Range | None = None


class Capacity(Wire, frozen=True):
    """An amount of something that a device has."""

    value: Amount
    request_policy: RequestPolicy | None = None


class Counter(Wire, frozen=True):
    """An amount of a counter."""

    value: Amount


class CounterSet(Wire, frozen=True):
    """What the devices of a pool share."""

    name: str
    counters: dict[str, Counter] = {}


class CounterUse(Wire, frozen=True):
    """What a device takes from a set of counters."""

    counter_set: str
    counters: dict[str, Counter] = {}
    compatibility_groups: tuple[str, ...] | None = None


class Taint(Wire, frozen=True):
    """Keeps requests away that do not tolerate it."""

    key: str = ""
    value: str = ""
    effect: str = ""


class Mapping(Wire, frozen=True):
    """How much of a resource of the node a device is.

    It goes by what is taken of a capacity, or by the device.
    """

    capacity_key: str = ""
    capacity_multiplier: Amount = Amount(_ONE)
    device_multiplier: Amount = Amount(0)


class Overhead(Wire, frozen=True):
    """What of a resource of the node goes with a device.

    It goes with each pod and each container that uses the device's claim.
    """

    per_pod: Amount = Amount(0)
    per_container: Amount = Amount(0)


class NodeResource(Wire, frozen=True):
    """How a device counts as a resource of the node (KEP-5517)."""

    mapping: Mapping | None = None
    overhead: Overhead = Overhead()


class Device(Wire, frozen=True):
    """A device of a slice."""

    name: str
    attributes: dict[str, AttributeValue] = {}
    capacity: dict[str, Capacity] = {}
    taints: tuple[Taint, ...] = ()
    consumes_counters: tuple[CounterUse, ...] = ()
    allow_multiple_allocations: bool = False
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] | None = None
    node_allocatable_resources: dict[str, NodeResource] = {}


class Pool(Wire, frozen=True):
    """Which pool a slice is a part of."""

    name: str
    generation: int = 0
    resource_slice_count: int = 0


class Slice(Wire, frozen=True):
    """A ResourceSlice; `name` is that of its metadata."""

    name: str
    driver: str
    pool: Pool
    node_name: str = ""
    node_selector: NodeSelector | None = None
    all_nodes: bool = False
    per_device_node_selection: bool | None = None
    devices: tuple[Device, ...] = ()
    shared_counters: tuple[CounterSet, ...] = ()

    @property
    def uses_compatibility_groups(self) -> bool:
        """Whether a device of it declares some."""
        return any(
            use.compatibility_groups for device in self.devices for use in device.consumes_counters
        )


class Cel(Wire, frozen=True):
    """An expression."""

    expression: str


class Selector(Wire, frozen=True):
    """A condition on devices."""

    cel: Cel | None = None


class DeviceClass(Wire, frozen=True):
    """A DeviceClass; `name` is that of its metadata.

    Attributes:
        extended_resource_name: the resource that it serves as a device plugin would (KEP-5004);
            empty: none but the one of its own name.
        created: when it was, as its metadata have it.
    """

    name: str
    selectors: tuple[Selector, ...] = ()
    extended_resource_name: str = ""
    created: str = ""


class Toleration(Wire, frozen=True):
    """Lets a request have tainted devices."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: str = ""

    def tolerates(self, taint: Taint) -> bool:
        """Return whether it tolerates a taint; source: `resourceclaim/devicetoleration.go`."""
        if (self.effect and self.effect != taint.effect) or (self.key and self.key != taint.key):
            return False
        if self.operator == "Exists":
            return True

        return self.operator in ("", "Equal") and self.value == taint.value


class Capacities(Wire, frozen=True):
    """How much of each capacity is asked for."""

    requests: dict[str, Amount] = {}


class Subrequest(Wire, frozen=True):
    """What is asked for: the only way, or one of several that a request is content with."""

    device_class_name: str = ""
    name: str = ""
    selectors: tuple[Selector, ...] = ()
    allocation_mode: str = "ExactCount"
    count: int = 0
    admin_access: bool | None = None
    tolerations: tuple[Toleration, ...] = ()
    capacity: Capacities | None = None
    derived_attributes: tuple[Any, ...] = ()

    @property
    def device_count(self) -> int:
        """How many devices; the API server's default is 1."""
        return self.count or 1


class Request(Wire, frozen=True):
    """A request of a claim."""

    name: str
    exactly: Subrequest | None = None
    first_available: tuple[Subrequest, ...] = ()


class Constraint(Wire, frozen=True):
    """What the devices of some requests, or of all, must have in common, or must not."""

    match_attribute: str | None = None
    distinct_attribute: str | None = None
    requests: tuple[str, ...] = ()


class DeviceId(NamedTuple):
    """The name of a device in a cluster."""

    driver: str
    pool: str
    device: str

    def __str__(self) -> str:
        return f"{self.driver}/{self.pool}/{self.device}"


class Allocated(Wire, frozen=True):
    """A device that a claim has."""

    driver: str
    pool: str
    device: str
    request: str = ""
    admin_access: bool = False
    share_id: str | None = msgspec.field(default=None, name="shareID")
    consumed_capacity: dict[str, Amount] | None = None
    binding_conditions: tuple[str, ...] = ()

    @property
    def id(self) -> DeviceId:
        """Of the device."""
        return DeviceId(self.driver, self.pool, self.device)


class Claim(Wire, frozen=True):
    """A ResourceClaim.

    Attributes:
        allocated: None: it has no allocation yet.
        allocated_nodes: the nodes on which its allocation can be used; None: all.
    """

    name: str
    namespace: str = ""
    requests: tuple[Request, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    allocated: tuple[Allocated, ...] | None = None
    allocated_nodes: NodeSelector | None = None

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def attribute_of(device: Device, driver: str, name: str) -> AttributeValue | None:
    """Return the value of an attribute by its full name.

    One of the driver's domain may be without it.
    """
    value = device.attributes.get(name)
    domain, slash, identifier = name.partition("/")
    if value is None and slash and domain == driver:
        return device.attributes.get(identifier)

    return value
