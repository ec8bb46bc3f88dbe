"""Which GPUs leases have under which names."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from alignup.host.leases.gpu_shares import GpuShares
from alignup.machine.device_inventory import Device
from inputs.strategies import examples

IDS = ("GPU-a", "GPU-b", "GPU-a::0", "GPU-a::1", "GPU-b::0", "MIG-c", "gpu0", "0000:01:00.0")
RESOURCES = ("nvidia.com/gpu", "nvidia.com/gpu.shared")


@given(
    st.lists(st.sets(st.sampled_from(IDS)), min_size=2, max_size=2),
    st.lists(
        st.one_of(
            st.integers(0, 3),
            st.tuples(st.integers(0, 3), st.sampled_from(RESOURCES), st.sets(st.sampled_from(IDS))),
        ),
        max_size=12,
    ),
)
@examples(500)
def test_nobody_gets_a_gpu_under_two_names(inventories, steps):
    """Beside a plain comparison of every id with every one that a lease has."""
    shares = GpuShares()
    held = {}
    for resource, ids in zip(RESOURCES, inventories, strict=True):
        shares.report(resource, [Device(device_id, None) for device_id in sorted(ids)])

    for step in steps:
        if isinstance(step, int):
            shares.release(str(step))
            held.pop(step, None)
        elif step[0] not in held:
            lease, resource, ids = step
            shares.take(str(lease), {resource: sorted(ids)})
            held[lease] = ids

        all_held = [device_id for ids in held.values() for device_id in ids]
        for resource, ids in zip(RESOURCES, inventories, strict=True):
            assert shares.taken(resource) == {
                device_id
                for device_id in ids
                if any(
                    device_id.startswith(f"{other}::") or other.startswith(f"{device_id}::")
                    for other in all_held
                )
            }
