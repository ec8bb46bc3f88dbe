"""`alignup gates`: bad usage ends in one line, and it ends in order when it is told to."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest


@pytest.fixture
def kubeconfig(write):
    """A kubeconfig of a server that is not there."""
    return write(
        "kubeconfig",
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:9"}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
        },
    )


@pytest.mark.parametrize(
    ("arguments", "parts"),
    [
        (("--strategy", "most"), ("--strategy", "least-numa-nodes", "'most'")),
        (("--lease", "gates"), ("--lease", "NAMESPACE/NAME", "'gates'")),
        (("--listen", "8081"), ("--listen", "HOST:PORT", "'8081'")),
        (("--install",), ("no answer",)),
        (("--uninstall",), ("no answer",)),
    ],
)
def test_bad_usage_is_one_line(alignup, kubeconfig, arguments, parts) -> None:
    assert alignup("gates", "--kubeconfig", kubeconfig, *arguments).complains(*parts)


def test_the_policy_is_installed_or_taken_away(alignup, kubeconfig) -> None:
    done = alignup("gates", "--kubeconfig", kubeconfig, "--install", "--uninstall")
    assert done.status == 2
    assert "--install and --uninstall exclude each other" in done.err


def test_it_serves_its_health_until_it_is_told_to_end(kubeconfig) -> None:
    command = [sys.executable, "-m", "alignup", "gates", "--kubeconfig", kubeconfig]
    process = subprocess.Popen(  # noqa: S603  # our own program
        [*command, "--listen", "127.0.0.1:0"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    try:
        line = process.stdout.readline()
        assert line.startswith("listening on 127.0.0.1:")
        url = f"http://{line.split()[-1]}"

        with urllib.request.urlopen(f"{url}/metrics") as response:  # noqa: S310  # ours
            assert b"\nalignup_gates_waiting_pods 0\n" in response.read()
        with pytest.raises(urllib.error.HTTPError) as raised:
            urllib.request.urlopen(f"{url}/healthz")  # noqa: S310  # ours
        assert raised.value.code == 503
        raised.value.close()

        process.send_signal(signal.SIGTERM)
        _, complaints = process.communicate(timeout=60)
        assert process.returncode == 0
        assert "Traceback" not in complaints
    finally:
        process.kill()
        process.communicate()
