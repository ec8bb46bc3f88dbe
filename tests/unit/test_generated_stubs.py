"""The modules that `.ci/generate-stubs` makes of `.proto` files are current.

They refuse older releases of grpcio and protobuf than those of the grpcio-tools that made them.
Their text depends on the release of grpcio-tools; what they say on the wire does not.
"""

from __future__ import annotations

import re
import sys
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf import descriptor_pb2
from grpc_tools import protoc

SOURCES = Path(__file__).parents[2] / "src"
PROTOS = sorted(path.relative_to(SOURCES).with_suffix("") for path in SOURCES.rglob("*.proto"))


def module_of(path, suffix):
    return import_module(".".join(path.parts) + suffix)


@pytest.mark.parametrize("path", PROTOS, ids=str)
def test_the_stubs_are_those_of_the_proto_file(path, tmp_path):
    made = tmp_path / "set"
    assert (
        protoc.main(["protoc", f"-I{SOURCES}", f"--descriptor_set_out={made}", f"{path}.proto"])
        == 0
    )
    (expected,) = descriptor_pb2.FileDescriptorSet.FromString(made.read_bytes()).file
    stub = descriptor_pb2.FileDescriptorProto()
    module_of(path, "_pb2").DESCRIPTOR.CopyToProto(stub)
    # spelled out by some releases only
    for message in (expected, stub):
        message.ClearField("options")
    assert without_json_names(stub) == without_json_names(expected)


@pytest.mark.parametrize("path", PROTOS, ids=str)
def test_the_stubs_name_every_method(path):
    methods = {
        f"/{service.full_name}/{method.name}"
        for service in module_of(path, "_pb2").DESCRIPTOR.services_by_name.values()
        for method in service.methods
    }
    if not methods:  # messages only, for which there is no module of services
        assert not (SOURCES / path).with_name(f"{path.name}_pb2_grpc.py").exists()
        return
    text = Path(sys.modules[module_of(path, "_pb2_grpc").__name__].__file__).read_text(
        encoding="utf-8"
    )
    assert set(re.findall(r"'(/[\w.]+/\w+)'", text)) == methods


def numbers(release):
    return tuple(map(int, release.split(".")))


@pytest.mark.parametrize(
    ("package", "wanted"),
    [
        ("grpcio", r"GRPC_GENERATED_VERSION = '([\d.]+)'"),
        ("protobuf", r"Protobuf Python Version: ([\d.]+)"),
    ],
)
def test_stubs_work_with_the_oldest_release_that_an_extra_takes(package, wanted):
    project = tomllib.loads((SOURCES.parent / "pyproject.toml").read_text(encoding="utf-8"))
    extras = project["project"]["optional-dependencies"]
    entries = [entry for extra in ("agent", "kubelet") for entry in extras[extra]]
    oldest = {entry.partition(">=")[2] for entry in entries if entry.startswith(f"{package}>=")}

    texts = [path.read_text(encoding="utf-8") for path in SOURCES.rglob("*_pb2*.py")]
    made_for = {release for text in texts for release in re.findall(wanted, text)}
    assert len(made_for) == 1
    assert len(oldest) == 1
    assert numbers(made_for.pop()) <= numbers(oldest.pop())


def without_json_names(message):
    text = re.sub(r'\n\s*json_name: "[^"]*"', "", str(message))
    return text.splitlines()
