"""Every program in `examples` does what it says."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import re
import runpy
import stat
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from urllib.request import Request, urlopen

import pytest

import alignup
from alignup import Cluster
from alignup.machine.cpuset import CPUSet

EXAMPLES = Path(__file__).parent.parent / "examples"
KUBELET = {"topologyManagerPolicy": "restricted", "cpuManagerPolicy": "static"}
NODES = json.dumps({"name": "a", "machine": "xeon-2s", "kubelet": KUBELET})
SCRIPTS = Path(sys.executable).parent


def module(name: str):
    """Import a program of the folder."""
    spec = importlib.util.spec_from_file_location(f"example_{name}", EXAMPLES / f"{name}.py")
    made = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


def printed(*words: object, **environment: str) -> str:
    """Run a program, and return what it prints."""
    path = f"{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    variables = {**os.environ, "PATH": path, "PYTHONIOENCODING": "utf-8", **environment}
    done = subprocess.run(  # noqa: S603  # ours
        [sys.executable, *map(str, words)],
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def pod(name: str, cpus: int, **spec: str) -> dict:
    limits = {"cpu": str(cpus), "memory": "1Gi"}
    metadata = {"name": name, "namespace": "default", "uid": f"uid-{name}"}
    return {
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [{"name": "c", "resources": {"limits": limits}}], **spec},
    }


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_says_how_to_call_it(path, monkeypatch, capsys) -> None:
    """With --help, and without the words that it needs; the page of the examples says it, too."""
    usage = printed(path, "--help")
    page = (EXAMPLES.parent / "docs/reference/examples.md").read_text("utf-8")
    assert usage.startswith(f"usage: {path.name} ")
    assert f"    {path.name}" in usage
    assert f"examples/{path.name}" in page
    if " ...]" in usage.partition("\n\n")[0] or "nodes" in usage.partition("\n\n")[0]:
        monkeypatch.setattr(sys, "argv", [str(path)])
        with pytest.raises(SystemExit, match=r"^2$"):
            runpy.run_path(str(path), run_name="__main__")
        assert capsys.readouterr().err.startswith("usage: ")


@pytest.mark.parametrize(
    ("launcher", "rank", "size"),
    [
        ("torchrun", "LOCAL_RANK", "LOCAL_WORLD_SIZE"),
        ("mpirun", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"),
    ],
)
def test_ranks_are_on_parts_of_their_own(tmp_path, launcher, rank, size) -> None:
    """Stand-ins for the launchers start the ranks with the variables that the real ones set."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("a CPU for each of two ranks")

    program = tmp_path / launcher
    program.write_text(
        '#!/bin/sh\nwhile [ "$1" != alignup ]; do shift; done\n'
        f'for rank in 0 1; do {rank}=$rank {size}=2 "$@" >>"$OUT.$rank" & done; wait\n'
    )
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    out = tmp_path / "out"
    # each holds its CPUs until the other has some, too
    wait = f'while [ "$(ls {tmp_path} | grep -c ^[0-9])" -lt 2 ]; do sleep 0.05; done'
    command = f'echo "$ALIGNUP_CPUS"; touch {tmp_path}/$ALIGNUP_CPUS; {wait}'
    path = f"{tmp_path}{os.pathsep}{SCRIPTS}{os.pathsep}{os.environ['PATH']}"
    folders = {"PATH": path, "OUT": str(out), "XDG_STATE_HOME": str(tmp_path)}
    printed(EXAMPLES / "launch.py", launcher, 2, "--", "sh", "-c", command, **folders)
    first, second = (CPUSet.parse(Path(f"{out}.{index}").read_text().strip()) for index in (0, 1))
    assert first
    assert second
    assert not set(first) & set(second)


def snippet(title: str) -> dict:
    """Run a file that the page about ranks shows, and return its names."""
    page = (EXAMPLES.parent / "docs" / "questions" / "ranks.md").read_text("utf-8")
    text = re.search(
        rf'^```py title="{re.escape(title)}"\n(.*?)^```$', page, re.DOTALL | re.MULTILINE
    )[1]
    names: dict = {}
    exec(compile(text, title, "exec"), names)  # noqa: S102  # that is what it is for
    return names


def test_workers_of_servers_bind_themselves_before_they_start(monkeypatch) -> None:
    """With stand-ins for vLLM's worker and for the function that SGLang's schedulers run."""
    called = []
    monkeypatch.setattr(alignup, "bind", lambda *part, devices: called.append((*part, devices)))

    class Worker:
        local_rank = 3
        parallel_config = SimpleNamespace(world_size=8)

        def init_device(self) -> None:
            called.append("vLLM starts")

    snippet("bound_worker.py")["bound"](Worker)().init_device()
    run = snippet("bound_sglang.py")["bound"](lambda *arguments: called.append(arguments[2:]))
    run(SimpleNamespace(tp_size=8), None, 5, 2, None, "pipe")
    gpu = {"nvidia.com/gpu": 1}
    assert called == [(3, 8, gpu), "vLLM starts", (2, 8, gpu), (5, 2, None, "pipe")]


def test_licences_are_aligned_with_cpus_and_run_out() -> None:
    first, second, third = printed(EXAMPLES / "licences.py").splitlines()
    assert (first, second) == ("first CPUs 32-35,96-99", "second CPUs 0-3,64-67")
    assert third.startswith("third TopologyAffinityError")
    assert "2 asked, 1 free" in third


def test_gpus_and_nics_of_one_switch_go_together() -> None:
    without, with_plugin = printed(EXAMPLES / "gpu_nic_pairs.py").splitlines()
    assert without.endswith("1 of 2 behind one switch")
    assert with_plugin.endswith("2 of 2 behind one switch")


def test_the_notebook_runs_to_its_end(tmp_path) -> None:
    pytest.importorskip("nbclient")
    pytest.importorskip("ipykernel")
    notebook = tmp_path / "report.ipynb"
    notebook.write_bytes((EXAMPLES / "capacity_report.ipynb").read_bytes())
    folders = {"IPYTHONDIR": str(tmp_path), "JUPYTER_RUNTIME_DIR": str(tmp_path)}
    printed("-c", "from nbclient.cli import main; main()", "--output", "done", notebook, **folders)

    cells = json.loads((tmp_path / "done.ipynb").read_text("utf-8"))["cells"]
    shown = [output.get("data", {}) for cell in cells for output in cell.get("outputs", ())]
    assert sum("image/svg+xml" in data for data in shown) == 2
    table = next("".join(data["text/markdown"]) for data in shown if "text/markdown" in data)
    assert (
        len(
            re.findall(
                r"^\| (?:none|best-effort|restricted|single-numa-node) \| \d+ ", table, re.MULTILINE
            )
        )
        == 4
    )


def test_the_scheduler_binds_what_fits_and_keeps_the_rest_waiting() -> None:
    pytest.importorskip("kubernetes_asyncio")
    from kubernetes_asyncio import client  # noqa: PLC0415  # an extra

    from fakes.api_server import PODS, ApiStub, running, served, until  # noqa: PLC0415  # as above

    lines = [line for line in (EXAMPLES / "scheduler.py").read_text().splitlines() if line.strip()]
    assert len(lines) <= 60

    async def scenario() -> None:
        stub = ApiStub()
        async with served(stub) as api, client.ApiClient(api._configuration) as made:
            scheduler = module("scheduler").Scheduler(
                Cluster.from_json_lines(NODES), client.CoreV1Api(made)
            )
            async with running(scheduler.run()):
                for name in ("one", "two", "three"):
                    await stub.put(PODS, pod(name, 40, schedulerName="aligned"))
                await stub.put(PODS, pod("another", 40))
                await until(lambda: "uid-three" in scheduler.waiting)

                bound = [
                    name
                    for name in ("one", "two", "three", "another")
                    if stub.get(PODS, name, "default")["spec"].get("nodeName")
                ]
                assert bound == ["one", "two"]

                await stub.delete(PODS, "one", "default")
                await until(
                    lambda: stub.get(PODS, "three", "default")["spec"].get("nodeName") == "a"
                )

    asyncio.run(scenario())


def test_the_webhook_warns_of_what_no_node_can_align() -> None:
    webhook = module("admission_webhook")
    server = webhook.made_server(Cluster.from_json_lines(NODES), "127.0.0.1", 0)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()

    def answer_to(manifest: dict) -> dict:
        review = {
            "apiVersion": "admission.k8s.io/v1",
            "kind": "AdmissionReview",
            "request": {"uid": "u", "object": manifest},
        }
        url = f"http://127.0.0.1:{server.server_address[1]}/"
        with urlopen(Request(url, json.dumps(review).encode())) as response:
            return json.load(response)["response"]

    try:
        assert answer_to(pod("small", 8)) == {"uid": "u", "allowed": True}
        assert answer_to({"kind": "ConfigMap"}) == {"uid": "u", "allowed": True}
        deployment = {
            "kind": "Deployment",
            "spec": {"template": {"spec": pod("large", 200)["spec"]}},
        }
        for manifest in (pod("large", 200), deployment):
            answer = answer_to(manifest)
            assert answer["allowed"] is True
            assert (
                "never fits this node: 200 cpu asked, the machine has 128" in answer["warnings"][0]
            )
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
