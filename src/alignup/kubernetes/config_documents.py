"""Finds the fields of a KubeletConfiguration in a text, whatever they are wrapped in.

The flags of a kubelet are read here too, as words or in a text such as a systemd unit or a line of
`ps`. A flag overrides the field of the configuration file (`cmd/kubelet/app/server.go`,
kubeletConfigFlagPrecedence). `kubelet_flags.json` has those that matter: the field that each sets,
the form of its value (`_FORMS`), and what joins the values of one that comes several times.

`configuration_wrappers.json` says in one place which documents hold a kubelet's configuration, and
where in them. What else is in a text is passed over, and named in one warning. A text that holds no
field is an error: the defaults are nobody's intention.
"""

from __future__ import annotations

import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from alignup.errors import InputError, errors_in, warn
from alignup.kubernetes.policy_options import GO_BOOLEANS
from alignup.kubernetes.versions import known_names, read_table
from alignup.records import Record, field
from alignup.text.counting import some_of
from alignup.text.documents import TEXT_LIMIT, read_documents
from alignup.text.known_keys import unknown_keys

_MOST_DIGITS: Final = 9

_COMMENT: Final = re.compile(r"[ \t]*[#;]")
_OTHER_PROGRAM: Final = re.compile(r"(?:^|[\s/])(?:kube-(?!let)[a-z-]+|grep)\s")
_QUOTES: Final = str.maketrans("", "", "\"'`")
_VARIABLE: Final = re.compile(r"(?:[A-Za-z_]\w*=)+(?=--)")
_RANCHERS: Final = re.compile(r"--kubelet-arg[= ]\s*(?:--)?")
_KIND: Final = "KubeletConfiguration"

_GET: Final = (
    "`kubectl get --raw /api/v1/nodes/NODE/proxy/configz` prints the one that is in effect"
)

_MOST_NESTED: Final = 4
_OBJECT: Final = re.compile(r"^(?:kind|apiVersion):|^\s*[{\[]\s*[\"{]", re.MULTILINE)
_DATA_URL: Final = re.compile(r"data:[^,;]*(?:;(?!base64)[^,;]*)*(;base64)?,(.*)", re.DOTALL)
_MIME: Final = re.compile(r"\s*(?:MIME-Version|Content-Type):", re.IGNORECASE)
_GZIP: Final = 16 + zlib.MAX_WBITS


class KubeletFlags(Record):
    """What flags say.

    Attributes:
        config: the path of the configuration file; empty: none is given.
        config_dir: the folder with drop-ins; empty: none is given.
        root_dir: the kubelet's own folder; empty: `/var/lib/kubelet`.
        hostname: the name of the node where a flag sets it.
        fields: the fields of a KubeletConfiguration that they set.
        feature_gates: the feature gates that they set, which join those of the file.
    """

    config: str = ""
    config_dir: str = ""
    root_dir: str = ""
    hostname: str = ""
    fields: Mapping[str, Any] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.fields or self.feature_gates)

    def over(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Return the fields of a file with those that the flags set in their place."""
        merged = {**fields, **self.fields}
        if self.feature_gates:
            merged["featureGates"] = {**(fields.get("featureGates") or {}), **self.feature_gates}
        return merged


def read_flags(words: Iterable[str]) -> KubeletFlags:
    """Return what the words of a command line say, without its first.

    Raises:
        InputError: a flag that matters has a value that no kubelet takes.
    """
    flags, known = _values(words), read_table("kubelet_flags")
    told = [(name, value) for name, value in flags.items() if "field" in known[name]]
    fields = {
        known[name]["field"]: _FORMS[known[name]["form"]](value, name) for name, value in told
    }
    gates = {
        name: _bool(value, name)
        for name, value in _map(flags["feature-gates"], "feature-gates").items()
    }
    return KubeletFlags(
        flags["config"],
        flags["config-dir"],
        flags["root-dir"],
        flags["hostname-override"],
        fields,
        gates,
    )


def words_in_text(text: str) -> list[str]:
    """Return the words of a text that has flags in it, such as a systemd unit, a shell variable or a line of `ps`.

    Quotes, the names of variables before flags, comments and the lines of other programs are left
    out.
    """
    lines = text.replace("\\\n", " ").splitlines()
    kept = [
        line
        for line in lines
        if not _COMMENT.match(line) and not _OTHER_PROGRAM.search(line.partition("--")[0])
    ]
    plain = _RANCHERS.sub("--", " ".join(kept).translate(_QUOTES))
    return [_VARIABLE.sub("", word) for word in plain.split()]


def _values(words: Iterable[str]) -> defaultdict[str, str]:
    """Return the values of flags that matter here; of one that comes twice, the last, or all of a map."""
    found: defaultdict[str, str] = defaultdict(str)
    rest, known = iter(words), read_table("kubelet_flags")
    for word in rest:
        if not word.startswith("-"):
            continue
        name, equals, value = word.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name not in known:
            continue
        if not equals:
            value = next(rest, "")
        separator = known[name].get("joined")
        found[name] = f"{found[name]}{separator}{value}" if separator and name in found else value

    return found


def _map(text: str, flag: str) -> dict[str, str]:
    """Return the map in a flag such as `cpu=1,memory=2Gi`."""
    found: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError.at(f"the kubelet's flag --{flag}", "NAME=VALUE", part)
        found[name.strip()] = value.strip()
    return found


def _number(text: str, flag: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS):
        raise InputError.at(f"the kubelet's flag --{flag}", "a whole number", text)
    return int(text)


def _bool(text: str, gate: str) -> bool:
    if text not in GO_BOOLEANS:
        raise InputError.at(f"the kubelet's flag --feature-gates, {gate}", "true or false", text)
    return GO_BOOLEANS[text]


def _reserved_memory(text: str, flag: str) -> list[dict[str, Any]]:
    """Return the reservations in a flag such as `0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi`."""
    found = []
    for part in filter(None, text.split(";")):
        node, colon, limits = part.partition(":")
        if not colon or not (node.strip().isascii() and node.strip().isdigit()):
            raise InputError.at(f"the kubelet's flag --{flag}", "NODE:TYPE=BYTES", part)
        found.append({"numaNode": int(node), "limits": _map(limits, flag)})
    return found


_FORMS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "text": lambda text, _flag: text,
    "map": _map,
    "number": _number,
    # such as `memory.available<100Mi`
    "eviction": lambda text, flag: _map(text.replace("<", "="), flag),
    "reservedMemory": _reserved_memory,
}


# Takes what lies at a place of a document, by that name, into what was found so far at that depth.
_Take: TypeAlias = "Callable[[Any, str, _Found, int], None]"


class _Found(Record, frozen=False):
    """What a text holds.

    Attributes:
        fields: with the name of the document that holds them; the parts of one document belong
            together.
    """

    fields: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    flags: list[tuple[str, KubeletFlags]] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)


def configuration_fields(text: str | bytes, source: str) -> Mapping[str, Any]:
    """Return the fields of the one KubeletConfiguration in a text.

    Flags that a text has beside the fields override them, as in a kubelet. What is passed over is
    warned of.

    Args:
        text: a KubeletConfiguration as YAML or JSON, a document that wraps one, or a kubelet's
            flags.
        source: the name of the text in errors.

    Raises:
        InputError: there is no field of a KubeletConfiguration in it, there are several
            configurations, or the text is of none of these forms.
    """
    found = _Found()
    with errors_in(source):
        _read_text(text, "", found, 0)

    if not found.fields and not found.flags:
        raise InputError(
            f"expected a {_KIND}, got {some_of(found.passed_over) or 'nothing'} in {source}; {_GET}"
        )

    of_fields, of_flags = _different(found.fields), _different(found.flags)
    if of_fields > 1 or of_flags > 1:
        names = list(dict.fromkeys(name for name, _ in (*found.fields, *found.flags)))
        raise InputError(
            f"expected one {_KIND}, got {some_of(names)} in {source}; leave one of them in it"
        )

    fields: dict[str, Any] = {}
    for _, more in found.fields:
        fields |= more

    for _, flags in found.flags:
        fields = flags.over(fields)
        if flags.config and not of_fields:
            found.passed_over.append(
                f"{flags.config}, which the flags name as the configuration file"
            )

    if found.passed_over:
        warn(f"passed over in {source}: {some_of(found.passed_over)}")

    return fields


def _different(parts: list[tuple[str, Any]]) -> int:
    """Return how many documents say something else than those before them."""
    return len(
        {
            name
            for place, (name, said) in enumerate(parts)
            if all(said != one for _, one in parts[:place])
        }
    )


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
    else:
        told = f"flags that name the configuration file {flags.config}" if flags.config else name
        found.passed_over.append(told)


def _read_document(
    document: Mapping[str, Any], name: str, found: _Found, depth: int, index: int
) -> None:
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
            found.passed_over += [
                repr(key) for key in document if key != wrapper[1:] and isinstance(key, str)
            ]
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
    meant = next(
        (nearest for _, nearest in unknown_keys(document, known_names(_KIND)) if nearest), ""
    )
    hint = f" (did you mean {meant}?)" if meant else ""
    return (
        f"a mapping of {some_of(list(map(repr, document)))}, none of which is a field of it{hint}"
    )


def _values_at(value: Any, path: list[str], name: str) -> Iterator[tuple[str, Any]]:
    """Yield what lies at a path, with its name; `*` is each item by its own name, `+` each as a part of the whole."""
    if not path:
        yield name, value
    elif path[0] in {"*", "+"}:
        items = (
            value.items()
            if isinstance(value, Mapping)
            else enumerate(value, 1)
            if isinstance(value, list)
            else ()
        )
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
    if isinstance(value, Mapping) and (
        value.get("kind") == _KIND or known_names(_KIND) & value.keys()
    ):
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

    parts = [
        part.get_payload()
        for part in message_from_string(text.lstrip()).walk()
        if not part.is_multipart()
    ]
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

    By the kind of a document, or after a stop by a key that one without a kind has. The file has
    them by project.
    """
    return {
        kind: places
        for some in read_table("configuration_wrappers").values()
        for kind, places in some.items()
    }
