"""The configuration of a kubelet: file, drop-ins and flags."""

from __future__ import annotations

import pytest

from alignup.errors import InputError
from alignup.kubelet.config import read_configuration
from alignup.kubelet.layout import CONFIG, CONFIG_FOLDER, FolderFiles
from alignup.kubelet.processes import kubelet_of


@pytest.fixture
def files(tmp_path):
    (tmp_path / CONFIG_FOLDER).mkdir(parents=True)
    (tmp_path / CONFIG).write_text(
        "cpuManagerPolicy: static\nkubeReserved: {cpu: '1', memory: 1Gi}\n"
    )
    return FolderFiles(tmp_path)


def test_drop_ins_are_merged_in_the_order_of_their_names(files):
    """Mappings key by key, null removes, and files without .conf are left alone."""
    folder = files.root / CONFIG_FOLDER
    (folder / "20-b.conf").write_text("kubeReserved: {cpu: '3', memory: null}\n")
    (folder / "10-a.conf").write_text(
        "kubeReserved: {cpu: '2'}\ntopologyManagerPolicy: restricted\n"
    )
    (folder / "30-c.yaml").write_text("topologyManagerPolicy: none\n")
    configuration = read_configuration(files)
    assert configuration.fields == {
        "cpuManagerPolicy": "static",
        "kubeReserved": {"cpu": "3"},
        "topologyManagerPolicy": "restricted",
    }
    assert configuration.source.count(",") == 2


def test_what_a_drop_in_does_not_name_in_a_mapping_stays(files):
    (files.root / CONFIG_FOLDER / "10-a.conf").write_text("kubeReserved: {cpu: '2'}\n")
    assert read_configuration(files).fields["kubeReserved"] == {"cpu": "2", "memory": "1Gi"}


def test_drop_ins_of_a_given_folder_are_merged_in_the_order_of_their_names(files, tmp_path):
    """In place of those of the node."""
    (files.root / CONFIG_FOLDER / "90-z.conf").write_text("cpuManagerPolicy: none\n")
    folder = tmp_path / "mine"
    folder.mkdir()
    for number in (20, 10, 30):
        (folder / f"{number}.conf").write_text(f"podsPerCore: {number}\n")
    configuration = read_configuration(files, config_dir=folder)
    assert (configuration.fields["podsPerCore"], configuration.fields["cpuManagerPolicy"]) == (
        30,
        "static",
    )


def test_thresholds_of_drop_ins_join_the_defaults_of_the_file(files):
    """A kubelet puts the defaults into its file's configuration before it reads drop-ins."""
    (files.root / CONFIG_FOLDER / "10-a.conf").write_text("evictionHard: {pid.available: '5%'}\n")
    thresholds = {"memory.available": "100Mi", "pid.available": "5%"}
    assert read_configuration(files).fields["evictionHard"] == thresholds


def test_reserved_cpus_that_are_given_win(files):
    configuration = read_configuration(files, reserved_cpus="0-1")
    assert configuration.fields["reservedSystemCPUs"] == "0-1"
    assert configuration.source.endswith(", --reserved-cpus")


def test_flags_override_and_feature_gates_join(files):
    (files.root / "etc").mkdir()
    (files.root / "etc/k.yaml").write_text(
        "featureGates: {A: true, B: true}\ncpuManagerPolicy: none\n"
    )

    kubelet = kubelet_of(
        7,
        [
            "kubelet",
            "--config=/etc/k.yaml",
            "--cpu-manager-policy=static",
            "--feature-gates=B=false,C=1",
        ],
    )

    configuration = read_configuration(FolderFiles(files.root, kubelet=kubelet))
    assert configuration.fields == {
        "featureGates": {"A": True, "B": False, "C": True},
        "cpuManagerPolicy": "static",
    }
    assert configuration.source.endswith("the flags of process 7")


def test_a_kubelet_reads_only_what_its_flags_name(files):
    """Without --config it has its defaults, whatever lies in its folder."""
    without_flags = FolderFiles(files.root, kubelet=kubelet_of(7, ["kubelet"]))
    assert read_configuration(without_flags).fields == {}

    elsewhere = FolderFiles(files.root, kubelet=kubelet_of(7, ["kubelet", "--config", "/nowhere"]))
    with pytest.raises(InputError, match="the configuration of the kubelet is missing: no file"):
        read_configuration(elsewhere)


def test_a_given_file_counts_in_place_of_the_nodes(files, tmp_path):
    (tmp_path / "mine.json").write_text('{"cpuManagerPolicy": "none"}')
    assert read_configuration(files, tmp_path / "mine.json").fields == {"cpuManagerPolicy": "none"}
    with pytest.raises(InputError, match="no such file"):
        read_configuration(files, tmp_path / "none.json")


@pytest.mark.parametrize("text", ["", "[]", "a: 1\n---\nb: 2\n", "{"])
def test_what_is_no_mapping_is_one_line(files, text):
    (files.root / CONFIG).write_text(text)
    with pytest.raises(InputError) as caught:
        read_configuration(files)
    assert "\n" not in str(caught.value)


def test_whose_part_of_a_configuration_it_is_is_known(files, tmp_path):
    part = tmp_path / "talos.yaml"
    part.write_text("machine: {kubelet: {extraConfig: {cpuManagerPolicy: static}}}\n")
    assert read_configuration(files, part).platform == "Talos"
    assert not read_configuration(files).platform
