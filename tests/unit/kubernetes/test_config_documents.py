"""What a kubelet's configuration is wrapped in."""

from __future__ import annotations

import base64
import gzip
import json
import quopri
import re
import warnings
from contextlib import suppress
from email.message import EmailMessage
from itertools import pairwise
from pathlib import Path
from random import Random
from urllib.parse import quote

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import AlignupWarning, InputError
from alignup.kubernetes.config_documents import (
    _different,
    configuration_fields,
    read_configuration,
    read_flags,
)
from alignup.kubernetes.kubelet_config import load_config
from alignup.kubernetes.versions import known_names, read_table
from checks.many_cases import check_each

FORMATS = Path(__file__).parents[2] / "reports" / "k8s" / "00-formats"
ALIGNED = {
    "cpuManagerPolicy": "static",
    "topologyManagerPolicy": "single-numa-node",
    "reservedSystemCPUs": "0",
}
ALIGNED_BUT_CPUS = {name: value for name, value in ALIGNED.items() if name != "reservedSystemCPUs"}
FLAG_NAMES = {
    "cpuManagerPolicy": "cpu-manager-policy",
    "topologyManagerPolicy": "topology-manager-policy",
    "reservedSystemCPUs": "reserved-cpus",
}
FLAGS = {name: f"--{flag}={ALIGNED[name]}" for name, flag in FLAG_NAMES.items()}
WORDS = " ".join(FLAGS.values())
SETTINGS = {
    "cpu-manager-policy": "static",
    "topology-manager-policy": "single-numa-node",
    "reserved-cpus": "0",
}
TOML = "[settings.kubernetes]\n" + "".join(
    f'{name} = "{value}"\n' for name, value in SETTINGS.items()
)
WITH_KIND = {
    "apiVersion": "kubelet.config.k8s.io/v1beta1",
    "kind": "KubeletConfiguration",
    **ALIGNED,
}

NODE_CONFIG = {"kind": "NodeConfig", "spec": {"kubelet": {"config": ALIGNED}}}

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-9, 9)
    | st.sampled_from(["", "static", WORDS, "kind: A", "data:,x"]),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "kind",
                    "metadata",
                    "name",
                    "spec",
                    "data",
                    "kubeletconfig",
                    "kubelet-arg",
                    "machine",
                    "kubelet",
                    "extraArgs",
                    "extraConfig",
                    "contents",
                    "source",
                    "path",
                    "config",
                    "storage",
                    "files",
                    "annotations",
                    "numa",
                    "cpu",
                    "reserved",
                    "topologyPolicy",
                    "cpuManagerPolicy",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=20,
)

VALUES = {
    "text": "x",
    "map": "cpu=1",
    "number": "7",
    "eviction": "memory.available<1Gi",
    "reservedMemory": "0:memory=1Gi",
}


IN_BASE64 = base64.encodebytes(yaml.safe_dump(WITH_KIND).encode()).decode()


def flags_without_hyphens():
    return [flag.removeprefix("--") for flag in FLAGS.values()]


def data_url(text, encoding):
    """Return a text as Ignition has it."""
    if encoding == "percent":
        return {"source": f"data:,{quote(text)}"}
    if encoding == "gzip":
        packed = base64.b64encode(gzip.compress(text.encode())).decode()
        return {"source": f"data:;base64,{packed}", "compression": "gzip"}

    encoded = base64.b64encode(text.encode()).decode()
    return {"source": f"data:text/plain;charset=utf-8;base64,{encoded}"}


def machine_config(files=(), units=()):
    return {
        "kind": "MachineConfig",
        "metadata": {"name": "99-worker"},
        "spec": {"config": {"storage": {"files": list(files)}, "systemd": {"units": list(units)}}},
    }


def ignition_file(path, text, encoding):
    return {"path": path, "contents": data_url(text, encoding)}


def user_data(*parts):
    message = EmailMessage()
    message.make_mixed()
    for part in parts:
        inner = EmailMessage()
        inner.set_content(part)
        message.attach(inner)
    return message.as_string()


KUBEADM_ARGS = {
    "nodeRegistration": {
        "kubeletExtraArgs": dict(flag.split("=") for flag in flags_without_hyphens())
    }
}
WRAPPED = {
    "plain": ALIGNED,
    "with its kind": WITH_KIND,
    "configz": {"kubeletconfig": ALIGNED},
    "KubeletConfig": {"kind": "KubeletConfig", "spec": {"kubeletConfig": ALIGNED}},
    "ConfigMap": {"kind": "ConfigMap", "data": {"kubelet": yaml.safe_dump(WITH_KIND)}},
    "a List": {
        "kind": "List",
        "items": [{"kind": "KubeletConfig", "spec": {"kubeletConfig": ALIGNED}}],
    },
    "kubeadm, before v1beta4": {"kind": "JoinConfiguration", **KUBEADM_ARGS},
    "kubeadm": {
        "kind": "InitConfiguration",
        "nodeRegistration": {
            "kubeletExtraArgs": [
                dict(zip(("name", "value"), flag.split("="), strict=True))
                for flag in flags_without_hyphens()
            ]
        },
    },
    "Cluster API": {
        "kind": "KubeadmConfigTemplate",
        "spec": {"template": {"spec": {"joinConfiguration": KUBEADM_ARGS}}},
    },
    "MachineConfig, percent-encoded": machine_config(
        [ignition_file("/etc/k", json.dumps(WITH_KIND), "percent")]
    ),
    "MachineConfig, base64": machine_config(
        [ignition_file("/etc/k", json.dumps(WITH_KIND), "base64")]
    ),
    "MachineConfig, gzip": machine_config(
        [ignition_file("/etc/k", yaml.safe_dump(WITH_KIND), "gzip")]
    ),
    "MachineConfig, a unit": machine_config(
        units=[{"contents": f"[Service]\nExecStart=/usr/bin/kubelet {WORDS}\n"}]
    ),
    "MachineConfig, a drop-in": machine_config(
        units=[{"dropins": [{"contents": f"Environment='A={WORDS}'"}]}]
    ),
    "RKE2": {"kubelet-arg": flags_without_hyphens()},
    "Rancher": {
        "kind": "Cluster",
        "spec": {"rkeConfig": {"machineGlobalConfig": {"kubelet-arg": flags_without_hyphens()}}},
    },
    "kind": {"kind": "Cluster", "nodes": [{"kubeadmConfigPatches": [yaml.safe_dump(WITH_KIND)]}]},
    "kops": {"kind": "InstanceGroup", "spec": {"kubelet": ALIGNED}},
    "Talos": {"machine": {"kubelet": {"extraConfig": ALIGNED}}},
    "Talos, flags": {
        "machine": {
            "kubelet": {"extraArgs": dict(flag.split("=") for flag in flags_without_hyphens())}
        },
    },
    "NodeConfig": {"kind": "NodeConfig", "spec": {"kubelet": {"config": ALIGNED}}},
    "NodeConfig, flags": {
        "kind": "NodeConfig",
        "spec": {"kubelet": {"flags": list(FLAGS.values())}},
    },
    "EC2NodeClass": {"kind": "EC2NodeClass", "spec": {"kubelet": ALIGNED}},
    "EC2NodeClass, MIME": {
        "kind": "EC2NodeClass",
        "spec": {
            "kubelet": {"reservedSystemCPUs": "0"},
            "userData": user_data(
                yaml.safe_dump(
                    {"kind": "NodeConfig", "spec": {"kubelet": {"config": ALIGNED_BUT_CPUS}}}
                )
            ),
        },
    },
    "EC2NodeClass, a script": {
        "kind": "EC2NodeClass",
        "spec": {
            "userData": (f"#!/bin/bash\n/etc/eks/bootstrap.sh c --kubelet-extra-args '{WORDS}'\n")
        },
    },
    "NodePool": {"kind": "NodePool", "spec": {"template": {"spec": {"kubelet": ALIGNED}}}},
    "Provisioner": {"kind": "Provisioner", "spec": {"kubeletConfiguration": ALIGNED}},
    "GKE": {"kubeletConfig": ALIGNED},
    "GKE, nested": {
        "kubeletConfig": {
            "cpuManagerPolicy": "static",
            "reservedSystemCPUs": "0",
            "topologyManager": {"policy": "single-numa-node"},
        }
    },
    "GKE's ComputeClass": {
        "kind": "ComputeClass",
        "spec": {"nodePoolConfig": {"nodeSystemConfig": {"kubeletConfig": ALIGNED}}},
    },
    "eksctl": {"kind": "ClusterConfig", "nodeGroups": [{"kubeletExtraConfig": ALIGNED}]},
    "eksctl, Bottlerocket": {
        "kind": "ClusterConfig",
        "managedNodeGroups": [{"bottlerocket": {"settings": {"kubernetes": SETTINGS}}}],
    },
    "eksctl, a NodeConfig": {
        "kind": "ClusterConfig",
        "managedNodeGroups": [
            {
                "overrideBootstrapCommand": yaml.safe_dump(
                    {"kind": "NodeConfig", "spec": {"kubelet": {"config": ALIGNED}}}
                )
            }
        ],
    },
    "Bottlerocket, as apiclient prints it": {"settings": {"kubernetes": SETTINGS}},
    "Bottlerocket's user data": {
        "kind": "EC2NodeClass",
        "spec": {"userData": f"# a node\n{TOML}"},
    },
    "AKS, what az takes": {**ALIGNED, "imageGcHighThreshold": 85},
    "AKS' Karpenter": {"kind": "AKSNodeClass", "spec": {"kubelet": ALIGNED}},
    "KubeadmControlPlane": {
        "kind": "KubeadmControlPlane",
        "spec": {"kubeadmConfigSpec": {"initConfiguration": KUBEADM_ARGS}},
    },
    "KubeadmConfig": {"kind": "KubeadmConfig", "spec": {"joinConfiguration": KUBEADM_ARGS}},
    "KubeadmConfigTemplate, a file beside flags of others": {
        "kind": "KubeadmConfigTemplate",
        "spec": {
            "template": {
                "spec": {
                    "files": [{"path": "/etc/k", "content": json.dumps(WITH_KIND)}],
                    "joinConfiguration": {
                        "nodeRegistration": {"kubeletExtraArgs": {"node-labels": "a=b"}}
                    },
                }
            }
        },
    },
    "RKE2ConfigTemplate": {
        "kind": "RKE2ConfigTemplate",
        "spec": {
            "template": {
                "spec": {"agentConfig": {"kubelet": {"extraArgs": flags_without_hyphens()}}}
            }
        },
    },
    "RKE1": {
        "services": {
            "kubelet": {"extra_args": {FLAG_NAMES[name]: value for name, value in ALIGNED.items()}}
        }
    },
    "k3d": {
        "kind": "Simple",
        "options": {
            "k3s": {
                "extraArgs": [{"arg": f"--kubelet-arg={flag}"} for flag in flags_without_hyphens()]
            }
        },
    },
    "MicroK8s": {
        "extraKubeletArgs": {f"--{FLAG_NAMES[name]}": value for name, value in ALIGNED.items()}
    },
    "cloud-init": {"write_files": [{"path": "/etc/k", "content": yaml.safe_dump(WITH_KIND)}]},
    "cloud-init, plain": {
        "write_files": [{"content": yaml.safe_dump(WITH_KIND), "encoding": "text/plain"}]
    },
    "cloud-init, base64": {"write_files": [{"content": IN_BASE64, "encoding": "b64"}]},
    "cloud-init, gzip": {
        "write_files": [
            {
                "content": base64.encodebytes(
                    gzip.compress(yaml.dump(WITH_KIND).encode())
                ).decode(),
                "encoding": "gz+base64",
            }
        ]
    },
    "ConfigMap, binaryData": {
        "kind": "ConfigMap",
        "metadata": {"name": "c"},
        "binaryData": {"b": IN_BASE64},
    },
    "k3s, appended": {
        "kubelet-arg": flags_without_hyphens()[:1],
        "kubelet-arg+": flags_without_hyphens()[1:],
    },
    "k3s, appended only": {"kubelet-arg+": flags_without_hyphens()},
    "k3s, one appended": {
        "kubelet-arg": flags_without_hyphens()[1:],
        "kubelet-arg+": flags_without_hyphens()[0],
    },
    "RKE1, array": {
        "services": {
            "kubelet": {"extra_args_array": {FLAG_NAMES[name]: [ALIGNED[name]] for name in ALIGNED}}
        }
    },
    "CAPZ": {"kind": "AzureManagedMachinePool", "spec": {"kubeletConfig": ALIGNED}},
    "CAPA": {
        "kind": "NodeadmConfigTemplate",
        "spec": {"template": {"spec": {"kubelet": {"config": ALIGNED}}}},
    },
    "Config Connector": {
        "kind": "ContainerNodePool",
        "spec": {"nodeConfig": {"kubeletConfig": ALIGNED}},
    },
    "k0s": {
        "kind": "ClusterConfig",
        "spec": {"workerProfiles": [{"name": "numa", "values": ALIGNED}]},
    },
    "k0sctl": {
        "kind": "Cluster",
        "spec": {"k0s": {"config": {"spec": {"workerProfiles": [{"values": ALIGNED}]}}}},
    },
    "k0sctl, flags": {
        "kind": "Cluster",
        "spec": {"hosts": [{"installFlags": [f"--kubelet-extra-args='{WORDS}'"]}]},
    },
    "Gardener": {"kind": "Shoot", "spec": {"kubernetes": {"kubelet": ALIGNED}}},
    "Gardener, a worker": {
        "kind": "Shoot",
        "spec": {"provider": {"workers": [{"kubernetes": {"kubelet": ALIGNED}}]}},
    },
    "minikube's profile": {
        "KubernetesConfig": {
            "ExtraOptions": [
                {"Component": "apiserver", "Key": "v", "Value": "9"},
                *(
                    {"Component": "kubelet", "Key": FLAG_NAMES[name], "Value": value}
                    for name, value in ALIGNED.items()
                ),
            ]
        }
    },
    "kubespray": {
        "kube_version": "1.36.0",
        "kubelet_cpu_manager_policy": "static",
        "kubelet_topology_manager_policy": "single-numa-node",
        "reserved_system_cpus": "0",
    },
    "kubespray, other variables": {
        "kubelet_config_extra_args": ALIGNED_BUT_CPUS,
        "kubelet_custom_flags": ["--reserved-cpus=0"],
    },
}


def without_kind(fields):
    return {name: value for name, value in fields.items() if name not in {"kind", "apiVersion"}}


@pytest.mark.parametrize(
    "write",
    [
        json.dumps,
        yaml.safe_dump,
        lambda document: f"# a note\n---\n{yaml.safe_dump(document)}---\n",
    ],
)
def test_every_wrapper_is_taken_off(write):
    """Without a warning: nothing else is in it."""

    def is_taken_off(wrapped):
        assert without_kind(configuration_fields(write(wrapped), "k")) == ALIGNED

    check_each(is_taken_off, [(name, (wrapped,)) for name, wrapped in WRAPPED.items()])


TEXTS = {
    "flags alone": WORDS,
    "a variable": f'KUBELET_EXTRA_ARGS="{WORDS}"',
    "a drop-in": (
        f"[Service]\n# --cpu-manager-policy=none\nEnvironment='KUBELET_EXTRA_ARGS={WORDS}'\n"
    ),
    "a drop-in of several variables": "[Service]\n"
    + "".join(f'Environment="V{place}={flag}"\n' for place, flag in enumerate(FLAGS.values())),
    "lines that go on": (
        "ExecStart=/usr/bin/kubelet \\\n  " + WORDS.replace(" ", " \\\n  ") + "\n"
    ),
    "values apart": f"/usr/bin/kubelet {WORDS.replace('=', ' ')}",
    "ps": (
        "root 12 1.0 /usr/bin/kube-apiserver --feature-gates=A=maybe\n"
        f"root 13 1.0 /usr/bin/kubelet {WORDS} --v=2\n"
        "root 14 0.0 grep kubelet --reserved-cpus=9\n"
    ),
    "k3s": f"/usr/local/bin/k3s agent --kubelet-arg={WORDS[2:].replace(' --', ' --kubelet-arg ')}",
    "microk8s": WORDS.replace(" ", "\n"),
    "k0s": f'k0s worker --profile numa --kubelet-extra-args="{WORDS}" --debug',
    "minikube": "minikube start "
    + " ".join(f"--extra-config=kubelet.{flag}" for flag in flags_without_hyphens()),
    "Bottlerocket": TOML,
    "Bottlerocket, dotted": "".join(
        f"settings.kubernetes.{line}\n" for line in TOML.splitlines()[1:]
    ),
}


@pytest.mark.parametrize(
    "document",
    [
        {
            "kind": "InitConfiguration",
            "nodeRegistration": {"kubeletExtraArgs": {"topology-manager-policy": None}},
        },
        {
            "kind": "InitConfiguration",
            "nodeRegistration": {
                "kubeletExtraArgs": [{"name": "topology-manager-policy", "value": None}]
            },
        },
        {"services": {"kubelet": {"extra_args": {"topology-manager-policy": None}}}},
        {"services": {"kubelet": {"extra_args_array": {"topology-manager-policy": [None]}}}},
        {"extraKubeletArgs": {"--topology-manager-policy": None}},
    ],
)
def test_a_flag_that_is_null_has_no_value(document):
    message = "expected a value of the kubelet's flag --topology-manager-policy, got null in k"
    with pytest.raises(InputError, match=f"^{message}$"):
        configuration_fields(yaml.safe_dump(document), "k")


def test_a_flag_that_does_not_matter_may_be_null():
    args = {"node-ip": None, 3: None, "max-pods": "9"}
    document = {"kind": "InitConfiguration", "nodeRegistration": {"kubeletExtraArgs": args}}
    assert configuration_fields(yaml.safe_dump(document), "k") == {"maxPods": 9}


@pytest.mark.parametrize(
    "document",
    [
        {"write_files": [{"content": "${template}", "encoding": "gz+b64"}]},
        {"write_files": [{"content": "", "encoding": "b64"}]},
        {"kind": "ConfigMap", "binaryData": {"1": "%"}, "metadata": {"name": "c"}},
        {"kind": "ConfigMap", "binaryData": {"1": 3}, "metadata": {"name": "c"}},
    ],
)
def test_what_is_no_base64_is_passed_over(document):
    with pytest.raises(InputError, match=r"expected a KubeletConfiguration, got 1 of "):
        configuration_fields(yaml.safe_dump(document), "k")


def test_arguments_of_k3s_behind_appended_ones_take_their_place():
    """As its parser goes through a file key by key."""
    given, appended = ["cpu-manager-policy=static"], ["topology-manager-policy=restricted"]
    document = {"kubelet-arg+": appended, "kubelet-arg": given}
    assert configuration_fields(json.dumps(document), "k") == {"cpuManagerPolicy": "static"}


@pytest.mark.parametrize(
    "file",
    [
        {
            "encoding": "gz+b64",
            "content": base64.b64encode(gzip.compress(b"#" * (8 << 20))).decode(),
        },
        {"encoding": "b64", "content": "A" * ((1 << 18) + 1)},
    ],
    ids=["gzip", "no base64"],
)
def test_texts_that_are_named_many_times_are_not_read_each_time(file):
    text = f"write_files:\n- &file {json.dumps(file)}\n" + "- *file\n" * 500
    with pytest.raises(InputError, match="the texts within have more than 33554432 bytes together"):
        configuration_fields(text, "k")


@pytest.mark.parametrize("name", TEXTS)
def test_flags_in_a_text(name):
    assert configuration_fields(TEXTS[name], "k") == ALIGNED


def test_flags_win_over_fields_beside_them():
    text = yaml.safe_dump_all(
        [
            {
                "kind": "InitConfiguration",
                "nodeRegistration": {"kubeletExtraArgs": {"feature-gates": "A=true"}},
            },
            {**WITH_KIND, "featureGates": {"A": False, "B": True}},
        ]
    )
    assert configuration_fields(text, "k")["featureGates"] == {"A": True, "B": True}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            yaml.safe_dump_all(
                [
                    {"kind": "ClusterConfiguration"},
                    WITH_KIND,
                    {"kind": "P", "metadata": {"name": "p"}},
                ]
            ),
            "passed over in k: a ClusterConfiguration, P p",
        ),
        (
            json.dumps(
                {
                    "kind": "ConfigMap",
                    "metadata": {"name": "c"},
                    "data": {"a": "x", "b": yaml.dump(WITH_KIND)},
                }
            ),
            "passed over in k: a of ConfigMap c",
        ),
        (
            json.dumps(
                machine_config(
                    [
                        {"path": "/etc/crio", "contents": data_url("[crio]", "base64")},
                        {"path": "/etc/far", "contents": {"source": "https://a.example/b"}},
                        ignition_file("/etc/k", json.dumps(WITH_KIND), "base64"),
                    ]
                )
            ),
            (
                "passed over in k: /etc/crio of MachineConfig 99-worker, /etc/far of "
                "MachineConfig 99-worker"
            ),
        ),
        (json.dumps({**WRAPPED["Talos"], "cluster": {}}), "passed over in k: 'cluster'"),
        (
            f"kubelet --system-reserved=cpu=${{CPU}},pid=9 {WORDS}",
            "passed over in k: cpu=${CPU} of --system-reserved",
        ),
        (
            f"kubelet --config=/etc/k.yaml {WORDS}",
            "passed over in k: /etc/k.yaml, which the flags name as the configuration file",
        ),
    ],
)
def test_what_is_passed_over_is_named_in_one_line(text, message):
    with pytest.warns(AlignupWarning) as caught:
        fields = without_kind(configuration_fields(text, "k"))

    fields.pop("systemReserved", None)
    assert fields == ALIGNED
    assert [str(warning.message) for warning in caught] == [message]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{}", "a mapping with nothing in it in k"),
        ("a: 1\nb: 2", "a mapping of 'a', 'b', none of which is a field of it in k"),
        (
            "topologyManagerPolcy: none",
            r"none of which is a field of it \(did you mean topologyManagerPolicy\?\) in k",
        ),
        ("kind: Pod\nmetadata: {name: p}", "got Pod p in k"),
        ("kind: EC2NodeClass\nspec: {amiFamily: AL2}", "got a EC2NodeClass in k"),
        ("kind: Foo\ncpuManagerPolicy: static", "got a Foo in k"),
        ("kubeletconfig: {}", "got a document in k"),
        ("[settings.kubernetes]\nmax-pods = ", "expected TOML in the text: .* in k"),
        ("[settings.kubernetes]\na = " + "[" * 9000, "expected TOML in the text: .* in k"),
        ("NAME READY\nx 0/1", "got something that is no mapping in k"),
        ("just --verbose words", "got the flags in k"),
        ("kubelet --config=/a.yaml", "got flags that name the configuration file /a.yaml in k"),
        ('{"kind":"KubeletConfiguration"', "expected YAML or JSON.* in k"),
        ("kind: A\nkind: B\nx: --cpu-manager-policy=static", "twice|duplicate|kind"),
        (
            "kubelet --reserved-memory=memory=1Gi",
            "--reserved-memory, got 'memory=1Gi'.* in k|reserved-memory",
        ),
        (
            "kubelet --max-pods=many",
            "of at most 2147483647, got 'many' at the kubelet's flag --max-pods in k",
        ),
        (
            f"kubelet --max-pods={'9' * 5_000}",
            "at most 2147483647, got '9999.*' at the kubelet's flag --max-pods in k",
        ),
        (
            f"kubelet --reserved-memory={'9' * 5_000}:memory=1Gi",
            "at most 2147483647, got '9999.*' at the kubelet's flag --reserved-memory in k",
        ),
        (
            json.dumps(machine_config([{"path": "/k", "contents": {"source": "data:;base64,*"}}])),
            "expected base64 in /k",
        ),
        (
            json.dumps(
                machine_config(
                    [{"path": "/k", "contents": {"source": "data:,plain", "compression": "gzip"}}]
                )
            ),
            "expected gzip data in /k of MachineConfig 99-worker: .* in k",
        ),
        (
            yaml.safe_dump_all([WRAPPED["KubeletConfig"], WITH_KIND]),
            (
                "expected one KubeletConfiguration, got a KubeletConfig, a KubeletConfiguration at "
                "2 in k; leave one"
            ),
        ),
    ],
)
def test_a_text_without_a_known_field_is_an_error(text, message):
    """Never the defaults."""
    with pytest.raises(InputError, match=message) as caught:
        configuration_fields(text, "k")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "document",
    [
        {
            "kind": "ConfigMap",
            "metadata": {"name": "c"},
            "data": {"a": "maxPods: 1", "b": "maxPods: 2"},
        },
        {
            "kind": "Cluster",
            "nodes": [{"kubeadmConfigPatches": [f"maxPods: {count}"]} for count in (1, 2)],
        },
        machine_config(
            [
                ignition_file("/a", "maxPods: 1", "percent"),
                ignition_file("/b", "maxPods: 2", "percent"),
            ]
        ),
    ],
)
def test_configurations_of_different_kubelets_are_not_mixed(document):
    """Equal ones are one."""
    with pytest.raises(
        InputError, match=r"expected one KubeletConfiguration, got .* of .*, .* of .* in k"
    ):
        configuration_fields(json.dumps(document), "k")
    equal = json.loads(
        json.dumps(document)
        .replace("maxPods: 2", "maxPods: 1")
        .replace("maxPods%3A%202", "maxPods%3A%201")
    )
    assert configuration_fields(json.dumps(equal), "k") == {"maxPods": 1}


def test_a_configuration_that_says_so_may_be_empty():
    assert configuration_fields("kind: KubeletConfiguration", "k") == {
        "kind": "KubeletConfiguration"
    }


def test_gzip_data_has_bounded_size():
    text = gzip.compress(bytes(9 << 20))
    source = f"data:;base64,{base64.b64encode(text).decode()}"
    document = machine_config(
        [{"path": "/k", "contents": {"source": source, "compression": "gzip"}}]
    )
    with pytest.raises(
        InputError, match="/k of MachineConfig 99-worker has more than 8388608 bytes"
    ):
        configuration_fields(json.dumps(document), "k")


def gzip_file(data):
    source = f"data:;base64,{base64.b64encode(data).decode()}"
    contents = {"source": source, "compression": "gzip"}
    return json.dumps(machine_config([{"path": "/k", "contents": contents}]))


def test_gzip_data_may_have_several_members():
    """Only the first was read."""
    first, second = (yaml.safe_dump(fields).encode() for fields in (WITH_KIND, {"maxPods": 7}))
    text = gzip_file(gzip.compress(first) + gzip.compress(second))
    assert configuration_fields(text, "k") == {**WITH_KIND, "maxPods": 7}


@pytest.mark.parametrize("seed", range(5))
def test_gzip_data_of_thousands_of_members_is_read(seed):
    """What was left was copied at each member; what is no member is refused."""
    random = Random(seed)
    fields = yaml.safe_dump({**WITH_KIND, "maxPods": seed}).encode()
    cuts = [0, *sorted(random.choices(range(len(fields)), k=3000)), len(fields)]
    data = b"".join(gzip.compress(fields[start:end]) for start, end in pairwise(cuts))
    assert configuration_fields(gzip_file(data), "k") == {**WITH_KIND, "maxPods": seed}
    with pytest.raises(InputError, match=r"expected gzip data in /k of .*: Not a gzipped file"):
        configuration_fields(gzip_file(data + b"more"), "k")


def test_gzip_data_that_is_cut_off_is_refused():
    """What was left of it counted as the whole."""
    whole = gzip.compress(yaml.safe_dump(WITH_KIND).encode())
    for length in range(1, len(whole)):
        with pytest.raises(InputError, match=r"whole gzip data in /k of .*, but it is cut"):
            configuration_fields(gzip_file(whole[:length]), "k")


@pytest.mark.parametrize("name", ["base64", "quoted-printable", "BASE64", "8bit", ""])
def test_parts_of_mime_are_decoded(name):
    text = "# \u00fc\n" + yaml.safe_dump(NODE_CONFIG)
    encode = {"base64": base64.encodebytes, "quoted-printable": quopri.encodestring}
    data = encode.get(name.lower(), bytes)(text.encode()).decode()
    encoding = f"Content-Transfer-Encoding: {name}\n" if name else ""
    user_data = (
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n--B\n"
        f"Content-Type: application/node.eks.aws\n{encoding}\n{data}\n--B--\n"
    )
    document = {"kind": "EC2NodeClass", "spec": {"userData": user_data}}
    assert configuration_fields(json.dumps(document), "k") == ALIGNED


def test_parts_of_mime_are_of_bounded_number():
    """A few megabytes of empty ones took half a minute."""
    text = (
        "MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=B\n\n" + "--B\n\nx\n" * 10_001
    )
    document = {"kind": "EC2NodeClass", "spec": {"userData": text}}
    with pytest.raises(InputError, match="user data of MIME has more than 10000 lines that part"):
        configuration_fields(json.dumps(document), "k")


@pytest.mark.parametrize("value", ["true", 1, {}, []])
def test_a_switch_is_true_or_false(value):
    """Whatever else it was, it counted as off."""
    spec = {"kubeletConfig": ALIGNED, "autoSizingReserved": value}
    document = {"kind": "KubeletConfig", "metadata": {"name": "x"}, "spec": spec}
    message = "expected true or false, got .* at the switch of KubeletConfig x"
    with pytest.raises(InputError, match=message):
        configuration_fields(json.dumps(document), "k")


def test_that_thousands_of_documents_differ_is_told_at_once():
    """Each was compared with all others."""
    compared = []

    class Part(dict):
        def __ne__(self, other):
            compared.append(other)
            return super().__ne__(other)

    for names in (str, lambda _: "all"):
        compared.clear()
        parts = [(names(number), Part(maxPods=number)) for number in range(3000)]
        assert _different(parts) == min(2, len({name for name, _ in parts}))
        assert len(compared) <= 1


def test_texts_within_texts_end():
    text = yaml.safe_dump(WITH_KIND)
    for _ in range(9):
        text = yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": "c"}, "data": {"a": text}})
    with pytest.raises(InputError, match=r"got a of a of a of .*ConfigMap c"):
        configuration_fields(text, "k")


@given(
    st.sampled_from(
        [
            "",
            *(document["kind"] for document in WRAPPED.values() if "kind" in document),
            "PerformanceProfile",
        ]
    ),
    st.dictionaries(
        st.sampled_from(["spec", "data", "machine", "items", "kubelet-arg", "nodes", "metadata"]),
        JSON,
    ),
)
def test_odd_documents_are_fields_or_one_line(kind, document):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AlignupWarning)
        with suppress(InputError):
            configuration_fields(json.dumps({"kind": kind, **document}), "k")


@pytest.mark.parametrize(
    ("name", "policy"),
    [
        ("configz.json", "single-numa-node"),
        ("empty-kind.yaml", "single-numa-node"),
        ("karpenter.yaml", "single-numa-node"),
        ("kubeadm.yaml", "single-numa-node"),
        ("kubelet-config-configmap.yaml", "single-numa-node"),
        ("kubelet-flags.conf", "single-numa-node"),
        ("kubelet-real.yaml", "restricted"),
        ("kubeletconfig-crd.yaml", "single-numa-node"),
        ("machineconfig.yaml", "single-numa-node"),
        ("performanceprofile.yaml", "single-numa-node"),
        ("rke2.yaml", "single-numa-node"),
        ("talos.yaml", "none"),
    ],
)
@pytest.mark.filterwarnings("ignore:passed over:alignup.errors.AlignupWarning")
@pytest.mark.filterwarnings("ignore:.*reserv:alignup.errors.AlignupWarning")
def test_the_reports_files(name, policy):
    """Static CPUs are in all of them."""
    config = load_config((FORMATS / name).read_bytes(), name)
    assert (config.cpu_manager_policy, config.topology_manager_policy) == ("static", policy)


@pytest.mark.parametrize(
    ("flag", "row"),
    [(flag, row) for flag, row in read_table("kubelet_flags").items() if "field" in row],
)
def test_every_flag_of_the_table_sets_a_field_that_a_kubelet_has(flag, row):
    fields = read_flags([f"--{flag}={VALUES[row['form']]}"]).fields

    assert fields.keys() == {row["field"]} <= known_names("KubeletConfiguration")
    assert all(fields.values())


@pytest.mark.parametrize(
    ("document", "platform"),
    [
        ("KubeletConfig", "OpenShift"),
        ("NodeConfig, flags", "EKS"),
        ("EC2NodeClass, a script", "EKS"),
        ("Bottlerocket's user data", "EKS"),
        ("Talos", "Talos"),
        ("GKE, nested", "GKE"),
        ("AKS, what az takes", "AKS"),
        ("Gardener, a worker", "Gardener"),
        ("k0s", ""),
        ("kind", ""),
        ("configz", ""),
        ("RKE2", ""),
        ("with its kind", ""),
    ],
)
def test_whose_part_of_a_configuration_it_is(document, platform):
    assert read_configuration(json.dumps(WRAPPED[document]), "k").platform == platform


@pytest.mark.parametrize(
    ("is_on", "platform"), [(True, "OpenShift with autoSizingReserved"), (False, "OpenShift")]
)
def test_openshift_may_size_the_reservation(is_on, platform):
    spec = {"kubeletConfig": ALIGNED, "autoSizingReserved": is_on}
    text = json.dumps({"kind": "KubeletConfig", "spec": spec})
    assert read_configuration(text, "k").platform == platform


@pytest.mark.parametrize(
    ("pool", "platform"),
    [
        ({"kubeletConfig": ALIGNED, "kubeletDiskType": "OS"}, "AKS"),
        ({"config": {"kubeletConfig": ALIGNED}, "initialNodeCount": 3}, "GKE"),
    ],
)
def test_lists_of_node_pools_are_read(pool, platform):
    """Equal ones are one."""
    configuration = read_configuration(json.dumps([pool, pool]), "k")
    assert (configuration.fields, configuration.platform) == (ALIGNED, platform)


def test_names_of_flags_may_be_anything():
    arguments = [{"name": [], "value": "x"}, *flags_without_hyphens()]
    document = {"kind": "JoinConfiguration", "nodeRegistration": {"kubeletExtraArgs": arguments}}
    assert configuration_fields(json.dumps(document), "k") == ALIGNED


def test_az_prints_a_node_pool_of_aks_and_not_of_gke():
    document = {"kubeletConfig": ALIGNED, "kubeletDiskType": "OS", "count": 3}
    with pytest.warns(AlignupWarning, match="passed over in k: 'count'$"):
        assert read_configuration(json.dumps(document), "k").platform == "AKS"


def test_an_object_of_a_platform_has_no_key_that_may_decide_unread():
    """A KubeletConfiguration may: a kubelet ignores such a key."""
    fields = {**ALIGNED, "topologyManagerPolcy": "none"}
    assert configuration_fields(json.dumps(fields), "k") == fields
    with pytest.raises(InputError, match=r"may decide.* in k"):
        configuration_fields(json.dumps({"kubeletConfig": fields}), "k")


PLACES = [
    (kind, path)
    for places_by_kind in read_table("configuration_wrappers").values()
    for kind, paths in places_by_kind.items()
    for path in paths
    if kind != "KubeletConfiguration"
]


@pytest.mark.parametrize(("kind", "path"), PLACES)
def test_every_place_of_the_table_is_read_in_a_way_that_there_is(kind, path):
    """Where a number lies at the place, nothing is found."""
    document = {}
    if not kind.startswith("."):
        document["kind"] = kind

    if path:
        value = 3
        for step in reversed(path.split(".")):
            value = [value] if step in {"*", "+"} else {step: value}
        document |= value
    else:
        document["spec"] = 3

    with pytest.raises(InputError, match=r"^expected"):
        configuration_fields(json.dumps(document), "f")


@pytest.mark.parametrize("name", ["kubeReserved", "systemReserved", "evictionHard"])
@pytest.mark.parametrize("write", ["kind: KubeletConfiguration\n{}", "kubeletconfig:\n  {}"])
def test_a_number_where_a_kubelet_takes_a_text_is_refused(name, write):
    text = write.format(f"{name}: {{memory.available: 1}}")
    message = f'expected a string such as "1", got 1 at {name}["memory.available"] in k'
    with pytest.raises(InputError, match=re.escape(message)):
        read_configuration(text, "k")


def test_a_flag_without_its_value_is_refused():
    message = "expected a value behind the kubelet's flag --cpu-manager-policy, got nothing in k"
    with pytest.raises(InputError, match=message):
        read_configuration("--reserved-cpus=0 --cpu-manager-policy", "k")


def test_separators_of_documents_are_no_flags():
    with pytest.raises(InputError, match="got nothing in k"):
        read_configuration("---\n---\n", "k")


def test_user_data_may_be_the_whole_text():
    text = user_data("#cloud-config\nkubelet-arg: [max-pods=9]\n")
    assert read_configuration(text, "k").fields == {"maxPods": 9}
    assert read_configuration(text.encode(), "k").fields == {"maxPods": 9}


def test_why_a_configuration_within_a_document_cannot_be_read_is_said():
    text = '{"kind": "KubeletConfiguration", "maxPods": 9'
    document = json.dumps({"kind": "ConfigMap", "data": {"kubelet": text}})
    with pytest.raises(
        InputError, match=r"got kubelet of a ConfigMap \(expected YAML or JSON, but"
    ):
        read_configuration(document, "k")


def test_thresholds_of_a_flag_stand_without_the_defaults():
    flags = read_flags(["--eviction-hard=pid.available<5%"])
    file = {"evictionHard": {}, "mergeDefaultEvictionSettings": True}
    assert flags.over(file) == {"evictionHard": {"pid.available": "5%"}}
