"""Paths name the object that is meant, and no other."""

from __future__ import annotations

from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from yarl import URL

from alignup.control_plane.api_server.api_client import NODES, ApiError, object_path, pod_path

NAMES = st.text(min_size=1).filter(lambda name: name not in {".", ".."})


@given(NAMES, NAMES)
def test_a_server_finds_the_names_in_the_path(namespace, name) -> None:
    url = URL("http://server" + pod_path(namespace, name, "status"))
    *before, first, pods, second, last = url.raw_path.split("/")
    assert (before, pods, last) == (["", "api", "v1", "namespaces"], "pods", "status")
    assert (unquote(first), unquote(second)) == (namespace, name)
    assert not url.query_string


def test_usual_names_stay_as_they_are() -> None:
    assert object_path(NODES, "gpu-7.example.com") == "/api/v1/nodes/gpu-7.example.com"
    assert pod_path("default", "p-0") == "/api/v1/namespaces/default/pods/p-0"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_what_would_mean_another_object_is_refused(name) -> None:
    """The path of a pod without a name is that of all pods, and they can be deleted at once."""
    for call in (lambda: object_path(NODES, name), lambda: pod_path("d", name), lambda: pod_path(name, "p")):
        with pytest.raises(ApiError, match="cannot be the name of an object") as caught:
            call()
        assert caught.value.status == 400
