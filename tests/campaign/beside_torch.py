"""Compares what alignup takes for the visible GPU with what CUDA and torch see, on one real GPU.

    python tests/campaign/beside_torch.py [--plugin NVIDIA_DEVICE_PLUGIN] [--report FILE] [PART]...

By hand, on a machine with one GPU of NVIDIA, where torch, nvidia-ml-py and the extra `agent` are
installed; as root, what hides NVML and what needs the kubelet's folder is tried too. It reads the
card and runs one small sum on it, and changes no setting of it. Where there is no CUDA (a stand-in
for NVML will do for the rest), the recorded table takes the driver's place, and the output says so.

`bind`, `split`, `run` and the agent are asked, by every form of CUDA_VISIBLE_DEVICES, with NVML,
without nvidia-ml-py, and without NVIDIA's library; the agent with a stand-in for NVIDIA's device
plugin, and with the real one where its path is given. The exit status is 1 if anything differs.
"""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(TESTS))

from inputs.cuda_visible_devices import WRAPPED, forms

GPU = "nvidia.com/gpu"
CVD = "CUDA_VISIBLE_DEVICES"
KUBELET = Path("/var/lib/kubelet")
PLUGINS = KUBELET / "device-plugins"
IN_NAMESPACE = "ALIGNUP_TEST_IN_NAMESPACE"
ALIGNUP = (sys.executable, "-c", "from alignup.cli import main; main()")
LOOK = (sys.executable, str(Path(__file__).resolve()), "--look")
LIBRARIES = ("libnvidia-ml.so.1", "libnvidia-ml.so")
LONG = 60.0
AT_ONCE = 8
PARTS = ("bind", "run", "split", "agent")
CHOICES = ("with NVML", "without nvidia-ml-py", "without NVIDIA's library")


class Report:
    """Counts what agrees, and says what does not."""

    def __init__(self):
        self.counts = {}
        self.differences = []
        self.notes = []
        self.start = time.monotonic()

    def check(self, kind, what, expected, answer):
        """Compare an answer with what is expected."""
        agreed, asked = self.counts.get(kind, (0, 0))
        self.counts[kind] = agreed + (expected == answer), asked + 1
        if expected != answer:
            self.differences.append([kind, what, expected, answer])
            print(f"DIFFERS {kind}: {what!r:.60}: expected {expected!r}, got {answer!r:.400}")

    def note(self, sentence):
        """Say something that is no comparison."""
        self.notes.append(sentence)
        print(f"[{time.monotonic() - self.start:5.1f} s] {sentence}", flush=True)

    def summary(self):
        """Return all of it, as an object."""
        return {
            "agreed of asked": {kind: list(counts) for kind, counts in self.counts.items()},
            "differences": self.differences,
            "notes": self.notes,
            "seconds": round(time.monotonic() - self.start, 1),
        }


def in_child(work, form):
    """Return what a function returns in a copy of this process with a form of the variable."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            os.close(reading)
            set_form(os.environ, form)
            with open(writing, "w", encoding="utf-8") as file:
                json.dump(work(), file)
            status = 0
        finally:
            os._exit(status)

    os.close(writing)
    with open(reading, encoding="utf-8") as file:
        text = file.read()

    _, status = os.waitpid(pid, 0)
    return json.loads(text) if status == 0 else [f"the child ended with {status}"]


def set_form(environment, form):
    """Set CUDA_VISIBLE_DEVICES to a form; None: it is not set."""
    environment.pop(CVD, None)
    if form is not None:
        environment[CVD] = form


def cuda_library():
    """Return CUDA's library; None: there is none."""
    with suppress(OSError):
        return ctypes.CDLL("libcuda.so.1")
    return None


def driver_view():
    """Return UUID and PCI address of each GPU that CUDA shows, or in a text that it shows none."""
    library = cuda_library()
    status = library.cuInit(0)
    if status:
        return []

    count = ctypes.c_int()
    library.cuDeviceGetCount(ctypes.byref(count))
    gpus = []
    for number in range(count.value):
        device = ctypes.c_int()
        library.cuDeviceGet(ctypes.byref(device), number)

        raw = ctypes.create_string_buffer(16)
        library.cuDeviceGetUuid_v2(raw, device)
        digits = raw.raw.hex()
        groups = re.fullmatch(r"(.{8})(.{4})(.{4})(.{4})(.{12})", digits).groups()

        address = ctypes.create_string_buffer(32)
        library.cuDeviceGetPCIBusId(address, 32, device)
        gpus.append([f"GPU-{'-'.join(groups)}", address.value.decode().lower()])

    return gpus


def torch_view():
    """Return torch's count without CUDA, and UUID and PCI address of each GPU that it uses."""
    import torch

    gpus = []
    try:
        count = torch.cuda.device_count()
    except ValueError as error:  # it reads a number of thousands of digits as a whole
        return [str(error)[:40], gpus]

    if torch.cuda.is_available():
        for number in range(torch.cuda.device_count()):
            gpu = torch.cuda.get_device_properties(number)
            place = f"{gpu.pci_domain_id:04x}:{gpu.pci_bus_id:02x}:{gpu.pci_device_id:02x}.0"
            gpus.append([f"GPU-{gpu.uuid}", place])

    return [count, gpus]


def bound():
    """Return the ids that `bind` gives the only rank, its variables and CPUs, or its error."""
    import alignup
    from alignup.errors import InputError

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            part = alignup.bind(0, 1, devices={GPU: 1}, threads=False)
        except InputError as error:
            return {"error": str(error)}

    return {
        "ids": list(part.devices[GPU]),
        "environment": part.environment(),
        "cpus": str(part.cpus),
        "warnings": [str(warning.message) for warning in caught],
        "affinity": sorted(os.sched_getaffinity(0)),
    }


def look():
    """Print what a command sees; the sum is one on the GPU."""
    seen = {"environment": dict(os.environ), "cpus": sorted(os.sched_getaffinity(0))}
    seen["driver"] = driver_view() if cuda_library() else None
    if "--sum" in sys.argv:
        import torch

        seen["sum"] = torch.ones(512, device="cuda").sum().item()
    if "--seconds" in sys.argv:
        time.sleep(float(sys.argv[sys.argv.index("--seconds") + 1]))

    print(json.dumps(seen))


def all_bound(texts):
    """Print what `bind` answers to each form."""
    print(json.dumps([in_child(bound, form) for form in texts]))


class Comparison:
    """The comparisons, on one machine with one GPU."""

    def __init__(self, report, plugin):
        self.report = report
        self._seen_by = {}
        self.plugin = plugin
        self.has_cuda = cuda_library() is not None
        self.uuid, self.address = self._gpu()
        self.table = forms(self.uuid)
        self.texts = [None, *self.table]
        self.shown = dict.fromkeys(self.texts, ())
        self.folder = Path(tempfile.mkdtemp(prefix="gpu-", dir="/tmp"))

    def _gpu(self):
        """Return UUID and PCI address of the GPU, by NVML."""
        import pynvml

        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 1, "this wants a machine with one GPU"
        handle = pynvml.nvmlDeviceGetHandleByIndex(0)
        uuid = pynvml.nvmlDeviceGetUUID(handle)
        bus = pynvml.nvmlDeviceGetPciInfo(handle).busId
        pynvml.nvmlShutdown()
        uuid, bus = (text if isinstance(text, str) else text.decode() for text in (uuid, bus))
        return uuid, bus.lower()[-12:]

    def run(self, parts):
        """Compare some parts, with what CUDA and torch say first."""
        self.facts()
        self.of_driver_and_torch()
        for part in parts:
            getattr(self, f"of_{part}")()
        shutil.rmtree(self.folder, ignore_errors=True)

    def facts(self):
        """Say what machine it is."""
        numa = Path(f"/sys/bus/pci/devices/{self.address}/numa_node")
        words = [platform.release(), platform.python_version(), f"{os.cpu_count()} CPUs"]
        words.append(f"numa_node {numa.read_text().strip()}" if numa.exists() else "not in sysfs")
        with suppress(OSError):
            words.append(Path("/proc/driver/nvidia/version").read_text().splitlines()[0])
        with suppress(ImportError):
            import torch

            words.append(f"torch {torch.__version__}")
        self.report.note(", ".join(words))

    def of_driver_and_torch(self):
        """Ask CUDA and torch of every form."""
        if not self.has_cuda:
            self.report.note("there is no CUDA: the recorded table takes the driver's place")
            for form in self.texts:
                has_gpu = form is None or self.table[form]
                self.shown[form] = [[self.uuid, self.address]] if has_gpu else []
            return

        import torch  # noqa: F401  # once, before all copies

        differing = []
        for form in self.texts:
            driver = in_child(driver_view, form)
            count, gpus = in_child(torch_view, form)
            self.shown[form] = driver
            recorded = 1 if form in {None, WRAPPED} else self.table[form]
            self.report.check("driver, as recorded", form, recorded, len(driver))
            if driver:
                self.report.check(
                    "driver: UUID, address", form, [[self.uuid, self.address]], driver
                )
            if gpus:
                self.report.check("torch: UUID, address", form, driver, gpus)
            if count != len(driver):
                differing.append(f"{form!r:.60}: driver {len(driver)}, torch {count}")

        self.report.note(f"driver and torch differ in {len(differing)}: {'; '.join(differing)}")

    def of_bind(self):
        """Ask `bind`, as a machine has NVIDIA's libraries or not."""
        for choice in CHOICES:
            self._of_bind(choice)

    def _of_bind(self, choice):
        """Ask `bind` of every form, and CUDA what it sees with the variables that it gives."""
        command = [sys.executable, __file__, "--bind"]
        if choice == CHOICES[1]:
            command.append("--without-nvidia-ml-py")
        if choice == CHOICES[2]:
            if not os.environ.get(IN_NAMESPACE):
                self.report.note(f"{choice}: skipped, since hiding it takes root")
                return
            hide = "".join(f"mount --bind /dev/null {path} && " for path in self._libraries())
            command = ["unshare", "-m", "sh", "-c", hide + 'exec "$@"', "sh", *command]

        if choice != CHOICES[0] and not Path(f"/sys/bus/pci/devices/{self.address}").exists():
            self.report.note(f"{choice}: skipped, since the GPU is not on this machine's PCI bus")
            return

        done = subprocess.run(
            command,
            input=json.dumps(self.texts),
            capture_output=True,
            text=True,
            timeout=2 * LONG,
            check=False,
        )
        if done.returncode:
            self.report.check(f"bind {choice}", "all forms", "answers", done.stderr[-2000:])
            return

        kind = f"bind {choice}"
        names = {self.uuid, self.address}
        by_bus = 0
        for form, answer in zip(self.texts, json.loads(done.stdout), strict=True):
            shown = [] if form == WRAPPED else self.shown[form]
            if not shown:
                self.report.check(kind, form, True, CVD in str(answer.get("error")))
                continue

            ids = answer.get("ids", [])
            self.report.check(kind, form, True, (len(ids) == 1 and ids[0] in names) or answer)
            if not ids:
                continue

            by_bus += ids[0] == self.address
            self._check_cpus(kind, form, answer)
            if self.has_cuda:
                seen = self._seen_with(form, answer["environment"])
                self.report.check(f"{kind}: CUDA with its variables", form, shown, seen)

        self.report.note(f"{kind}: {by_bus} of the answers are by PCI address")

    def _seen_with(self, form, environment):
        """Return what CUDA shows with the variables of a part, asked once where they are alike."""
        chosen = tuple(environment.get(name) for name in (CVD, "CUDA_DEVICE_ORDER"))
        key = chosen if chosen[0] is not None else (form,)
        if key not in self._seen_by:
            self._seen_by[key] = in_child(
                lambda: os.environ.update(environment) or driver_view(), form
            )
        return self._seen_by[key]

    def _check_cpus(self, kind, form, answer):
        """Compare the CPUs with those near the GPU: the whole node, or the whole machine."""
        near = sorted(os.sched_getaffinity(0))
        path = Path(f"/sys/bus/pci/devices/{self.address}/local_cpus")
        if path.exists():
            local = int(path.read_text().replace(",", ""), 16)
            near = [cpu for cpu in near if local >> cpu & 1]
        self.report.check(f"{kind}: CPUs near the GPU", form, near, answer["affinity"])

    def _libraries(self):
        """Return the files of NVIDIA's library of NVML."""
        listing = subprocess.run(
            ["/sbin/ldconfig", "-p"], capture_output=True, text=True, check=False
        ).stdout
        paths = [line.split(" => ")[1] for line in listing.splitlines() if " => " in line]
        for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
            paths += [str(Path(folder) / name) for name in LIBRARIES]
        own = {str(Path(path).resolve()) for path in paths if Path(path).name in LIBRARIES}
        return sorted(path for path in own if Path(path).exists())

    def command(self, arguments, form, **variables):
        """Run alignup with a form of the variable; return status, output read and errors."""
        environment = {**os.environ, **variables}
        set_form(environment, form)
        done = subprocess.run(
            [*ALIGNUP, *arguments],
            capture_output=True,
            text=True,
            timeout=2 * LONG,
            env=environment,
            check=False,
        )
        output = None
        with suppress(ValueError):
            output = json.loads(done.stdout)
        return done.returncode, output, done.stderr

    def of_run(self):
        """Let `run` take a GPU under every form, with the option that lifts it and without."""

        def ask(place):
            form, options = asked[place]
            state = str(self.folder / f"run{place}.json")
            wish = ["run", "--state", state, "--cpus", "1", "-d", f"{GPU}=1", *options]
            return self.command([*wish, "--", *LOOK], form)

        asked = [(form, ()) for form in self.texts]
        asked += [(form, ("--all-devices",)) for form in self.texts]
        with ThreadPoolExecutor(AT_ONCE) as threads:
            answers = list(threads.map(ask, range(len(asked))))

        for (form, options), (status, output, errors) in zip(asked, answers, strict=True):
            shown = [] if form == WRAPPED else self.shown[form]
            if options or shown:
                kind = f"run {' '.join(options)}".strip()
                self._check_command(kind, form, status, output, errors)
            else:
                self.report.check(
                    "run: refused, and why", form, (125, True), (status, CVD in errors)
                )

    def _check_command(self, kind, form, status, output, errors, uuids=None):
        """Compare what a command saw: just the GPU, named by its UUID."""
        if status or output is None:
            self.report.check(kind, form, 0, [status, errors])
            return

        value = output["environment"].get(CVD)
        self.report.check(kind, form, uuids or self.uuid, value)
        if self.has_cuda:
            self.report.check(f"{kind}: CUDA", form, [[self.uuid, self.address]], output["driver"])

    def of_split(self):
        """Let `split` give the GPU to one rank, and ask for more than there are."""
        status, output, _ = self.command(["split", "1", "-d", f"{GPU}=1", "--json"], None)
        devices = (output or {}).get("devices")
        self.report.check("split", "1", (0, {GPU: [self.uuid]}), (status, devices))

        status, _, errors = self.command(["split", "2", "-d", f"{GPU}=1"], None)
        self.report.check("split", "2", (2, True), (status, "too many" in errors or errors))
        status, _, errors = self.command(["split", "1", "-d", f"{GPU}=1"], "-1")
        self.report.check("split", "hidden", (2, True), (status, CVD in errors or errors))

    def of_agent(self):
        """Let the agent give the GPU away, as the driver lists it and as device plugins do."""
        plugins = PLUGINS if os.environ.get(IN_NAMESPACE) else self.folder / "p"
        plugins.mkdir(parents=True, exist_ok=True)
        with self.agent(plugins) as agent:
            self._take("agent, by the driver", agent)
            self._of_client_variables("agent, by the driver", agent)
            self._of_late_plugin(agent, plugins)
        self._of_stand_in(plugins)
        if self.plugin is None:
            self.report.note("NVIDIA's device plugin: skipped, --plugin names none")
        elif plugins != PLUGINS:
            self.report.note("NVIDIA's device plugin: skipped, the kubelet's folder takes root")
        else:
            self._of_real_plugin(plugins)

    @contextmanager
    def agent(self, plugins):
        """Run an agent; yield the environment of its clients."""
        folder = Path(tempfile.mkdtemp(prefix="a", dir=self.folder))
        socket = folder / "agent.sock"
        arguments = ["agent", "--socket", socket, "--state", folder / "leases.json"]
        arguments += ["--device-plugins", plugins, "--no-fsync"]
        environment = dict(os.environ)
        set_form(environment, None)
        with (folder / "log").open("w") as log:
            process = subprocess.Popen(
                [*ALIGNUP, *map(str, arguments)], stderr=log, env=environment
            )
        try:
            self._wait(lambda: socket.exists() and (plugins / "kubelet.sock").exists())
            yield {"ALIGNUP_AGENT": str(socket)}
        finally:
            process.terminate()
            process.wait(LONG)
            for line in (folder / "log").read_text().splitlines():
                if "Traceback" in line or "ERROR" in line:
                    self.report.check("agent's log", "errors", "", line)

    def _wait(self, holds):
        """Wait until something is so."""
        end = time.monotonic() + LONG
        while not holds():
            if time.monotonic() > end:
                raise TimeoutError
            time.sleep(0.05)

    def _take(self, kind, agent, resource=GPU, count=1, **options):
        """Let a command take devices of the agent."""
        look_for = options.pop("look", ())
        wish = ["run", "--wait", "20", "--cpus", "1", "-d", f"{resource}={count}"]
        outcome = self.command([*wish, "--", *LOOK, *look_for], options.pop("form", None), **agent)
        self._check_command(kind, resource, *outcome)
        return outcome

    def _of_client_variables(self, kind, agent):
        """Let the variables of clients tell what the agent may give them."""
        for form in (None, "0", "-1", "", "1", self.uuid, self.uuid[:12], f"{self.uuid}::0"):
            shown = self.shown.get(form, [[self.uuid, self.address]])
            wish = ["run", "--cpus", "1", "-d", f"{GPU}=1"]
            outcome = self.command([*wish, "--", *LOOK], form, **agent)
            name = f"{kind}: a client's variable"
            if shown:
                self._check_command(name, form, *outcome)
            else:
                status, _, errors = outcome
                self.report.check(name, form, (125, True), (status, CVD in errors or errors))

            lifted = self.command([*wish, "--all-devices", "--", *LOOK], form, **agent)
            self._check_command(f"{name}, lifted", form, *lifted)

    def _of_late_plugin(self, agent, folder):
        """Take the GPU as the driver lists it, and then let a plugin share it out."""
        environment = {**os.environ, **agent}
        set_form(environment, None)
        wish = ["run", "--cpus", "1", "--name", "early", "-d", f"{GPU}=1", "--", *LOOK]
        early = subprocess.Popen(
            [*ALIGNUP, *wish, "--seconds", "8"],
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
        )
        time.sleep(4)
        with self.stand_in(folder, GPU, [f"{self.uuid}::{number}" for number in range(4)]):
            time.sleep(1)
            wish = ["run", "--cpus", "1", "-d", f"{GPU}=1", "--", *LOOK]
            status, _, errors = self.command(wish, None, **agent)
            self.report.note(f"a share, while the driver's GPU is a lease: {status} {errors}")
            self.report.check("a lease before the plugin: its GPU is not shared", "", 125, status)
            early.communicate(timeout=LONG)
            self.report.check("a lease before the plugin", "ends", 0, early.returncode)
            self._take("shares, after a lease before the plugin", agent)

    @contextmanager
    def stand_in(self, folder, resource, ids):
        """Serve a device plugin with such ids."""
        from fakes.device_plugins import FakePlugin, wire

        plugin = FakePlugin(folder, resource)
        plugin.answer = lambda own: wire.AllocateResponse(
            container_responses=[
                wire.ContainerAllocateResponse(envs={"NVIDIA_VISIBLE_DEVICES": ",".join(own)})
            ]
        )
        devices = [wire.Device(ID=device_id, health="Healthy") for device_id in ids]
        plugin.serve()
        try:
            plugin.register()
            plugin.reports.put(wire.ListAndWatchResponse(devices=devices))
            yield plugin
        finally:
            plugin.die()

    def _of_stand_in(self, folder):
        """Let a stand-in for NVIDIA's plugin offer the GPU, whole and in shares."""
        with self.agent(folder) as agent:
            with self.stand_in(folder, GPU, [self.uuid]):
                look_for = ("--sum",) if self.has_cuda else ()
                _, output, _ = self._take("agent, stand-in", agent, look=look_for)
                if self.has_cuda:
                    self.report.check("a sum on the GPU", "", 512.0, (output or {}).get("sum"))
                self._of_client_variables("agent, stand-in", agent)

            for resource in (GPU, f"{GPU}.shared"):
                shares = [f"{self.uuid}::{number}" for number in range(4)]
                with self.stand_in(folder, resource, shares):
                    time.sleep(1)
                    self._take("agent, time slicing", agent, resource)
                    self._take("agent, time slicing, two", agent, resource, 2)
                    self._of_several("agent, time slicing, at once", agent, resource)
                    if resource == GPU:
                        self._of_client_variables("agent, time slicing", agent)

    def _of_several(self, kind, agent, resource):
        """Let several commands have shares at the same time."""
        wish = ["run", "--wait", "20", "--cpus", "1", "-d", f"{resource}=1", "--", *LOOK]

        def ask(_):
            return self.command([*wish, "--seconds", "2"], None, **agent)

        with ThreadPoolExecutor(3) as threads:
            for outcome in threads.map(ask, range(3)):
                self._check_command(kind, resource, *outcome)

    def _of_real_plugin(self, folder):
        """Let NVIDIA's own device plugin offer the GPU, whole, in shares and renamed."""
        sharing = "version: v1\nsharing:\n  timeSlicing:\n    {}resources:\n"
        sharing += "    - {{name: nvidia.com/gpu, replicas: 4}}\n"
        configurations = {
            "whole": ("", GPU),
            "time slicing": (sharing.format(""), GPU),
            "renamed": (sharing.format("renameByDefault: true\n    "), f"{GPU}.shared"),
        }
        for name, (text, resource) in configurations.items():
            file = self.folder / "plugin.yaml"
            file.write_text(text)
            arguments = ["--config-file", str(file)] if text else []
            with self.agent(folder) as agent, self._program(arguments):
                self._take(f"agent, NVIDIA's plugin, {name}", agent, resource)
                if resource == GPU:
                    self._of_client_variables(f"agent, NVIDIA's plugin, {name}", agent)
                if text:
                    self._of_several(f"agent, NVIDIA's plugin, {name}, at once", agent, resource)

    @contextmanager
    def _program(self, arguments):
        """Run NVIDIA's plugin until it has registered."""
        log_path = self.folder / "plugin.log"
        with log_path.open("w") as log:
            process = subprocess.Popen([self.plugin, *arguments], stdout=log, stderr=log)
        try:
            self._wait(lambda: "Registered device plugin" in log_path.read_text())
            yield
        except TimeoutError:
            self.report.check("NVIDIA's plugin registers", arguments, "", log_path.read_text())
        finally:
            process.terminate()
            process.wait(LONG)


def enter_namespace():
    """Begin again in a mount namespace with a folder of a kubelet; without root, do nothing."""
    if os.geteuid() or os.environ.get(IN_NAMESPACE):
        return

    KUBELET.mkdir(parents=True, exist_ok=True)
    mount = f'mount -t tmpfs none {KUBELET} && exec "$@"'
    probe = ["unshare", "-m", "sh", "-c", f"mount -t tmpfs none {KUBELET}"]
    if subprocess.run(probe, capture_output=True, check=False).returncode == 0:
        os.environ[IN_NAMESPACE] = "yes"
        command = ["unshare", "-m", "sh", "-c", mount, "sh", sys.executable, *sys.argv]
        os.execvp(command[0], command)


def main():
    """Compare, and print how much agrees."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--plugin", help="NVIDIA's device plugin, a program")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--report", help="where all of it is written, as JSON")
    arguments = parser.parse_args()
    if not set(arguments.parts) <= set(PARTS):
        parser.error(f"a part is one of {', '.join(PARTS)}")
    enter_namespace()

    report = Report()
    status = 1
    try:
        Comparison(report, arguments.plugin).run(arguments.parts or PARTS)
        status = int(bool(report.differences))
    finally:
        summary = report.summary()
        print(json.dumps(summary["agreed of asked"], indent=1))
        print(f"{len(report.differences)} differences, {summary['seconds']} s")
        if arguments.report:
            Path(arguments.report).write_text(json.dumps(summary, indent=1))

    return status


if __name__ == "__main__":
    if "--without-nvidia-ml-py" in sys.argv:
        sys.modules["pynvml"] = None
    if "--look" in sys.argv:
        look()
    elif "--bind" in sys.argv:
        all_bound(json.load(sys.stdin))
    else:
        sys.exit(main())
