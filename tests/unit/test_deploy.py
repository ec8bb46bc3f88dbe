"""What is to be deployed fits the program.

Manifests, container file and unit, options, paths, and rights.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shutil
import ssl
import subprocess
from contextlib import suppress
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from alignup.cli.program import program
from alignup.control_plane.api_server.api_client import TOPOLOGIES
from alignup.control_plane.api_server.leader import LEADER
from alignup.control_plane.gates.placeholders import NAMESPACE
from alignup.control_plane.process import GRACE
from alignup.control_plane.serving import tls_context
from alignup.kubernetes.groups import GROUP_OBJECTS
from alignup.text.documents import read_documents
from alignup.version import VERSION

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
MANIFESTS = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())["resources"]

UNIT = DEPLOY / "alignup-agent.service"


def documents(name: str) -> list[dict[str, Any]]:
    return list(read_documents((DEPLOY / name).read_bytes(), name))


ALL = [document for name in MANIFESTS for document in documents(name)]
OPTIONAL = [*documents("gates-evict-rbac.yaml"), *documents("gates-placeholders-rbac.yaml")]


def of_kind(*kinds: str) -> list[dict[str, Any]]:
    return [document for document in ALL if document["kind"] in kinds]


WORKLOADS = of_kind("Deployment", "DaemonSet")
CONTAINERS = [
    container
    for workload in WORKLOADS
    for container in workload["spec"]["template"]["spec"]["containers"]
]


def test_every_manifest_is_in_the_kustomization() -> None:
    others = {
        "alerts.yaml",
        "certificates.yaml",
        "gates-evict-rbac.yaml",
        "gates-placeholders-rbac.yaml",
        "krew.yaml",
        "kustomization.yaml",
        "monitors.yaml",
    }
    others |= {"scheduler-configuration.yaml", "Chart.yaml", "values.yaml"}
    assert {path.name for path in DEPLOY.glob("*.yaml")} - others == set(MANIFESTS)


def rendered(*options: str) -> list[dict[str, Any]]:
    """Return the objects of the chart; skip where there is no helm."""
    helm = shutil.which("helm")
    if helm is None:
        pytest.skip("helm renders the chart")
    command = [helm, "template", "alignup", str(DEPLOY), "--kube-version", "1.36.0", *options]
    # a known program
    done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603
    return [document for document in yaml.safe_load_all(done.stdout) if document]


def named(objects: list[dict[str, Any]]) -> dict[tuple[str, ...], dict[str, Any]]:
    return {
        (
            document["kind"],
            document["metadata"].get("namespace", ""),
            document["metadata"]["name"],
        ): document
        for document in objects
    }


def test_the_chart_is_of_this_version_and_its_values_name_all_workloads() -> None:
    chart, values = (
        yaml.safe_load((DEPLOY / name).read_text()) for name in ("Chart.yaml", "values.yaml")
    )
    assert (chart["version"], chart["appVersion"]) == (VERSION, VERSION)
    assert {workload["metadata"]["name"].removeprefix("alignup-") for workload in WORKLOADS} <= set(
        values
    )


def test_the_chart_has_the_objects_of_the_kustomization() -> None:
    expected = named(deepcopy(ALL))
    for document in expected.values():
        if document["kind"] in {"Deployment", "DaemonSet"}:
            for container in document["spec"]["template"]["spec"]["containers"]:
                container["image"] = f"alignup:{VERSION}"  # as `images` of the kustomization
    assert named(rendered()) == expected


def test_values_of_the_chart_are_followed() -> None:
    values = [
        "publish.enabled=false",
        "monitors.enabled=true",
        "extender.replicas=3",
        "image.repository=r/x",
    ]
    values += [
        "image.digest=sha256:0",
        "extender.args={--strategy=least-allocated}",
        "extender.resources.requests.cpu=2",
    ]
    objects = named(rendered(*(word for value in values for word in ("--set", value))))
    extender = objects["Deployment", "alignup", "alignup-extender"]["spec"]
    [container] = extender["template"]["spec"]["containers"]

    assert not any(kind == "DaemonSet" for kind, _, _ in objects)
    assert any(kind == "PodMonitor" for kind, _, _ in objects)
    assert (extender["replicas"], container["image"]) == (3, "r/x@sha256:0")
    assert container["args"][-1] == "--strategy=least-allocated"
    assert container["resources"] == {"requests": {"cpu": 2}}
    check_words(list(container["args"]), {variable["name"] for variable in container["env"]})


def test_evictions_and_placeholders_are_options_of_the_chart() -> None:
    values = ("--set", "gates.evict=true", "--set", "gates.placeholders=karpenter")
    before, objects = named(rendered()), named(rendered(*values))
    assert objects.keys() - before.keys() == named(OPTIONAL).keys()
    spec = objects["Deployment", "alignup", "alignup-gates"]["spec"]["template"]["spec"]
    assert {"--evict", "--placeholders=karpenter"} <= set(spec["containers"][0]["args"])


def test_optional_rights_are_those_of_an_account() -> None:
    accounts = [account["metadata"] for account in of_kind("ServiceAccount")]
    names = {document["metadata"]["name"] for document in OPTIONAL if "rules" in document}
    bindings = [document for document in OPTIONAL if "roleRef" in document]
    assert {binding["roleRef"]["name"] for binding in bindings} == names
    for binding in bindings:
        (subject,) = binding["subjects"]
        assert {"name": subject["name"], "namespace": subject["namespace"]} in accounts


def test_placeholders_have_a_namespace_and_a_priority_of_their_own() -> None:
    by_kind = {document["kind"]: document for document in OPTIONAL}
    assert by_kind["Namespace"]["metadata"]["name"] == NAMESPACE
    assert by_kind["PriorityClass"]["metadata"]["name"] == NAMESPACE
    assert -10 <= by_kind["PriorityClass"]["value"] < 0
    assert by_kind["Role"]["metadata"]["namespace"] == NAMESPACE


def test_alerts_are_an_object_of_the_operator() -> None:
    objects = named(rendered("--set", "alerts.enabled=true"))
    (rules,) = documents("alerts.yaml")
    rendered_rules = objects["PrometheusRule", "alignup", "alignup"]
    assert rendered_rules["apiVersion"] == "monitoring.coreos.com/v1"
    assert rendered_rules["spec"] == rules


def test_the_schema_of_the_values_has_each_of_them_and_no_other() -> None:
    schema = json.loads((DEPLOY / "values.schema.json").read_text())
    values = yaml.safe_load((DEPLOY / "values.yaml").read_text())

    def resolved(part: dict[str, Any]) -> dict[str, Any]:
        name = part.get("$ref", "").removeprefix("#/definitions/")
        return schema["definitions"][name] if name else part

    assert schema["properties"].keys() - {"global"} == values.keys()
    kinds = {bool: "boolean", int: "integer", str: "string", list: "array", dict: "object"}
    for name, value in values.items():
        part = resolved(schema["properties"][name])
        assert part["additionalProperties"] is False
        assert part["properties"].keys() == value.keys(), name
        for key, default in value.items():
            allowed = resolved(part["properties"][key])["type"]
            assert kinds[type(default)] in ([allowed] if isinstance(allowed, str) else allowed)


@pytest.mark.parametrize("container", CONTAINERS, ids=lambda container: container["name"])
def test_the_commands_and_options_exist(container) -> None:
    """Each container's arguments are read by the program's own parser."""
    check_words(
        list(container["args"]), {variable["name"] for variable in container.get("env", ())}
    )


def check_words(arguments: list[str], variables: set[str]) -> None:
    """Read the words of a command line as the program does.

    `variables` are variables of its environment.
    """
    # the program's own names for help: click remembers those of a command's first context
    context = click.Context(program, info_name="alignup", help_option_names=["-h", "--help"])
    command: click.Command = program
    while isinstance(command, click.Group):
        subcommand = command.get_command(context, arguments[0])
        assert subcommand is not None, arguments[0]
        command, arguments = subcommand, arguments[1:]

    needed = [
        parameter
        for parameter in command.params
        if parameter.required and parameter.envvar not in variables
    ]
    prefilled = bool(set(command.params) - set(needed))
    command.make_context(command.name, arguments, parent=context, resilient_parsing=prefilled)
    options = {option for parameter in command.params for option in parameter.opts}
    assert [
        word
        for word in arguments
        if word.startswith("--") and word.partition("=")[0] not in options
    ] == []
    assert not [
        parameter.name
        for parameter in needed
        if not any(option in arguments for option in parameter.opts)
    ]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload["metadata"]["name"])
def test_selectors_accounts_and_volumes_fit_together(workload) -> None:
    template = workload["spec"]["template"]
    assert workload["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    accounts = {account["metadata"]["name"] for account in of_kind("ServiceAccount")}
    assert template["spec"]["serviceAccountName"] in accounts
    volumes = {volume["name"] for volume in template["spec"].get("volumes", ())}
    mounts = {
        mount["name"]
        for container in template["spec"]["containers"]
        for mount in container.get("volumeMounts", ())
    }
    assert mounts == volumes


def labels_of(workload: dict[str, Any]) -> dict[str, str]:
    labels: dict[str, str] = workload["spec"]["template"]["metadata"]["labels"]
    return labels


@pytest.mark.parametrize(
    "container",
    [container for container in CONTAINERS if "ports" in container],
    ids=lambda container: container["name"],
)
def test_what_serves_is_probed_by_a_path_that_it_serves(container) -> None:
    """A process that starts is given longer than the cluster takes to be listed.

    One that hangs is started again.
    """
    ports = {port["name"] for port in container["ports"]}
    probes = [container[f"{kind}Probe"] for kind in ("startup", "readiness", "liveness")]
    (scheme,) = (name.upper() for name in ports)
    has_certificate = any(word.startswith("--tls-cert") for word in container["args"])
    assert scheme == ("HTTPS" if has_certificate else "HTTP")
    assert {(probe["httpGet"]["path"], probe["httpGet"]["scheme"]) for probe in probes} == {
        ("/healthz", scheme)
    }
    assert {probe["httpGet"]["port"] for probe in probes} <= ports
    startup, _, liveness = (
        probe["periodSeconds"] * probe.get("failureThreshold", 3) for probe in probes
    )
    assert startup >= 300 > liveness >= 60


def test_of_several_pods_one_stays_while_nodes_are_drained() -> None:
    several = [workload for workload in WORKLOADS if workload["spec"].get("replicas", 1) > 1]

    def key_of(document: dict[str, Any]) -> tuple[str, str]:
        return document["metadata"]["namespace"], document["metadata"]["name"]

    budgets = {key_of(budget): budget["spec"] for budget in of_kind("PodDisruptionBudget")}
    assert budgets.keys() == {key_of(workload) for workload in several}
    for workload in several:
        budget = budgets[key_of(workload)]
        assert budget["selector"]["matchLabels"] == labels_of(workload)
        assert 0 < budget["maxUnavailable"] < workload["spec"]["replicas"]


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload["metadata"]["name"])
def test_every_program_has_a_priority_requests_a_limit_and_a_policy_of_its_network(
    workload,
) -> None:
    spec = workload["spec"]["template"]["spec"]
    priority_classes = {
        priority_class["metadata"]["name"] for priority_class in of_kind("PriorityClass")
    }
    assert spec["priorityClassName"] in priority_classes | {
        "system-node-critical",
        "system-cluster-critical",
    }
    for container in spec["containers"]:
        least, most = (
            mebibytes(container["resources"][kind]["memory"]) for kind in ("requests", "limits")
        )
        assert 100 < least < most
        served = [port["name"] for port in container.get("ports", ())]
        policies = [
            policy["spec"]
            for policy in of_kind("NetworkPolicy")
            if policy["metadata"]["namespace"] == workload["metadata"]["namespace"]
        ]
        # one of them is about all pods of the namespace
        assert [policy["podSelector"] for policy in policies].count({}) == 1
        own_policies = [
            policy
            for policy in policies
            if policy["podSelector"] in ({}, {"matchLabels": labels_of(workload)})
        ]
        open_ports = {
            port["port"]
            for policy in own_policies
            for rule in policy.get("ingress", ())
            for port in rule["ports"]
        }
        # a name that no port of the pod has opens none
        assert open_ports & set(served) == set(served)
        assert open_ports <= {"https", *served}
        for policy in own_policies:
            assert policy["policyTypes"] == ["Ingress", "Egress"]
            assert policy["egress"] == [
                {"ports": [{"protocol": "TCP", "port": 443}, {"protocol": "TCP", "port": 6443}]}
            ]

    assert spec.get("terminationGracePeriodSeconds", 30) > GRACE


def mebibytes(text: str) -> int:
    return int(text[:-2]) * {"Mi": 1, "Gi": 1024}[text[-2:]]


def test_prometheus_finds_the_pods_and_their_port() -> None:
    monitors = {monitor["metadata"]["name"]: monitor for monitor in documents("monitors.yaml")}
    serving = {
        workload["metadata"]["name"]: workload
        for workload in WORKLOADS
        if any("ports" in part for part in workload["spec"]["template"]["spec"]["containers"])
    }
    assert monitors.keys() == serving.keys()
    for name, monitor in monitors.items():
        workload = serving[name]
        assert monitor["metadata"]["namespace"] == workload["metadata"]["namespace"]
        assert monitor["spec"]["selector"]["matchLabels"] == labels_of(workload)

        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        (container,) = workload["spec"]["template"]["spec"]["containers"]
        assert endpoint["port"] in {port["name"] for port in container["ports"]}
        assert (endpoint["scheme"], endpoint["path"]) == (endpoint["port"], "/metrics")
        assert (endpoint["scheme"] == "https") is ("tlsConfig" in endpoint)
        if "tlsConfig" in endpoint:
            (volume,) = workload["spec"]["template"]["spec"]["volumes"]
            assert endpoint["tlsConfig"]["ca"]["secret"]["name"] == volume["secret"]["secretName"]


def test_every_account_is_bound_to_its_role() -> None:
    accounts = {
        (account["metadata"]["name"], account["metadata"]["namespace"])
        for account in of_kind("ServiceAccount")
    }
    roles = {role["metadata"]["name"] for role in of_kind("ClusterRole")}
    roles |= {role["metadata"]["name"] for role in of_kind("Role")}
    for binding in of_kind("ClusterRoleBinding", "RoleBinding"):
        assert binding["roleRef"]["name"] in roles
        (subject,) = binding["subjects"]
        assert (subject["name"], subject["namespace"]) in accounts

    bound = {
        subject["name"]
        for binding in of_kind("ClusterRoleBinding")
        for subject in binding["subjects"]
    }
    assert bound == {account["metadata"]["name"] for account in of_kind("ServiceAccount")}


def rights(role: str, kind: str = "ClusterRole") -> set[tuple[str, str]]:
    role_object = next(
        document
        for document in (*ALL, *OPTIONAL)
        if document["kind"] == kind and document["metadata"]["name"] == role
    )
    return {
        (resource, verb)
        for rule in role_object["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_the_roles_have_the_rights_that_the_requests_need_and_no_others() -> None:
    topologies = TOPOLOGIES.rpartition("/")[2]
    follow = {"list", "watch"}
    claims = ("resourceslices", "deviceclasses", "resourceclaims")
    assert rights("alignup-extender") == {
        *((kind, verb) for kind in ("pods", "nodes", topologies, *claims) for verb in follow),
        ("pods", "get"),
        ("pods/binding", "create"),
        ("nodes", "patch"),
        ("poddisruptionbudgets", "list"),
        ("events", "create"),
    }
    followed = {"pods", "nodes", topologies, *claims}
    followed |= {path.rpartition("/")[2] for _, path in GROUP_OBJECTS.values()}
    assert rights("alignup-gates") == {
        *((kind, verb) for kind in followed for verb in follow),
        ("pods", "get"),
        ("pods", "patch"),
        ("nodes", "patch"),
        ("events", "create"),
    }
    assert rights("alignup-gates-evict") == {
        ("pods/eviction", "create"),
        ("poddisruptionbudgets", "list"),
    }
    assert rights("alignup-gates", "Role") == {
        ("leases", verb) for verb in ("get", "create", "update")
    }
    assert rights("alignup-reconcile") == {
        *(("pods", verb) for verb in (*follow, "delete")),
        ("events", "create"),
        (topologies, "get"),
    }

    asking = {
        *((kind, "list") for kind in ("pods", "nodes", topologies, "poddisruptionbudgets")),
        ("pods", "get"),
    }
    assert rights("alignup-asking") == asking
    assert rights("alignup-rebalance") == {*asking, ("pods/eviction", "create")}
    assert rights("alignup-extender", "Role") == {
        *(("leases", verb) for verb in ("get", "create", "update")),
        ("pods", "patch"),
    }
    assert rights("alignup-publish") == {
        *((topologies, verb) for verb in (*follow, "create", "patch")),
        *(("pods", verb) for verb in follow),
        ("events", "create"),
    }


def test_dashboard_and_alerts_ask_for_metrics_that_there_are() -> None:
    """By the names under which prometheus_client shows them."""
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    rules = yaml.safe_load((DEPLOY / "alerts.yaml").read_text())["groups"][0]["rules"]
    expressions = [target["expr"] for panel in panels for target in panel["targets"]] + [
        rule["expr"] for rule in rules
    ]
    names = {
        name
        for expression in expressions
        for name in re.findall(r"(?:alignup|kubelet)_[a-z_]+", expression)
    }
    sources = "".join(path.read_text() for path in (ROOT / "src" / "alignup").rglob("*.py"))
    for name in names:
        if name.startswith("alignup_gates_"):
            stem = name.removeprefix("alignup_gates_").removesuffix("_bucket")
            assert f'"{stem}"' in sources, name
            continue

        stem = re.sub(r"_(total|bucket)$", "", name)
        kinds = ("alignup_node_resource_", "kubelet_topology_manager_admission")
        assert stem in sources or any(
            stem.startswith(kind) and kind in sources for kind in kinds
        ), name

    assert len({panel["id"] for panel in panels}) == len(panels) > 5


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool plays the alerts")
def test_the_alerts_ring_when_they_should(tmp_path) -> None:
    shutil.copy(DEPLOY / "alerts.yaml", tmp_path)
    test = shutil.copy(ROOT / "tests" / "alerts_test.yaml", tmp_path)
    done = subprocess.run(  # noqa: S603
        ["promtool", "test", "rules", test],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool asks what the dashboard asks"
)
def test_the_latency_of_what_nobody_asks_has_no_line(tmp_path) -> None:
    """Not NaN, which `histogram_quantile` makes of a rate of zero."""
    panels = json.loads((DEPLOY / "grafana.json").read_text())["panels"]
    (query,) = [
        target["expr"]
        for panel in panels
        for target in panel["targets"]
        if "quantile" in target["expr"] and "alignup_extender_" in target["expr"]
    ]

    series = "alignup_extender_request_seconds_bucket"
    played = {
        "input_series": [
            {"series": f'{series}{{verb="filter",le="{le}"}}', "values": f"0+{count}x20"}
            for le, count in (("0.1", 0), ("0.5", 50), ("+Inf", 50))
        ]
        + [
            {"series": f'{series}{{verb="bind",le="{le}"}}', "values": "7x20"}
            for le in ("0.1", "+Inf")
        ],
        "promql_expr_test": [
            {
                "expr": query,
                "eval_time": "20m",
                "exp_samples": [{"labels": '{verb="filter"}', "value": 0.496}],
            }
        ],
    }

    test = tmp_path / "test.yaml"
    test.write_text(
        json.dumps({"evaluation_interval": "1m", "tests": [{"interval": "1m", **played}]})
    )
    done = subprocess.run(  # noqa: S603
        ["promtool", "test", "rules", test],  # noqa: S607
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_rbac_cannot_say_a_policy_does() -> None:
    """Each account is bound to a policy for each kind that it may write."""
    policies = {
        policy["metadata"]["name"]: policy["spec"]
        for policy in of_kind("ValidatingAdmissionPolicy")
    }
    bindings = of_kind("ValidatingAdmissionPolicyBinding")
    assert {binding["spec"]["policyName"] for binding in bindings} == policies.keys()
    assert all(binding["spec"]["validationActions"] == ["Deny"] for binding in bindings)
    assert {spec["failurePolicy"] for spec in policies.values()} == {"Fail"}

    operations = {"patch": "UPDATE", "update": "UPDATE", "create": "CREATE", "delete": "DELETE"}
    for account in of_kind("ServiceAccount"):
        name, namespace = account["metadata"]["name"], account["metadata"]["namespace"]
        judged = {
            (resource, operation)
            for policy in policies.values()
            if f"'system:serviceaccount:{namespace}:{name}'"
            in policy["matchConditions"][0]["expression"]
            for rule in policy["matchConstraints"]["resourceRules"]
            for resource in rule["resources"]
            for operation in rule["operations"]
        }
        written = rights(name)
        if name in {role["metadata"]["name"] for role in of_kind("Role")}:
            written |= rights(name, "Role")
        for role in OPTIONAL:
            if "rules" in role and role["metadata"]["name"].startswith(f"{name}-"):
                written |= rights(role["metadata"]["name"], role["kind"])
        assert {(kind, operations[verb]) for kind, verb in written if verb in operations} <= judged


def test_who_could_change_pods_cannot_where_the_publisher_runs() -> None:
    """Which is root on every node.

    Each program has its own namespace, and only the publisher's allows that.
    """
    levels = {
        namespace["metadata"]["name"]: namespace["metadata"]["labels"][
            "pod-security.kubernetes.io/enforce"
        ]
        for namespace in of_kind("Namespace")
    }
    assert [name for name, level in levels.items() if level != "restricted"] == ["alignup-publish"]
    assert {workload["metadata"]["namespace"] for workload in WORKLOADS} == levels.keys()


@pytest.mark.parametrize("workload", WORKLOADS, ids=lambda workload: workload["metadata"]["name"])
def test_every_pod_is_confined(workload) -> None:
    spec = workload["spec"]["template"]["spec"]
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    for container in spec["containers"]:
        context = container["securityContext"]
        assert context["readOnlyRootFilesystem"]
        assert not context["allowPrivilegeEscalation"]
        assert context["capabilities"]["drop"] == ["ALL"]
        assert all(mount["readOnly"] for mount in container.get("volumeMounts", ()))


def test_a_publisher_sees_neither_secrets_of_pods_nor_a_control_plane() -> None:
    (workload,) = of_kind("DaemonSet")
    spec = workload["spec"]["template"]["spec"]
    by_path = {mount["mountPath"]: mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    empty = {volume["name"] for volume in spec["volumes"] if "emptyDir" in volume}
    assert {by_path[f"/host/var/lib/kubelet/{name}"] for name in ("pods", "pki")} == empty
    assert "/host/etc/kubernetes" not in by_path
    terms = spec["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    expected = {"key": "node-role.kubernetes.io/control-plane", "operator": "DoesNotExist"}
    assert terms["nodeSelectorTerms"] == [{"matchExpressions": [expected]}]


def test_the_publishing_workflow_names_every_image_by_its_digest(tmp_path) -> None:
    for folder in ("deploy", ".ci"):
        shutil.copytree(ROOT / folder, tmp_path / folder)

    digest = "sha256:" + "0123456789abcdef" * 4
    pin = [tmp_path / ".ci" / "pin-images", "registry.example/alignup", digest]
    subprocess.run(pin, check=True)  # noqa: S603  # ours
    images = yaml.safe_load((tmp_path / "deploy" / "kustomization.yaml").read_text())["images"]
    assert images == [{"name": "alignup", "newName": "registry.example/alignup", "digest": digest}]
    values = yaml.safe_load((tmp_path / "deploy" / "values.yaml").read_text())["image"]
    assert values == {"repository": "registry.example/alignup", "tag": "", "digest": digest}
    assert {container["image"] for container in CONTAINERS} == {"alignup"}
    again = subprocess.run(pin, check=False, capture_output=True)  # noqa: S603  # no tag is left
    assert again.returncode != 0
    workflow = (ROOT / ".github" / "workflows" / "image.yml").read_text()
    assert ".ci/pin-images" in workflow


def test_the_publishing_workflow_names_every_archive_of_the_plugin_by_its_checksum(
    tmp_path,
) -> None:
    for folder in ("deploy", ".ci"):
        shutil.copytree(ROOT / folder, tmp_path / folder)

    address, tag = "https://forge.example/team/alignup", "v1.2.3"
    before = yaml.safe_load((DEPLOY / "krew.yaml").read_text())["spec"]
    assert before["version"] == f"v{VERSION}"
    archives = [tmp_path / platform["uri"].rpartition("/")[2] for platform in before["platforms"]]
    for archive in archives:
        archive.write_bytes(archive.name.encode())

    pin = [tmp_path / ".ci" / "pin-plugin", address, tag]
    incomplete = [*pin, archives[0]]
    refused = subprocess.run(incomplete, check=False, capture_output=True)  # noqa: S603  # not all
    assert refused.returncode != 0

    complete = [*pin, *archives]
    subprocess.run(complete, check=True)  # noqa: S603  # ours
    text = (tmp_path / "deploy" / "krew.yaml").read_text()
    pinned = yaml.safe_load(text)["spec"]
    assert (pinned["version"], pinned["homepage"]) == (tag, address)
    for platform, archive in zip(pinned["platforms"], archives, strict=True):
        assert platform["uri"] == f"{address}/releases/download/{tag}/{archive.name}"
        assert platform["sha256"] == hashlib.sha256(archive.name.encode()).hexdigest()
        assert platform["bin"] == "kubectl-alignup"

    assert "example.invalid" not in text
    again = subprocess.run(complete, check=False, capture_output=True)  # noqa: S603  # it is done
    assert again.returncode != 0
    workflow = (ROOT / ".github" / "workflows" / "image.yml").read_text()
    assert ".ci/pin-plugin" in workflow
    arches = [platform["selector"]["matchLabels"]["arch"] for platform in before["platforms"]]
    built = yaml.safe_load(workflow)["jobs"]["plugin"]["strategy"]["matrix"]["include"]
    assert arches == [build["arch"] for build in built]


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificates")
def test_the_certificates_of_the_script_are_what_the_manifests_want(tmp_path) -> None:
    script = DEPLOY / "certificates"
    done = subprocess.run([script], check=True, capture_output=True)  # noqa: S603  # ours
    secrets = {
        document["metadata"]["name"]: document["data"]
        for document in read_documents(done.stdout, "certificates")
        if document
    }
    extender = next(
        workload for workload in WORKLOADS if workload["metadata"]["name"] == "alignup-extender"
    )
    (volume,) = extender["spec"]["template"]["spec"]["volumes"]
    assert secrets.keys() == {volume["secret"]["secretName"], "alignup-scheduler-tls"}
    for name, files in secrets.items():
        for file, data in files.items():
            (tmp_path / f"{name}.{file}").write_bytes(base64.b64decode(data))

    context = tls_context(
        *(
            str(tmp_path / f"alignup-extender-tls.{file}")
            for file in ("tls.crt", "tls.key", "ca.crt")
        )
    )
    client = ssl.create_default_context(cafile=str(tmp_path / "alignup-scheduler-tls.ca.crt"))
    client.load_cert_chain(
        *(tmp_path / f"alignup-scheduler-tls.{file}" for file in ("tls.crt", "tls.key"))
    )
    sides = [(ssl.MemoryBIO(), ssl.MemoryBIO())] * 2
    to_server, to_client = sides[0]
    ends = [
        client.wrap_bio(to_client, to_server, server_hostname="alignup-extender.alignup.svc"),
        context.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(6):
        for end in ends:
            with suppress(ssl.SSLWantReadError):
                end.do_handshake()

    assert ends[1].getpeercert()["subject"] == ((("commonName", "kube-scheduler"),),)


def test_the_scheduler_asks_where_the_extender_answers() -> None:
    (configuration,) = documents("scheduler-configuration.yaml")
    (extender,) = configuration["extenders"]

    service = next(iter(of_kind("Service")))
    name, namespace = service["metadata"]["name"], service["metadata"]["namespace"]
    assert extender["urlPrefix"] == f"https://{name}.{namespace}.svc"
    assert extender["enableHTTPS"]

    tls = extender["tlsConfig"]
    assert tls.keys() == {"caFile", "certFile", "keyFile", "serverName"}
    assert (
        tls["serverName"] == f"{name}.{namespace}.svc"
    )  # of the certificate, also where an address is asked
    assert {extender[f"{verb}Verb"] for verb in ("filter", "prioritize", "preempt", "bind")} == {
        "filter",
        "prioritize",
        "preempt",
        "bind",
    }

    workload = next(workload for workload in WORKLOADS if workload["metadata"]["name"] == name)
    labels = workload["spec"]["template"]["metadata"]["labels"]
    assert {**labels, LEADER: "true"} == service["spec"]["selector"]
    assert LEADER not in labels  # the one that leads puts it there
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    (port,) = container["ports"]
    assert f"--listen=0.0.0.0:{port['containerPort']}" in container["args"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]


def test_the_container_file_copies_what_the_build_needs() -> None:
    text = (DEPLOY / "Containerfile").read_text()
    copied = [
        word
        for line in re.findall(r"^COPY (?!--from)(.+)$", text, re.MULTILINE)
        for word in line.split()[:-1]
    ]
    assert [word for word in copied if not (ROOT / word).exists()] == []
    assert {"pyproject.toml", "setup.py", "README.md", "LICENSE", "cython", "src"} <= set(copied)
    assert 'ENTRYPOINT ["alignup"]' in text
    assert re.search(r"^USER \d+$", text, re.MULTILINE)


def test_the_unit_fits_the_program() -> None:
    settings = dict(re.findall(r"^(\w+)=(.*)$", UNIT.read_text(), re.MULTILINE))
    _, alignup, *arguments, more = settings["ExecStart"].split()
    assert (alignup, more) == ("alignup", "$ALIGNUP_AGENT_OPTIONS")
    check_words(arguments, set())
    value = dict(pairwise(arguments))
    assert value["--socket"] == f"/run/{settings['RuntimeDirectory']}/agent.sock"
    assert str(Path(value["--state"]).parent) == f"/var/lib/{settings['StateDirectory']}"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
@pytest.mark.parametrize(
    "arguments",
    [("verify",), ("security", "--offline=true", "--threshold=25")],
    ids=lambda arguments: arguments[0],
)
def test_systemd_finds_nothing_in_the_unit(arguments) -> None:
    """Neither what it does not know, nor an exposure above 2.5 of 10."""
    done = subprocess.run(  # noqa: S603  # ours
        ["systemd-analyze", *arguments, UNIT],  # noqa: S607  # wherever it is
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stdout[-2000:]
