"""Reads the pods in a file of manifests, or in a text, as the command line does."""

from __future__ import annotations

import os

from alignup.errors import InputError, system_errors
from alignup.kubernetes.pod_documents import expanded, live_pods, read_pod_documents
from alignup.text.documents import TEXT_LIMIT

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    from alignup.kubernetes.pod import Pod


def read_pods(source: str | os.PathLike[str]) -> list[Pod]:
    """Return the pods in a file or a text, in order.

    It may hold YAML with any number of documents, JSON or JSON lines: Pods, Lists, and whatever has
    templates of pods, such as Deployments and Jobs, of which there are as many pods as they ask
    for. Pods that have ended, and objects that make no pods, are told in a warning
    (`AlignupWarning`) and left out.

    Args:
        source: the path of a file; or the text itself, if it has more than one line or begins with
            a brace.

    Raises:
        InputError: the file cannot be read, or there is no pod in it.

    Examples:
        >>> text = '''
        ... kind: Deployment
        ... apiVersion: apps/v1
        ... metadata: {name: web}
        ... spec:
        ...   replicas: 2
        ...   template:
        ...     spec: {containers: [{name: c, image: i}]}
        ... '''
        >>> [pod.name for pod in read_pods(text)]
        ['web-0', 'web-1']
    """
    name = os.fspath(source)
    is_text = isinstance(source, str) and ("\n" in source or source.lstrip().startswith("{"))
    text: str | bytes = name
    if not is_text:
        text = _read_file(name)

    documents = read_pod_documents(text, "the text" if is_text else name)
    return expanded(live_pods(documents, one_node=False))


def _read_file(name: str) -> bytes:
    with (
        system_errors("cannot read a file", name),
        open(name, "rb") as file,  # noqa: PTH123  # pathlib is slow to import
    ):
        text = file.read(TEXT_LIMIT + 1)

    if len(text) > TEXT_LIMIT:
        raise InputError(f"{name} has more than {TEXT_LIMIT} bytes")
    return text
