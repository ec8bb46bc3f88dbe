"""Each query of the dashboard and of the alerts, asked of a real Prometheus.

It scrapes the rig.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import threading
import time
import urllib.request
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

import pytest
import yaml

from alignup.kubelet.node_metrics import prometheus_text
from alignup.kubelet.read import read_kubelet
from inputs.watched_objects import description, pod_object
from rig.control_plane import free_address
from rig.proof import EXTENDER
from rig.published_kubelets import PROGRAMS, RealKubelet, real_kubelets
from rig.servers import DEPLOY, Server, alignup, control_plane, need_rig, wait_for_metric

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(os.geteuid() != 0, reason="a kubelet needs root"),
    pytest.mark.skipif(shutil.which("prometheus") is None, reason="Prometheus asks"),
]

PODS = "/api/v1/namespaces/default/pods"


@contextmanager
def exported(kubelet: RealKubelet) -> Iterator[str]:
    """Serve what `alignup node export --format prometheus` says of a kubelet's node.

    That is as a node exporter would.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            text = prometheus_text(read_kubelet(kubelet.root, config=kubelet.config_file))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def prometheus(folder: Path, **jobs: dict[str, Any]) -> Iterator[str]:
    """Run a Prometheus that scrapes some servers each second; yield where it answers."""
    configs = [{"job_name": name, "scrape_interval": "1s", **job} for name, job in jobs.items()]
    (folder / "prometheus.yml").write_text(yaml.safe_dump({"scrape_configs": configs}))
    address = free_address()
    options = [f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={folder}/data"]
    with (folder / "prometheus.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: S603  # Debian's
            # wherever it is
            ["prometheus", *options, f"--web.listen-address={address}"],  # noqa: S607
            stdout=log,
            stderr=log,
        )

    try:
        yield f"http://{address}/api/v1/query"
    finally:
        process.terminate()
        process.wait(30)


def ask(url: str, query: str) -> list[tuple[dict[str, str], float]]:
    """Return the labels and values of an answer; none while Prometheus does not answer."""
    try:
        question = f"{url}?{urlencode({'query': query})}"
        with urllib.request.urlopen(question, timeout=30) as response:  # noqa: S310  # ours
            return [
                (sample["metric"], float(sample["value"][1]))
                for sample in json.load(response)["data"]["result"]
            ]
    except OSError:
        return []


def queries() -> dict[str, str]:
    """Return by title what the panels ask."""
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    return {
        f"{panel['title']} ({target['refId']})": target["expr"].replace("$resource", "cpu")
        for panel in panels
        for target in panel["targets"]
    }


def test_every_panel_has_an_answer(capsys, tmp_path: Path) -> None:
    need_rig(*PROGRAMS)
    nodes = [{"name": "node-0", **description()}]
    with (
        control_plane() as plane,
        real_kubelets(plane, nodes) as (kubelet,),
        alignup(
            "extender",
            "--kubeconfig",
            plane.kubeconfig,
            "--listen",
            EXTENDER,
            ready=f"http://{EXTENDER}/healthz",
        ),
        exported(kubelet) as exporter,
    ):
        server = Server(plane.kubeconfig)
        wait_for_metric(EXTENDER, 'alignup_extender_nodes{known_by="holdings"}', 1.0)
        plane.schedule_with(EXTENDER)
        of_kubelet = {
            "scheme": "https",
            "tls_config": {"insecure_skip_verify": True},
            "static_configs": [{"targets": [f"127.0.0.1:{kubelet.config['port']}"]}],
        }
        with prometheus(
            tmp_path,
            extender={"static_configs": [{"targets": [EXTENDER]}]},
            node={"static_configs": [{"targets": [exporter]}]},
            kubelet=of_kubelet,
        ) as url:
            deadline = time.monotonic() + 180
            while len(ask(url, "alignup_extender_pods")) == 0:
                assert time.monotonic() < deadline, (tmp_path / "prometheus.log").read_text()[
                    -2000:
                ]
                time.sleep(0.5)

            for number, cpu in enumerate([2, 5]):  # the second one waits: no NUMA node has so many
                pod = pod_object(f"pod-{number}", cpu=cpu)
                del pod["metadata"]["uid"], pod["status"], pod["spec"]["priority"]
                assert server.ask("POST", PODS, pod) == 201

            while True:
                answers = {title: ask(url, query) for title, query in queries().items()}
                verbs = {
                    labels["verb"] for labels, _ in answers["Time to answer, 99th percentile (A)"]
                }
                waiting = [value for _, value in answers["Pods that no node could take (A)"]]
                if all(answers.values()) and {"filter", "bind"} <= verbs and waiting == [1.0]:
                    break
                assert time.monotonic() < deadline, answers
                time.sleep(1.0)

            resources = ask(url, "count by (resource) (alignup_node_resource_free)")

    with capsys.disabled():
        print(json.dumps(answers))  # noqa: T201  # what the panels show

    assert [
        title
        for title, samples in answers.items()
        if not all(math.isfinite(value) for _, value in samples)
    ] == []
    assert {labels["resource"] for labels, _ in resources} >= {"cpu", "memory", "example.com/gpu"}
