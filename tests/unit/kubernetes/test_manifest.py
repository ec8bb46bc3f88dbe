"""Behaviour of `alignup.kubernetes.manifest`."""

from __future__ import annotations

import copy
import json
import pickle
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.kubernetes.manifest import read_pod
from alignup.kubernetes.pod import Container, Pod, QOSClass
from alignup.kubernetes.pod_documents import read_pod_documents

PLAIN = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "web", "labels": {"a": "b"}, "annotations": {"note": "x"}},
    "spec": {
        "nodeName": "n",
        "overhead": {"cpu": "1"},
        "containers": [
            {
                "name": "app",
                "image": "app:1",
                "resources": {
                    "limits": {"cpu": 2, "memory": "1Gi", "example.com/nic": "1"},
                    "claims": [],
                },
            },
            {"name": "log", "resources": {"limits": {"cpu": "500m", "memory": "1M"}}},
        ],
    },
}

YAML = """\
apiVersion: v1
kind: Pod
metadata: {name: a, uid: u-1, namespace: prod}
spec:
  containers:
  - name: app
---
# nothing here
---
kind: List
items:
- kind: Pod
  metadata: {name: b}
  spec: {containers: [{name: app}]}
- metadata: {name: c}
  spec: {containers: [{name: app, resources: }]}
"""

LIMITS = ["spec", "containers", 1, "resources"]
AT = "spec.containers[1].resources"
QUANTITY = "a quantity such as 2, 500m or 4Gi"
PAGES = "a whole number of pages of the size in the resource's name"

JUNK = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just({}),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(st.text(max_size=3) | st.integers(), inner, max_size=2)
    ),
    max_leaves=5,
)


def pods_in(text, source):
    """The pods in a text."""
    return [document.pod for document in read_pod_documents(text, source)]


def changed(path, value):
    """PLAIN with one thing changed; a value of KeyError removes it."""
    manifest = copy.deepcopy(PLAIN)
    *parents, last = path
    parent = manifest
    for step in parents:
        parent = parent[step]
    if value is KeyError:
        del parent[last]
    else:
        parent[last] = value
    return manifest


def test_a_pod_is_what_its_manifest_says():
    pod = read_pod(PLAIN)
    assert pod == Pod(
        uid="default/web",
        name="web",
        containers=(
            Container(
                name="app",
                requests={"cpu": 2000, "memory": 2**30, "example.com/nic": 1},
                limits={"cpu": 2000, "memory": 2**30, "example.com/nic": 1},
                exclusive_cpus=2,
                memory=(("memory", 2**30),),
                devices=(("example.com/nic", 1),),
            ),
            Container(
                name="log",
                requests={"cpu": 500, "memory": 10**6},
                limits={"cpu": 500, "memory": 10**6},
                memory=(("memory", 10**6),),
            ),
        ),
        qos=QOSClass.GUARANTEED,
        annotations={"note": "x"},
        exclusive_cpus=2,
        memory=(("memory", 2**30 + 10**6),),
        devices=(("example.com/nic", 1),),
    )

    assert read_pod(PLAIN) == pod


def test_every_form_of_text_gives_the_same_pod():
    pod = read_pod(PLAIN)
    text = json.dumps(PLAIN)
    for form in (text, text.encode(), "---\n" + text):
        assert pods_in(form, "t") == [pod]

    assert pods_in(json.dumps({"kind": "List", "items": [PLAIN, PLAIN]}), "t") == [pod, pod]


def test_several_documents_and_lists_are_read_in_order():
    pods = pods_in(YAML, "pods.yaml")
    assert [pod.uid for pod in pods] == ["u-1", "default/b", "default/c"]
    assert pods[0].namespace == "prod"
    assert all(pod.qos is QOSClass.BEST_EFFORT for pod in pods)


def test_the_order_of_resources_changes_nothing():
    """Equal input, equal output, however a mapping happens to be ordered."""
    limits = {"memory": "1Gi", "b.com/x": "1", "cpu": "2", "a.com/x": "1", "hugepages-2Mi": "4Mi"}
    pods = [
        read_pod(changed(["spec", "containers", 0, "resources"], {"limits": dict(items)}))
        for items in (limits.items(), reversed(limits.items()))
    ]
    assert pods[0] == pods[1]
    assert pods[0].devices == (("a.com/x", 1), ("b.com/x", 1))


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["kind"], "Service", "expected Pod, got 'Service' at kind"),
        (["kind"], "Job", "expected Pod, got 'Job' at kind; its pod is at spec.template"),
        (["apiVersion"], "apps/v1", "expected v1, got 'apps/v1' at apiVersion"),
        (["metadata"], KeyError, "expected a name, got None at metadata.name"),
        (["metadata", "name"], "", "expected a name, got '' at metadata.name"),
        (["metadata", "name"], 5, "expected a string, got 5 at metadata.name"),
        (
            ["metadata", "annotations", "n"],
            True,
            'expected a string, got True at metadata.annotations["n"]',
        ),
        (["spec"], KeyError, "expected at least one container, got None at spec.containers"),
        (["spec", "containers"], [], "expected at least one container, got [] at spec.containers"),
        (["spec", "containers"], {}, "expected a list, got {} at spec.containers"),
        (["spec", "containers", 1], "app", "expected a mapping, got 'app' at spec.containers[1]"),
        (
            ["spec", "containers", 1, "name"],
            KeyError,
            "expected a name, got None at spec.containers[1].name",
        ),
        (
            ["spec", "containers", 1, "name"],
            "app",
            (
                "expected a name that no other container of the pod has, got 'app' at "
                "spec.containers[1].name"
            ),
        ),
        (
            ["spec", "initContainers"],
            [{"name": "log"}],
            (
                "expected a name that no other container of the pod has, got 'log' at "
                "spec.containers[1].name"
            ),
        ),
        (LIMITS, ["cpu"], f"expected a mapping, got ['cpu'] at {AT}"),
        (
            [*LIMITS, "limits", "cpu"],
            "two",
            f"expected {QUANTITY}, got 'two' at {AT}.limits[\"cpu\"]",
        ),
        ([*LIMITS, "limits", 7], "1", f"expected a string as key, got 7 at {AT}.limits"),
        (
            [*LIMITS, "limits", "cpu"],
            "-1",
            f"expected a quantity that is not negative, got '-1' at {AT}.limits[\"cpu\"]",
        ),
        (
            [*LIMITS, "requests"],
            {"memory": -5},
            f'expected a quantity that is not negative, got -5 at {AT}.requests["memory"]',
        ),
        (
            [*LIMITS, "requests"],
            {"cpu": "501m"},
            f"expected at most the limit, '500m', got '501m' at {AT}.requests[\"cpu\"]",
        ),
        (
            [*LIMITS, "requests"],
            {"a.com/x": 1},
            (
                "expected a limit of as much, got 1 at "
                'spec.containers[1].resources.requests["a.com/x"]'
            ),
        ),
        (
            LIMITS,
            {"requests": {"a.com/x": "1"}, "limits": {"a.com/x": "2"}},
            f"expected as much as the limit, '2', got '1' at {AT}.requests[\"a.com/x\"]",
        ),
        (
            LIMITS,
            {"limits": {"a.com/x": "1.5"}},
            f"expected a whole number of devices, got '1.5' at {AT}.limits[\"a.com/x\"]",
        ),
        (
            LIMITS,
            {"limits": {"cpu": 1, "hugepages-2Mi": "3Mi"}},
            f"expected {PAGES}, got '3Mi' at {AT}.limits[\"hugepages-2Mi\"]",
        ),
        (
            LIMITS,
            {"limits": {"cpu": 1, "hugepages-x": "3Mi"}},
            f"expected {QUANTITY}, got 'x' at {AT}.limits[\"hugepages-x\"]",
        ),
        (
            LIMITS,
            {"limits": {"hugepages-2Mi": "4Mi"}},
            f"expected cpu or memory next to hugepages, got ['hugepages-2Mi'] at {AT}",
        ),
        (
            ["spec", "resources"],
            {"limits": {"cpu": []}},
            'expected a quantity such as 2, 500m or 4Gi, got [] at spec.resources.limits["cpu"]',
        ),
    ],
)
def test_what_the_api_server_would_refuse_is_one_line_with_a_place(path, value, message):
    manifest = changed(path, value)
    with pytest.raises(InputError) as caught:
        read_pod(manifest)
    assert str(caught.value) == message


@pytest.mark.parametrize("manifest", [None, [], 3])
def test_only_a_mapping_is_a_manifest(manifest):
    with pytest.raises(InputError, match=r"^expected a mapping, got .* at the top$"):
        read_pod(manifest)


def test_a_text_is_no_manifest_and_who_reads_texts_is_named():
    expected = r"^expected a mapping \(read_pods reads files and texts\), got 'web' at the top$"
    with pytest.raises(InputError, match=expected):
        read_pod("web")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "there is no Pod in pods.yaml"),
        ("---\n---\n", "there is no Pod in pods.yaml"),
        ("kind: List\nitems: []", "there is no Pod in pods.yaml"),
        ("- a", "expected a Pod manifest, which is a mapping, got ['a'] at the top in pods.yaml"),
        (
            "just words",
            "expected a Pod manifest, which is a mapping, got 'just words' at the top in pods.yaml",
        ),
        ("kind: List\nitems:", "expected a list of Pods, got None at items in pods.yaml"),
        (
            "kind: Deployment",
            "expected a Pod template, got None at spec.template of kind Deployment in pods.yaml",
        ),
        ("kind: [x]", "expected a string, got ['x'] at kind in pods.yaml"),
        (
            "a: {",
            (
                "expected YAML or JSON, but did not find expected node content at line 2, column 1 "
                "of pods.yaml"
            ),
        ),
        (
            YAML + "- {metadata: {name: d}, spec: {containers: [{name: 3}]}}",
            (
                "expected a string, got 3 at items[2].spec.containers[0].name in document 3 of "
                "pods.yaml"
            ),
        ),
        (
            YAML + "- {metadata: {name: d}, spec: {containers: [{}]}}",
            (
                "expected a name, got None at items[2].spec.containers[0].name in document 3 of "
                "pods.yaml"
            ),
        ),
    ],
)
def test_errors_in_text_name_the_document(text, message):
    with pytest.raises(InputError) as caught:
        pods_in(text, "pods.yaml")
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("kind", "place"), [("Job", "spec.template"), ("CronJob", "spec.jobTemplate.spec.template")]
)
def test_who_gives_what_makes_pods_for_a_pod_is_told_where_that_is(kind, place):
    with pytest.raises(
        InputError, match=f"expected Pod, got '{kind}' at kind; its pod is at {place}$"
    ):
        read_pod({"kind": kind})


def places(value, way=()):
    """Every place in a tree of plain objects."""
    yield way

    items = ()
    if isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)

    for key, item in items:
        yield from places(item, (*way, key))


@given(st.sampled_from(sorted(places(PLAIN), key=repr)), JUNK)
def test_junk_anywhere_gives_a_pod_or_one_line(way, junk):
    """No value at any place ends in another error than ours, nor in more than a line."""
    manifest = junk
    if way:
        manifest = changed(way, junk)

    message = complaint(manifest)
    assert message is None or (
        message.startswith("expected ") and "\n" not in message and len(message) < 400
    )


def test_names_of_any_length_stay_out_of_the_message():
    message = complaint(changed([*LIMITS, "limits", "x\n" * 10**6], "two"))
    assert len(message) < 600
    assert "\n" not in message


def complaint(manifest):
    """The message with which a manifest is refused; None if it is not."""
    try:
        read_pod(manifest)
    except InputError as error:
        return str(error)
    return None


def test_one_pod_is_read_in_few_steps():
    """An agent hands manifests to admit.

    The bound on calls is about twice what reading one takes.
    """
    manifest = {"metadata": {"name": "p"}, "spec": {"containers": PLAIN["spec"]["containers"][:1]}}
    read_pod(manifest)
    events = []
    sys.setprofile(lambda _frame, event, _argument: events.append(event))
    try:
        read_pod(manifest)
    finally:
        sys.setprofile(None)

    assert events.count("call") < 100


def test_errors_can_be_made_anew_with_more_in_front():
    """As readers of many pods do, who know the line; errors also go from process to process."""
    with pytest.raises(InputError) as caught:
        read_pod({"kind": "Job"})
    error = caught.value

    assert str(type(error)(f"line 3: {error}")) == f"line 3: {error}"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)  # noqa: S301  # our own


def test_pods_can_be_members_of_sets():
    """Equal pods have one hash, whatever mappings they carry."""
    manifest = {
        "metadata": {"name": "p", "annotations": {"a": "b"}},
        "spec": {
            "containers": [{"name": "c", "resources": {"limits": {"cpu": "2", "memory": "1Gi"}}}]
        },
    }
    assert len({read_pod(manifest), read_pod(manifest)}) == 1
