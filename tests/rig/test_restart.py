"""Restarts of a real kubelet, foretold pod by pod from its files.

And suggestions, carried out on it with a restart.

Twelve suggestions by default; `ALIGNUP_RIG_SUGGESTIONS=40` is the whole campaign, `ALIGNUP_SEED`
another one.
"""

from __future__ import annotations

import json
import logging
import os
import random
import shutil
import tempfile
import time
from pathlib import Path

import pytest

from alignup import read_machine
from alignup.explanations.why import explain
from alignup.kubelet.check import foretell
from alignup.kubelet.layout import FolderFiles
from inputs.kernel_trees import NODE, server
from inputs.kubelet_files import guaranteed
from rig.lone_kubelet import NODE_NAME, KubeletRig, why_not
from rig.pretend_machine import BOOT_ID, lay_out
from rig.processes import RigError
from rig.published_kubelets import PROGRAMS
from rig.servers import control_plane, need_rig

pytestmark = [
    pytest.mark.slow,
    pytest.mark.rig,
    pytest.mark.skipif(bool(why_not()), reason=why_not()),
]

GPUS = [{"id": f"gpu{i}", "numa": [i % 2]} for i in range(6)]
NAMES = "abcdefgh"
RESTARTS = 15
ALPHA = {"CPUManagerPolicyAlphaOptions": True}

SUGGESTIONS = int(os.environ.get("ALIGNUP_RIG_SUGGESTIONS") or 12)


def change(chance):
    """Return fields to start the kubelet with; none: the same."""
    policies = ("none", "best-effort", "restricted", "single-numa-node")
    options = (
        {},
        {"full-pcpus-only": "true"},
        {"distribute-cpus-across-numa": "true"},
        {"full-pcpus-only": "true"},
    )
    return chance.choice(
        (
            {},
            {"topologyManagerPolicy": chance.choice(policies)},
            {
                "topologyManagerPolicy": chance.choice(policies),
                "topologyManagerScope": chance.choice(("container", "pod")),
            },
            {"cpuManagerPolicyOptions": chance.choice(options)},
            {
                "cpuManagerPolicyOptions": chance.choice(options),
                "topologyManagerPolicy": chance.choice(policies),
            },
            {"reservedSystemCPUs": chance.choice(("0", "0-1", "0,8", "0-3", "0,64"))},
            {
                "reservedMemory": [{"numaNode": 0, "limits": {"memory": "2Gi"}}],
                "systemReserved": {"memory": "1948Mi"},
            },
            {"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": None},
            {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}},
        )
    )


def wish(chance):
    """Return what a container asks for."""
    amounts = (chance.choice((1, 2, 2, 3, 4, 6)), chance.choice((1, 1, 2, 5)))
    if chance.random() < 0.3:
        return (*amounts, chance.choice((1, 2)))
    return amounts


def come_and_go(chance, rig):
    """Let pods come and go, and return those that run.

    Rejected static pods would be judged anew after a restart.
    """
    for name in NAMES:
        is_present = rig.status(name) is not None
        if is_present and chance.random() < 0.3:
            rig.remove(name)
        elif not is_present and chance.random() < 0.6:
            pod = guaranteed(name, *(wish(chance) for _ in range(chance.choice((1, 1, 2)))))
            pod["metadata"].pop("uid")
            if rig.admit(pod)["phase"] == "Failed":
                rig.remove(name)
    return [name for name in NAMES if rig.status(name) is not None]


def remove_refused(rig, names):
    """Take away the pods that a restart has refused."""
    for name in names:
        if rig.decided(name).get("reason"):
            rig.remove(name)


def listed_cpus(rig):
    """Return the CPUs that PodResources lists, by pod and container."""
    return {
        (pod["name"], container["name"]): {int(cpu) for cpu in container.get("cpu_ids", ())}
        for pod in rig.ask("list").get("pod_resources", ())
        for container in pod.get("containers", ())
        if container.get("cpu_ids")
    }


@pytest.mark.parametrize("seed", [1, 2])
def test_a_restart_does_what_was_foretold(seed):
    chance = random.Random(seed)
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))  # sockets need a short path
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    overlay = {"topologyManagerPolicy": "best-effort", "featureGates": ALPHA}
    counts = {}
    with KubeletRig(folder, files, overlay, {"nvidia.com/gpu": GPUS}) as rig:
        for number in range(RESTARTS):
            running = come_and_go(chance, rig)
            rig.record()
            rig.stop()
            before = rig.config
            fields = {**before, **change(chance)}
            rig.config_file.write_text(
                json.dumps({key: value for key, value in fields.items() if value is not None})
            )
            options = {"config": rig.config_file, "kubelet_version": rig.version}
            foretold = foretell(FolderFiles(rig.root), options)
            # by a new one it is known that the kubelet has come so far
            (rig.state / "device-plugins/kubelet.sock").unlink(missing_ok=True)
            try:
                rig.start()
            except RigError:
                assert foretold.faults, (number, fields, rig.log[-2000:])
                counts["does not start"] = counts.get("does not start", 0) + 1
                rig.config_file.write_text(json.dumps(before))
                rig.start()
                remove_refused(rig, running)  # that was a restart, too
                continue

            assert not foretold.faults, (number, foretold.faults)
            expected = {}
            for outcome in foretold.outcomes:
                reason = ""
                if outcome.refusal is not None:
                    reason = outcome.refusal.reason
                expected[outcome.pod.name.removesuffix(f"-{NODE_NAME}")] = reason

            reasons = {name: rig.decided(name).get("reason", "") for name in running}
            assert reasons == expected, (
                number,
                {key: fields[key] for key in fields if before.get(key) != fields[key]},
            )
            cpus = listed_cpus(rig)
            for outcome in foretold.outcomes:
                for holding in outcome.holds:
                    if (
                        outcome.refusal is None
                        and holding.cpus
                        and (outcome.pod.name, holding.container) in cpus
                    ):
                        assert set(holding.cpus) == cpus[outcome.pod.name, holding.container]

            for reason in reasons.values():
                counts[reason or "stays"] = counts.get(reason or "stays", 0) + 1

            remove_refused(rig, running)

    shutil.rmtree(folder, ignore_errors=True)
    assert counts.get("stays"), counts


@pytest.mark.parametrize("is_torn", [True, False])
def test_a_damaged_checkpoint_of_devices_is_passed_over(is_torn):
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    with KubeletRig(
        folder, files, {"topologyManagerPolicy": "restricted"}, {"nvidia.com/gpu": GPUS}
    ) as rig:
        for name, *wish in (("with", 2, 1, 2), ("without", 2, 1)):
            pod = guaranteed(name, wish)
            pod["metadata"].pop("uid")
            assert rig.admit(pod)["phase"] == "Running"

        rig.record()
        rig.stop()
        path = rig.state / "device-plugins/kubelet_internal_checkpoint"
        text = path.read_text()
        damaged = text.replace('"Checksum":', '"Checksum":1')
        if is_torn:
            damaged = text[:90]
        path.write_text(damaged)
        foretold = foretell(
            FolderFiles(rig.root), {"config": rig.config_file, "kubelet_version": rig.version}
        )
        forgotten = {
            outcome.pod.name.removesuffix(f"-{NODE_NAME}"): outcome.forgotten
            for outcome in foretold.outcomes
        }
        assert forgotten == {"with": ("nvidia.com/gpu",), "without": ()}
        assert [outcome.refusal for outcome in foretold.outcomes] == [None, None]
        (rig.state / "device-plugins/kubelet.sock").unlink(missing_ok=True)
        rig.restart()
        assert "Continue after failing to read checkpoint file" in rig.log
        assert [rig.decided(name)["phase"] for name in ("with", "without")] == [
            "Running",
            "Running",
        ]
        holders = [
            container
            for pod in rig.ask("list")["pod_resources"]
            for container in pod.get("containers", ())
            if container.get("devices")
        ]
        assert holders == []
        assert rig.admit(guaranteed("next", (2, 1, 2)))["phase"] == "Running"

    shutil.rmtree(folder, ignore_errors=True)


def swapped(files):
    """Return the files of a machine whose two NUMA nodes have each other's CPUs."""
    first, second = (f"{NODE}/node{number}/cpumap" for number in (0, 1))
    return {**files, first: files[second], second: files[first]}


def shrunk(files):
    """Return the files of a machine whose kernel keeps 4 MiB more of each NUMA node."""
    less = {
        path: text.replace(str(16 << 20), str((16 << 20) - 4096))
        for path, text in files.items()
        if path.endswith("/meminfo")
    }
    return {**files, **less}


def booted(policy, changed):
    """Boot a machine on which pods run; return what was foretold and what came, by pod.

    None: the kubelet does not start. Pods that were rejected for their plugins are then deleted,
    and come again.
    """
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    wishes = {"with": (2, 1, 2), "without": (4, 1), "later": (2, 1, 1)}
    with KubeletRig(
        folder, files, {"topologyManagerPolicy": policy}, {"nvidia.com/gpu": GPUS}
    ) as rig:
        for name, wish in wishes.items():
            pod = guaranteed(name, wish)
            pod["metadata"].pop("uid")
            assert rig.admit(pod)["phase"] == "Running"

        rig.record()
        options = {"config": rig.config_file, "kubelet_version": rig.version}
        if changed is not None:
            options["machine"] = read_machine(lay_out(folder / "comes-up", changed(files)))

        foretold = foretell(FolderFiles(rig.root), options, after_boot=True)
        try:
            rig.boot(changed and changed(files))
        except RigError:
            assert foretold.faults
            assert foretold.faults[0].effect.partition('"')[2].rstrip('"') in rig.log
            (rig.root / "var/lib/kubelet/memory_manager_state").unlink()
            assert "delete the file" in foretold.faults[0].repair
            rig.boot()
            assert {rig.decided(name)["phase"] for name in ("without",)} == {"Running"}
            shutil.rmtree(folder, ignore_errors=True)
            return None

        came = {name: rig.decided(name) for name in wishes}
        words = {name: status.get("message", "") for name, status in came.items()}
        reasons = {name: status.get("reason", "") for name, status in came.items()}
        expected = dict.fromkeys(wishes, "")
        for outcome in foretold.outcomes:
            name = outcome.pod.name.removesuffix(f"-{NODE_NAME}")
            if outcome.refusal is not None:
                expected[name] = outcome.refusal.reason

            if outcome.awaited:
                assert "no healthy devices present; cannot allocate unhealthy" in words[name]

        assert reasons == expected

        rig.offer_again()
        for name, reason in reasons.items():
            if reason == "UnexpectedAdmissionError":
                manifest = json.loads((rig.folder / "static" / f"{name}.json").read_text())
                rig.remove(name)
                manifest["metadata"]["labels"] = {"made": "again"}  # another uid
                status = rig.admit(manifest)
                assert status["phase"] == "Running", status

    shutil.rmtree(folder, ignore_errors=True)
    return reasons


def test_after_a_boot_pods_with_devices_are_rejected_until_their_plugins_are_there():
    reasons = booted("restricted", None)
    assert reasons == {
        "with": "UnexpectedAdmissionError",
        "without": "",
        "later": "UnexpectedAdmissionError",
    }


def test_a_boot_with_a_little_less_memory_keeps_the_kubelet_from_starting():
    assert booted("restricted", shrunk) is None


def test_a_boot_with_other_numbers_of_cpus_parts_pods_from_their_memory():
    assert booted("single-numa-node", swapped)["without"] == "TopologyAffinityError"
    assert booted("best-effort", swapped)["without"] == ""


def test_a_node_of_a_cluster_is_booted():
    """A kubelet tells of another boot id with an event, and does nothing else about it."""
    need_rig(*PROGRAMS)
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    overlay = {"topologyManagerPolicy": "restricted"}
    devices = {"nvidia.com/gpu": GPUS}
    with control_plane() as plane, KubeletRig(folder, files, overlay, devices, plane) as rig:
        wishes = {"first": (2, 1, 1), "without": (4, 1), "last": (2, 1, 2)}
        for name, wish in wishes.items():
            pod = guaranteed(name, wish)
            pod["metadata"].pop("uid")
            assert rig.admit(pod)["phase"] == "Running"

        rig.record()
        options = {"config": rig.config_file, "kubelet_version": rig.version}
        foretold = foretell(FolderFiles(rig.root), options, after_boot=True)
        before = listed_cpus(rig)
        rig.boot()
        rejected = {
            outcome.pod.name for outcome in foretold.outcomes if outcome.refusal is not None
        }
        assert {outcome.pod.name for outcome in foretold.outcomes} == set(wishes)

        def is_told():
            statuses = {name: rig.status(name) for name in wishes}
            return all(
                (status["phase"] == "Failed") is (name in rejected)
                for name, status in statuses.items()
            )

        plane.processes.wait_for("kube-apiserver", "pods are rejected", is_told)
        for name in rejected:
            assert "no healthy devices present" in rig.status(name)["message"]

        def boots():
            events = plane.client.get("/api/v1/events")["items"]
            return [event["message"] for event in events if event["reason"] == "Rebooted"]

        [message] = plane.processes.wait_for("kube-apiserver", "the boot is told", boots)
        assert message.endswith(f"boot id: {(rig.root / BOOT_ID).read_text().strip()}")
        cpus = listed_cpus(rig)
        assert cpus["without", "c0"] == before["without", "c0"]

        rig.offer_again()
        assert {rig.status(name)["phase"] for name in rejected} == {"Failed"}  # it stays so

    shutil.rmtree(folder, ignore_errors=True)
    assert rejected == {"first", "last"}


def wait_for_cpus_to_be_free(rig):
    """Wait until a kubelet that is to be stopped has freed the CPUs of pods that are gone.

    It does so a moment later, one container after the other, and writes twice for each: stopped in
    between, it does not start again.
    """
    deadline = time.monotonic() + 60
    while rig.read().records.state.cpu.entries.keys() - {
        item["metadata"]["uid"] for item in rig.pods()["items"] or ()
    }:
        assert time.monotonic() < deadline, "CPUs of pods that are gone are not free"
        time.sleep(0.2)


def carry_out(rig, suggestion, manifest, names):  # noqa: C901  # a step each
    """Do what a suggestion says, and return the manifest to admit then.

    None: it takes another plugin, or another kubelet.

    `names` are the pods that run, in the order in which they come again after a drain.
    """
    attempt = suggestion.attempt
    if "excludeTopology" in attempt or "kubeletVersion" in attempt:
        return None
    if "remove" in attempt:
        name_by_uid = {
            item["metadata"]["uid"]: item["metadata"]["name"] for item in rig.pods()["items"]
        }
        for uid in attempt["remove"]:
            rig.remove(name_by_uid[uid].removesuffix(f"-{NODE_NAME}"))

    if "kubelet" in attempt:
        files = {
            name: json.loads((rig.folder / "static" / f"{name}.json").read_text()) for name in names
        }
        if suggestion.after == "drain":
            for name in files:
                rig.remove(name)

        wait_for_cpus_to_be_free(rig)
        rig.stop()
        fields = {**rig.config, **attempt["kubelet"]}
        rig.config_file.write_text(
            json.dumps({key: value for key, value in fields.items() if value is not None})
        )
        if suggestion.after == "drain":
            for path in rig.state.glob("*_manager_state"):
                if path.name in suggestion.text:
                    path.unlink()

        rig.restart()
        for name, pod in files.items():
            if suggestion.after == "drain":
                # one that is made anew: by the uid that it had, it would have its memory again
                pod["metadata"].setdefault("annotations", {})["made"] = f"{time.monotonic_ns()}"
            status = rig.admit(pod) if suggestion.after == "drain" else rig.decided(name)
            assert status["phase"] == "Running", (suggestion.text, name, status)

    next_manifest = json.loads(json.dumps(attempt.get("pod", manifest)))
    # a static pod of the same uid would not be judged again
    next_manifest["metadata"] = {
        "name": f"{manifest['metadata']['name']}-again",
        "namespace": "default",
    }
    return next_manifest


def test_what_is_suggested_holds_on_the_kubelet():
    chance = random.Random(int(os.environ.get("ALIGNUP_SEED") or 3))
    folder = Path(tempfile.mkdtemp(prefix="k", dir="/tmp"))
    files = server(sockets=2, cores=8, nodes=2, memory=16 << 20)
    done, tried, kinds = 0, 0, {}
    with KubeletRig(folder, files, {"featureGates": ALPHA}, {"nvidia.com/gpu": GPUS}) as rig:
        usual = rig.config_file.read_text()
        while done < SUGGESTIONS:
            come_and_go(chance, rig)
            tried += 1
            manifest = guaranteed(
                f"new{tried}",
                (
                    chance.choice((6, 8, 10, 12, 14)),
                    chance.choice((1, 4, 12)),
                    chance.choice((1, 2)),
                ),
            )
            manifest["metadata"].pop("uid")
            refused = rig.admit(manifest)["phase"] == "Failed"
            rig.remove(f"new{tried}")
            node = rig.read().node
            # as `admit --node` has it: the kubelet counts the memory of the node, too
            node.whole_verdict = True
            suggestions = ()
            if refused:
                suggestions = explain(node, manifest).suggestions
            if suggestions:
                suggestion = chance.choice(suggestions)
                names = [pod.name.removesuffix(f"-{NODE_NAME}") for pod in node.pods]
                next_manifest = carry_out(rig, suggestion, manifest, names)
                if next_manifest is not None:
                    status = rig.admit(next_manifest)
                    assert status["phase"] == "Running", (suggestion.text, status["message"])
                    rig.remove(next_manifest["metadata"]["name"])
                    done += 1
                    changed_keys = "+".join(sorted(suggestion.attempt))
                    kind = f"{changed_keys} after {suggestion.after or 'nothing'}"
                    kinds[kind] = kinds.get(kind, 0) + 1
                    logging.getLogger(__name__).info(
                        "%d of %d refused pods: %s", done, tried, suggestion.text
                    )

            if rig.config_file.read_text() != usual:
                for name in NAMES:
                    if rig.status(name) is not None:
                        rig.remove(name)

                rig.stop()
                rig.config_file.write_text(usual)
                for name in ("cpu_manager_state", "memory_manager_state"):
                    (rig.state / name).unlink()
                rig.restart()

    logging.getLogger(__name__).info("all %d suggestions held: %s", done, kinds)
    shutil.rmtree(folder, ignore_errors=True)
