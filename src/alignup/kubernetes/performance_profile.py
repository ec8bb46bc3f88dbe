"""Turns a PerformanceProfile of OpenShift into the KubeletConfiguration of its operator.

The rules are those of `New` in cluster-node-tuning-operator
(`pkg/performanceprofile/controller/performanceprofile/components/kubeletconfig/kubeletconfig.go`,
as of 2026):

- the annotation `kubeletconfig.experimental` is the KubeletConfiguration that all else is laid
  over;
- `cpuManagerPolicy` is static, and `reservedSystemCPUs` are `spec.cpu.reserved`, with
  `spec.cpu.shared` where `spec.workloadHints.mixedCpus` is set;
- `topologyManagerPolicy` is `spec.numa.topologyPolicy`, by default best-effort;
- under restricted and single-numa-node `memoryManagerPolicy` is Static, and unless the annotation
  has `reservedMemory`, NUMA node 0 reserves the sum of `kubeReserved`, `systemReserved` and
  `evictionHard`;
- under single-numa-node the option full-pcpus-only is set, unless the annotation sets it;
- memory that the annotation does not reserve is 500Mi each for `kubeReserved` and `systemReserved`,
  and `evictionHard` keeps 100Mi.

Hugepages, isolated and offlined CPUs, the kernel and the network are not the kubelet's: they change
the machine. The annotation `kubeletconfig.prefer-align-cpus-by-uncorecache`, of newer operators, is
not followed.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from alignup.errors import InputError, errors_in
from alignup.kubernetes.quantity import parse_quantity, whole_units
from alignup.machine.cpuset import CPUSet
from alignup.text.json_text import decode_json
from alignup.text.typed import decode

_SNIPPET: Final = "kubeletconfig.experimental"
_NOT_FOLLOWED: Final = "kubeletconfig.prefer-align-cpus-by-uncorecache"
# By field and name what is kept of memory, unless the annotation says it.
_KEPT: Final = (
    ("evictionHard", "memory.available", "100Mi"),
    ("kubeReserved", "memory", "500Mi"),
    ("systemReserved", "memory", "500Mi"),
)
_STATIC_MEMORY: Final = ("restricted", "single-numa-node")
# The parts of the spec, and their fields, that say something of the kubelet.
_FOLLOWED: Final = {
    "cpu": ("reserved", "shared"),
    "numa": ("topologyPolicy",),
    "workloadHints": ("mixedCpus",),
}


class _Cpu(msgspec.Struct):
    reserved: str = ""
    shared: str = ""


class _Numa(msgspec.Struct, rename="camel"):
    topology_policy: str | None = None


class _Hints(msgspec.Struct, rename="camel"):
    mixed_cpus: bool | None = None


class _Spec(msgspec.Struct, rename="camel"):
    cpu: _Cpu | None = None
    numa: _Numa | None = None
    workload_hints: _Hints | None = None


class _Metadata(msgspec.Struct):
    annotations: dict[str, str] | None = None


class _Profile(msgspec.Struct):
    spec: _Spec
    metadata: _Metadata | None = None


def kubelet_of_profile(profile: object, where: str) -> tuple[dict[str, Any], list[str]]:
    """Return what a PerformanceProfile says of the kubelet.

    That is fields of its KubeletConfiguration, and the names of what is left out: the parts of the
    profile that do not matter to the kubelet, or that are not followed.

    Args:
        profile: the decoded object.
        where: its name in errors.

    Raises:
        InputError: a field is of the wrong type, or the annotation is no KubeletConfiguration.
    """
    wire = decode(profile, _Profile, where)
    annotations = (wire.metadata and wire.metadata.annotations) or {}
    annotation = f"the annotation {_SNIPPET} of {where}"
    fields = _snippet(annotations.get(_SNIPPET), annotation)

    policy = (wire.spec.numa and wire.spec.numa.topology_policy) or "best-effort"
    fields |= {"cpuManagerPolicy": "static", "topologyManagerPolicy": policy}
    for part, name, default in _KEPT:
        fields.setdefault(part, {}).setdefault(name, default)

    cpu = wire.spec.cpu or _Cpu()
    hints = wire.spec.workload_hints or _Hints()
    if cpu.reserved:
        shared = CPUSet.parse(cpu.shared if hints.mixed_cpus else "", f"spec.cpu.shared of {where}")
        reserved = CPUSet.parse(cpu.reserved, f"spec.cpu.reserved of {where}")
        fields["reservedSystemCPUs"] = str(reserved | shared)

    if policy in _STATIC_MEMORY:
        fields["memoryManagerPolicy"] = "Static"
        total = 0
        with errors_in(annotation):
            for part, name, _ in _KEPT:
                total += whole_units(parse_quantity(fields[part][name], part, name))

        fields.setdefault("reservedMemory", [{"numaNode": 0, "limits": {"memory": str(total)}}])

    if policy == "single-numa-node":
        fields.setdefault("cpuManagerPolicyOptions", {}).setdefault("full-pcpus-only", "true")

    return fields, _left_out(profile, annotations)


def _snippet(text: str | None, where: str) -> dict[str, Any]:
    """Return the fields that an annotation sets, its maps as they may be changed."""
    if text is None:
        return {}
    fields: object = decode_json(text, "the JSON of a KubeletConfiguration", where)
    if not isinstance(fields, dict):
        raise InputError.at(where, "a KubeletConfiguration", fields)

    for name in ("evictionHard", "kubeReserved", "systemReserved", "cpuManagerPolicyOptions"):
        if not isinstance(fields.get(name), dict | None):
            raise InputError.at(f"{name} in {where}", "a mapping", fields[name])

    return {name: value for name, value in fields.items() if value is not None}


def _left_out(profile: Any, annotations: dict[str, str]) -> list[str]:
    """Return the names of what is not followed."""
    names = [f"annotation {name}" for name in annotations if name == _NOT_FOLLOWED]
    for name, value in profile["spec"].items():
        if name not in _FOLLOWED:
            names.append(f"spec.{name}")
        elif isinstance(value, dict):
            names += [f"spec.{name}.{inner}" for inner in value if inner not in _FOLLOWED[name]]

    return names
