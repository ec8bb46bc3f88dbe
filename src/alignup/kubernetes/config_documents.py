"""Finds the fields of a KubeletConfiguration in a text, whatever they are wrapped in.

`configuration_wrappers.json` says in one place which documents hold a kubelet's configuration, and where in them. What
else is in a text is passed over, and named in one warning. A text that holds no field is an error: the defaults are
nobody's intention.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from alignup.errors import InputError, errors_in, warn
from alignup.kubernetes.kubelet_flags import KubeletFlags, read_flags, words_in_text
from alignup.kubernetes.versions import known_names, read_table
from alignup.records import Record, field
from alignup.text.counting import some_of
from alignup.text.documents import TEXT_LIMIT, read_documents
from alignup.text.known_keys import unknown_keys

_KIND: Final = "KubeletConfiguration"
_GET: Final = "`kubectl get --raw /api/v1/nodes/NODE/proxy/configz` prints the one that is in effect"
_MOST_NESTED: Final = 4
_OBJECT: Final = re.compile(r"^(?:kind|apiVersion):|^\s*[{\[]\s*[\"{]", re.MULTILINE)
_DATA_URL: Final = re.compile(r"data:[^,;]*(?:;(?!base64)[^,;]*)*(;base64)?,(.*)", re.DOTALL)
_MIME: Final = re.compile(r"\s*(?:MIME-Version|Content-Type):", re.IGNORECASE)
_GZIP: Final = 16 + zlib.MAX_WBITS


# Takes what lies at a place of a document, by that name, into what was found so far at that depth.
_Take: TypeAlias = "Callable[[Any, str, _Found, int], None]"


class _Found(Record, frozen=False):
    """What a text holds.

    Attributes:
        fields: with the name of the document that holds them; the parts of one document belong together.
    """

    fields: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    flags: list[tuple[str, KubeletFlags]] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


def configuration_fields(text: str | bytes, source: str) -> Mapping[str, Any]:
    """Return the fields of the one KubeletConfiguration in a text.

    Flags that a text has beside the fields override them, as in a kubelet. What is passed over is warned of.

    Args:
        text: a KubeletConfiguration as YAML or JSON, a document that wraps one, or a kubelet's flags.
        source: the name of the text in errors.

    Raises:
        InputError: there is no field of a KubeletConfiguration in it, there are several configurations, or the text is
            of none of these forms.
    """
    found = _Found()
    with errors_in(source):
        _read_text(text, "", found, 0)
    if not found.fields and not found.flags:
        raise InputError(f"expected a {_KIND}, got {some_of(found.passed_over) or 'nothing'} in {source}; {_GET}")
    of_fields, of_flags = _different(found.fields), _different(found.flags)
    if of_fields > 1 or of_flags > 1:
        names = list(dict.fromkeys(name for name, _ in (*found.fields, *found.flags)))
        raise InputError(f"expected one {_KIND}, got {some_of(names)} in {source}; leave one of them in it")
    fields: dict[str, Any] = {}
    for _, more in found.fields:
        fields |= more
    for _, flags in found.flags:
        fields = flags.over(fields)
        if flags.config and not of_fields:
            found.passed_over.append(f"{flags.config}, which the flags name as the configuration file")
    if found.passed_over:
        warn(f"passed over in {source}: {some_of(found.passed_over)}")
    return fields


def _different(parts: list[tuple[str, Any]]) -> int:
    """Return how many documents say something else than those before them."""
    return len({name for place, (name, said) in enumerate(parts) if all(said != one for _, one in parts[:place])})


def _read_text(text: str | bytes, name: str, found: _Found, depth: int) -> None:
    """Read documents, or else flags; `name` is what the text is to be called, empty: what its documents are."""
    try:
        documents = [one for one in read_documents(text, name or "the text") if one is not None]
        reason: InputError | None = None
    except InputError as error:
        documents, reason = [], error
    mappings = [one for one in documents if isinstance(one, Mapping)]
    if documents and len(mappings) == len(documents):
        for index, document in enumerate(mappings):
            _read_document(document, name, found, depth, index)
    elif flags := _flags_of_text(text):
        _take_flags(flags, name or "the flags", found)
    elif name:
        found.passed_over.append(name)
    elif reason is not None:
        raise reason
    else:
        found.passed_over += ["something that is no mapping"] if documents else []


def _flags_of_text(text: str | bytes) -> list[str]:
    """Return the words of a text that has flags and no documents in it."""
    plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    return words_in_text(plain) if "--" in plain and not _OBJECT.search(plain) else []


def _take_flags(words: list[str], name: str, found: _Found) -> None:
    flags = read_flags(words)
    if flags:
        found.flags.append((name, flags))
    elif flags.config:
        found.passed_over.append(f"flags that name the configuration file {flags.config}")
    else:
        found.passed_over.append(name)


def _read_document(document: Mapping[str, Any], name: str, found: _Found, depth: int, index: int) -> None:
    """Read a document, by its kind or by its keys."""
    kind = document.get("kind")
    kind = kind if isinstance(kind, str) and kind else ""
    wrappers = _wrappers()
    marker = next((key for key in wrappers if key[:1] == "." and key[1:] in document), "")
    wrapper = kind or marker
    called = name or _name_of(document, kind, index)
    if depth > _MOST_NESTED:
        found.passed_over.append(called)
    elif wrapper in wrappers:
        before = len(found.fields) + len(found.flags) + len(found.passed_over)
        for path, how in wrappers[wrapper].items():
            for label, value in _values_at(document, path.split(".") if path else [], called):
                _TAKE[how](value, label, found, depth + 1)
        if len(found.fields) + len(found.flags) + len(found.passed_over) == before:
            found.passed_over.append(called)
        elif not kind:
            found.passed_over += [repr(key) for key in document if key != wrapper[1:] and isinstance(key, str)]
    elif kind:
        found.passed_over.append(called)
    elif known_names(_KIND) & document.keys():
        found.fields.append((name or f"a {_KIND}{f' at {index + 1}' if index else ''}", document))
    else:
        found.passed_over.append(_strange(document))


def _name_of(document: Mapping[str, Any], kind: str, index: int) -> str:
    """Return what a document is called."""
    metadata = document.get("metadata")
    own = metadata.get("name") if isinstance(metadata, Mapping) else None
    place = f" at {index + 1}" if index and not own else ""
    return f"a {kind or 'document'}{place}" if not isinstance(own, str) else f"{kind} {own}"


def _strange(document: Mapping[str, Any]) -> str:
    """Return in words what a document without any field that is known is."""
    if not document:
        return "a mapping with nothing in it"
    meant = next((nearest for _, nearest in unknown_keys(document, known_names(_KIND)) if nearest), "")
    hint = f" (did you mean {meant}?)" if meant else ""
    return f"a mapping of {some_of(list(map(repr, document)))}, none of which is a field of it{hint}"


def _values_at(value: Any, path: list[str], name: str) -> Iterator[tuple[str, Any]]:
    """Yield what lies at a path, with its name; `*` is each item by its own name, `+` each as a part of the whole."""
    if not path:
        yield name, value
    elif path[0] in {"*", "+"}:
        items = value.items() if isinstance(value, Mapping) else enumerate(value, 1) if isinstance(value, list) else ()
        for key, item in items:
            yield from _values_at(item, path[1:], f"{key} of {name}" if path[0] == "*" else name)
    elif isinstance(value, Mapping) and path[0] in value:
        yield from _values_at(value[path[0]], path[1:], name)


def _take_document(value: Any, _: str, found: _Found, depth: int) -> None:
    """Read a document in a list of such."""
    if isinstance(value, Mapping):
        _read_document(value, "", found, depth, 0)


def _take_fields(value: Any, name: str, found: _Found, _: int) -> None:
    """Take the fields of a KubeletConfiguration, if there are any."""
    if isinstance(value, Mapping) and (value.get("kind") == _KIND or known_names(_KIND) & value.keys()):
        found.fields.append((name, value))


def _take_profile(value: Any, name: str, found: _Found, _: int) -> None:
    """Take what OpenShift's operator makes of a profile."""
    from alignup.kubernetes.performance_profile import kubelet_of_profile  # noqa: PLC0415  # seldom used

    fields, left_out = kubelet_of_profile(value, name)
    found.fields.append((name, fields))
    if left_out:
        found.passed_over.append(f"{', '.join(left_out)} of {name}")


def _take_arguments(value: Any, name: str, found: _Found, _: int) -> None:
    """Take flags in the form of a program's option."""
    words = [f"--{word}" for word in _words_of(value)]
    if words:
        _take_flags(words, name, found)


def _take_text(value: Any, name: str, found: _Found, depth: int) -> None:
    """Read a text with documents or flags in it."""
    if isinstance(value, str):
        for text in _parts(value):
            _read_text(text, name, found, depth)


def _words_of(value: Any) -> Iterator[str]:
    """Yield flags without their hyphens from any of the forms in which programs take them."""
    if isinstance(value, str):
        yield value.lstrip("-")
    elif isinstance(value, Mapping):
        for flag, given in value.items():
            for one in given if isinstance(given, list) else [given]:
                yield f"{flag}={str(one).lower() if isinstance(one, bool) else one}"
    elif isinstance(value, list):
        for item in value:
            named = isinstance(item, Mapping) and {"name", "value"} <= item.keys()
            yield from _words_of({item["name"]: item["value"]} if named else item)


def _parts(text: str) -> list[str]:
    """Return the parts of a text that cloud-init splits, as in user data; else the text."""
    if not _MIME.match(text):
        return [text]
    from email import message_from_string  # noqa: PLC0415  # slow to import, seldom used

    parts = [part.get_payload() for part in message_from_string(text.lstrip()).walk() if not part.is_multipart()]
    return [part for part in parts if isinstance(part, str)]


def _take_file(value: Any, name: str, found: _Found, depth: int) -> None:
    """Read a file that Ignition writes, if it is a kubelet's; others are passed over by their path."""
    if not isinstance(value, Mapping):
        return
    contents = value.get("contents")
    source = contents.get("source") if isinstance(contents, Mapping) else None
    path = f"{value.get('path')} of {name}"
    text = _decoded(source, path) if isinstance(source, str) else None
    if text is not None and isinstance(contents, Mapping) and contents.get("compression") == "gzip":
        text = _inflated(text, path)
    if text:
        _read_text(text, path, found, depth)
    else:
        found.passed_over.append(path)


def _decoded(source: str, where: str) -> bytes | None:
    """Return the bytes in a data URL (RFC 2397); None: it is another URL."""
    from base64 import b64decode  # noqa: PLC0415  # as the next, seldom used
    from urllib.parse import unquote_to_bytes  # noqa: PLC0415

    matched = _DATA_URL.fullmatch(source)
    if matched is None:
        return None
    data = unquote_to_bytes(matched[2])
    try:
        return b64decode(data, validate=True) if matched[1] else data
    except ValueError as error:
        raise InputError(f"expected base64 in {where}: {error}") from error


def _inflated(data: bytes, where: str) -> bytes:
    """Return the content of gzip data of bounded size."""
    try:
        inflate = zlib.decompressobj(_GZIP)
        text = inflate.decompress(data, TEXT_LIMIT + 1)
    except zlib.error as error:
        raise InputError(f"expected gzip data in {where}: {error}") from error
    if len(text) > TEXT_LIMIT:
        raise InputError(f"{where} has more than {TEXT_LIMIT} bytes")
    return text


_TAKE: Final[Mapping[str, _Take]] = {
    "arguments": _take_arguments,
    "document": _take_document,
    "fields": _take_fields,
    "file": _take_file,
    "profile": _take_profile,
    "text": _take_text,
}


@cache
def _wrappers() -> Mapping[str, Mapping[str, str]]:
    """Return the places of what documents hold, and how that is read (`_TAKE`).

    By the kind of a document, or after a stop by a key that one without a kind has. The file has them by project.
    """
    return {kind: places for some in read_table("configuration_wrappers").values() for kind, places in some.items()}
