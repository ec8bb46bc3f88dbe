"""Documents are read as JSON where they are, else as YAML."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alignup.errors import InputError
from alignup.text.documents import TEXT_LIMIT, read_documents
from checks.memory_use import at_most

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**9), 10**9)
    | st.text(st.characters(categories=["L", "N"])),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text("abc", min_size=1), inner, max_size=4)
    ),
    max_leaves=20,
)


@given(st.dictionaries(st.text("abc", min_size=1), PLAIN))
def test_json_reads_alike_as_json_and_as_yaml(value):
    """JSON is YAML: the quick way for the one and the long way for the other give the same."""
    text = json.dumps(value, ensure_ascii=False)
    assert read_documents(text, "t") == [value]
    assert read_documents(f"---\n{text}\n", "t") == [value]
    assert read_documents(text.encode(), "t") == [value]
    assert read_documents(b"\xef\xbb\xbf" + text.encode(), "t") == [value]


def test_a_text_beyond_the_limit_is_refused_unread():
    text = "a" * 50 * 2**20
    expected = rf"^big.yaml has 52428800 bytes or more: at most {TEXT_LIMIT} are read$"
    with pytest.raises(InputError, match=expected), at_most(0.1):
        read_documents(text, "big.yaml")


def test_importing_the_package_imports_no_yaml():
    """PyYAML costs milliseconds that an agent never needs."""
    code = (
        "import sys, alignup, alignup.kubernetes.manifest, alignup.kubernetes.kubelet_config; "
        "sys.exit('yaml' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False)  # noqa: S603  # our own words
    assert done.returncode == 0


def test_who_reads_json_only_pays_for_no_yaml() -> None:
    program = (
        "import sys; from alignup.text.documents import read_documents; read_documents('{}', 'x')"
    )
    subprocess.run(  # noqa: S603  # ours
        [sys.executable, "-c", f"{program}; assert 'yaml' not in sys.modules"], check=True
    )


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be", "utf-8"])
@pytest.mark.parametrize("text", ["kind: Pod", '{"kind": "Pod"}', "kind: Pod\r\n"])
def test_a_text_that_begins_with_its_mark_is_read(encoding: str, text: str) -> None:
    assert read_documents(f"\ufeff{text}".encode(encoding), "p.yaml") == [{"kind": "Pod"}]


@pytest.mark.parametrize("data", [b"\xff\xfe\0", b"\xff\xfe\0\xd8", b"\xfe\xff\xd8"])
def test_a_text_of_utf_16_that_is_cut_off_is_refused(data: bytes) -> None:
    with pytest.raises(InputError, match="not UTF-8"):
        read_documents(data, "p.yaml")
