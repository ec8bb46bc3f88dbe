"""Finds the fields of a KubeletConfiguration in a text, whatever they are wrapped in.

The flags of a kubelet are read here too, as words or in a text such as a systemd unit or a line of
`ps`. A flag overrides the field of the configuration file (`cmd/kubelet/app/server.go`,
kubeletConfigFlagPrecedence). `kubelet_flags.json` has those that matter: the field that each sets,
the form of its value (`_FORMS`), and what joins the values of one that comes several times.

`configuration_wrappers.json` says in one place which documents hold a kubelet's configuration,
where in them, and which platform adds its own to it (`platform_reservations.py`). What else is in a
text is passed over, and named in one warning. A text that holds no field is an error: the defaults
are nobody's intention.
"""

from __future__ import annotations

import io
import re
import zlib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Any, Final, TypeAlias

from alignup.errors import InputError, errors_in, warn
from alignup.kubernetes.platform_fields import (
    fields_of_deckhouse,
    fields_of_kubespray,
    fields_of_platform,
    fields_of_settings,
)
from alignup.kubernetes.policy_options import GO_BOOLEANS
from alignup.kubernetes.versions import known_names, read_table
from alignup.records import Record, field
from alignup.text.counting import some_of
from alignup.text.digits import read_number
from alignup.text.documents import TEXT_LIMIT, read_documents, utf8_of
from alignup.text.known_keys import unknown_keys

_LARGEST_NUMBER: Final = (1 << 31) - 1
# The flags of amounts that units of OpenShift take from a file beside them.
_AMOUNTS: Final = frozenset({"kube-reserved", "system-reserved"})

_COMMENT: Final = re.compile(r"[ \t]*[#;]")
_OTHER_PROGRAM: Final = re.compile(r"(?:^|[\s/])(?:kube-(?!let)[a-z-]+|grep)\s")
_QUOTES: Final = str.maketrans("", "", "\"'`")
_VARIABLE: Final = re.compile(r"(?:[A-Za-z_]\w*=)+(?=--)")
# `--kubelet-arg=` of Rancher's, `--kubelet-extra-args=` of k0s, `--extra-config=` of minikube.
_ARGUMENT_OF: Final = re.compile(
    r"--(?:kubelet-arg[= ]\s*|kubelet-extra-args=|extra-config[= ]\s*kubelet\.)(?:--)?"
)
# The kubelet's in a configuration of k3s, and those behind them, mostly in a file of its own.
_ARGUMENTS: Final = "kubelet-arg"
_APPENDED: Final = f"{_ARGUMENTS}+"
_SHELL_VARIABLE: Final = re.compile(r"\$(?:\{\w+\}|\w+)")
_KIND: Final = "KubeletConfiguration"

_GET: Final = (
    "`kubectl get --raw /api/v1/nodes/NODE/proxy/configz` prints the one that is in effect"
)

# The fields whose values a kubelet decodes as texts, and their numbers as errors.
_TEXT_MAPS: Final = ("kubeReserved", "systemReserved", "evictionHard")
# What parts the documents of YAML is no flag.
_FLAG: Final = re.compile(r"--[A-Za-z]")

_MOST_NESTED: Final = 4
# Bytes of a text and those within it together: one may be written once and named many times, and
# gzip data has many more than are written.
_MOST_READ: Final = 4 * TEXT_LIMIT
# A text that begins with a table of Bottlerocket's settings, or with one of them.
_TOML: Final = re.compile(r'\s*(?:#[^\n]*\n\s*)*(?:\[\s*settings\s*[\].]|settings\s*\.[\w.\s"-]*=)')
_OBJECT: Final = re.compile(r"^(?:kind|apiVersion):|^\s*[{\[]\s*[\"{]", re.MULTILINE)
_DATA_URL: Final = re.compile(r"data:[^,;]*(?:;(?!base64)[^,;]*)*(;base64)?,(.*)", re.DOTALL)
_MIME: Final = re.compile(r"\s*(?:MIME-Version|Content-Type):", re.IGNORECASE)
# Lines of MIME that may be delimiters of its parts.
_MOST_DELIMITERS: Final = 10_000
# The encodings of MIME's parts in which their text is not as it stands (RFC 2045).
_ENCODED: Final = frozenset({"base64", "quoted-printable"})
# The names that cloud-init has for encodings; two of them are joined by a plus.
_BASE64: Final = frozenset({"b64", "base64"})
_GZIP: Final = frozenset({"gz", "gzip"})
_GZIP_START: Final = b"\x1f"


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
        if "evictionHard" in self.fields:  # the defaults are put beside what the file says only
            merged.pop("mergeDefaultEvictionSettings", None)
        if self.feature_gates:
            merged["featureGates"] = {**(fields.get("featureGates") or {}), **self.feature_gates}
        return merged


def read_flags(arguments: Iterable[str]) -> KubeletFlags:
    """Return what the arguments of a command line say.

    Raises:
        InputError: a flag that matters has a value that no kubelet takes.
    """
    flags = _values(arguments)
    table = read_table("kubelet_flags")
    fields = {}
    for name, value in flags.items():
        if "field" in table[name]:
            read = _FORMS[table[name]["form"]]
            fields[table[name]["field"]] = read(value, name)

    gates = _map(flags["feature-gates"], "feature-gates")
    return KubeletFlags(
        config=flags["config"],
        config_dir=flags["config-dir"],
        root_dir=flags["root-dir"],
        hostname=flags["hostname-override"],
        fields=fields,
        feature_gates={name: _bool(value, name) for name, value in gates.items()},
    )


def words_in_text(text: str) -> list[str]:
    """Return the words of a text that has flags in it.

    Such as a systemd unit, a shell variable or a line of `ps`. Quotes, the names of variables
    before flags, comments and the lines of other programs are left out.
    """
    lines = text.replace("\\\n", " ").splitlines()
    kept = [
        line
        for line in lines
        if not _COMMENT.match(line) and not _OTHER_PROGRAM.search(line.partition("--")[0])
    ]
    plain = _ARGUMENT_OF.sub("--", " ".join(kept).translate(_QUOTES))
    return [_VARIABLE.sub("", word) for word in plain.split()]


def _values(arguments: Iterable[str]) -> defaultdict[str, str]:
    """Return the values of flags that matter here.

    Of one that comes twice, the last, or all of a map.
    """
    values: defaultdict[str, str] = defaultdict(str)
    table = read_table("kubelet_flags")
    iterator = iter(arguments)
    for argument in iterator:
        if not argument.startswith("-"):
            continue

        name, equals, value = argument.lstrip("-").partition("=")
        name = name.replace("_", "-")
        if name not in table:
            continue

        if not equals:
            following = next(iterator, None)
            if following is None:
                raise InputError(
                    f"expected a value behind the kubelet's flag --{name}, got nothing"
                )
            value = following
        separator = table[name].get("joined")
        if separator and name in values:
            value = f"{values[name]}{separator}{value}"
        values[name] = value

    return values


def _map(text: str, flag: str) -> dict[str, str]:
    """Return the map in a flag such as `cpu=1,memory=2Gi`."""
    values: dict[str, str] = {}
    for part in filter(None, text.split(",")):
        name, equals, value = part.partition("=")
        if not equals:
            raise InputError.at(f"the kubelet's flag --{flag}", "NAME=VALUE", part)
        values[name.strip()] = value.strip()

    return values


def _number(text: str, flag: str) -> int:
    return read_number(text, f"the kubelet's flag --{flag}", _LARGEST_NUMBER)


def _bool(text: str, gate: str) -> bool:
    if text not in GO_BOOLEANS:
        raise InputError.at(f"the kubelet's flag --feature-gates, {gate}", "true or false", text)
    return GO_BOOLEANS[text]


def _reserved_memory(text: str, flag: str) -> list[dict[str, Any]]:
    """Return the reservations in a flag such as `0:memory=1Gi,hugepages-2Mi=4Mi;1:memory=2Gi`."""
    reservations = []
    for part in filter(None, text.split(";")):
        node, colon, limits = part.partition(":")
        if not colon or not (node.strip().isascii() and node.strip().isdigit()):
            raise InputError.at(f"the kubelet's flag --{flag}", "NODE:TYPE=BYTES", part)
        reservations.append({"numaNode": _number(node.strip(), flag), "limits": _map(limits, flag)})

    return reservations


_FORMS: Final[Mapping[str, Callable[[str, str], Any]]] = {
    "text": lambda text, _flag: text,
    "map": _map,
    "number": _number,
    # such as `memory.available<100Mi`
    "eviction": lambda text, flag: _map(text.replace("<", "="), flag),
    "reservedMemory": _reserved_memory,
}


class Configuration(Record):
    """What a text says of a kubelet.

    Attributes:
        fields: of a KubeletConfiguration.
        platform: the platform that adds its own to them before a kubelet reads them; empty: nobody
            does.
    """

    fields: Mapping[str, Any]
    platform: str = ""


# Takes what lies at a place of a document, by that name, into the content, at that depth.
_Take: TypeAlias = "Callable[[Any, str, _Content, int], None]"


class _Form(Record):
    """How what lies at a place is read (`_TAKE`), and whose part of a configuration it is."""

    name: str
    platform: str = ""


class _Content(Record, frozen=False):
    """What a text holds.

    Attributes:
        fields: with the name of the document that holds them; the parts of one document belong
            together.
        platform: whose part of a configuration it is; the last that is read.
        size: the bytes of the texts that were read so far, those within documents too.
    """

    fields: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)
    flags: list[tuple[str, KubeletFlags]] = field(default_factory=list)
    passed_over: list[str] = field(default_factory=list)
    platform: str = ""
    size: int = 0

    def __len__(self) -> int:
        return len(self.fields) + len(self.flags) + len(self.passed_over)

    def count(self, text: str | bytes) -> None:
        """Count a text that is read.

        Raises:
            InputError: it is too much together with those before it.
        """
        self.size += len(text)
        if self.size > _MOST_READ:
            raise InputError(f"the texts within have more than {_MOST_READ} bytes together")


def configuration_fields(text: str | bytes, source: str) -> Mapping[str, Any]:
    """Return the fields of the one KubeletConfiguration in a text; see `read_configuration`."""
    return read_configuration(text, source).fields


def read_configuration(text: str | bytes, source: str) -> Configuration:
    """Return the one KubeletConfiguration in a text.

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
    content = _Content()
    with errors_in(source):
        for user_data in _user_data(text):
            _read_text(user_data, "", content, 0)

    if not content.fields and not content.flags:
        passed_over = some_of(content.passed_over) or "nothing"
        raise InputError(f"expected a {_KIND}, got {passed_over} in {source}; {_GET}")

    of_fields, of_flags = _different(content.fields), _different(content.flags)
    if of_fields > 1 or of_flags > 1:
        names = list(dict.fromkeys(name for name, _ in (*content.fields, *content.flags)))
        raise InputError(
            f"expected one {_KIND}, got {some_of(names)} in {source}; leave one of them in it"
        )

    fields: dict[str, Any] = {}
    for _, part in content.fields:
        fields |= part

    for _, flags in content.flags:
        fields = flags.over(fields)
        if flags.config and not of_fields:
            content.passed_over.append(
                f"{flags.config}, which the flags name as the configuration file"
            )

    if content.passed_over:
        warn(f"passed over in {source}: {some_of(content.passed_over)}")

    return Configuration(fields, content.platform)


def _user_data(text: str | bytes) -> list[str] | list[str | bytes]:
    """Return the parts of user data of MIME; else the text."""
    plain = utf8_of(text) if isinstance(text, bytes) else text
    if isinstance(plain, bytes):
        plain = plain.decode("utf-8", "replace")
    return _parts(plain) if len(plain) <= TEXT_LIMIT and _MIME.match(plain) else [text]


def _different(parts: list[tuple[str, Any]]) -> int:
    """Return how many documents say something else than those before them; 2: two or more."""
    names: set[str] = set()
    for place, (name, part) in enumerate(parts):
        if name not in names and all(part != earlier for _, earlier in parts[:place]):
            names.add(name)
        if len(names) > 1:
            break

    return len(names)


def _read_text(text: str | bytes, name: str, content: _Content, depth: int) -> None:
    """Read documents, or else flags.

    `name` is what the text is to be called, empty: what its documents are.

    Raises:
        InputError: the texts within documents are too large together, or what the text has cannot
            be read.
    """
    content.count(text)
    documents: list[object] = []
    reason = None
    try:
        documents = [
            document
            for document in _flat(_documents(text, name or "the text"))
            if document is not None
        ]
    except InputError as error:
        reason = error

    mappings = [document for document in documents if isinstance(document, Mapping)]
    if documents and len(mappings) == len(documents):
        for index, document in enumerate(mappings):
            _read_document(document, name, content, depth, index)
        return

    flags = _flags_of_text(text)
    if flags:
        _take_flags(flags, name or "the flags", content)
    elif name and reason is not None and isinstance(text, str) and _KIND in text:
        content.passed_over.append(f"{name} ({reason})")
    elif name:
        content.passed_over.append(name)
    elif reason is not None:
        raise reason
    elif documents:
        content.passed_over.append("something that is no mapping")


def _documents(text: str | bytes, source: str) -> list[object]:
    """Return the documents of a text of YAML or JSON, or of settings of Bottlerocket in TOML."""
    if isinstance(text, bytes):
        text = utf8_of(text)
    characters = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
    if len(text) > TEXT_LIMIT or not _TOML.match(characters):
        return read_documents(text, source)

    import tomllib  # noqa: PLC0415  # seldom used

    try:
        return [tomllib.loads(characters)]
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InputError(f"expected TOML in {source}: {error}") from error


def _flat(documents: Iterable[object]) -> Iterator[object]:
    """Yield documents, and those in a list of such, as `az` and `gcloud` print node pools."""
    for document in documents:
        if (
            isinstance(document, list)
            and document
            and all(isinstance(item, Mapping) for item in document)
        ):
            yield from document
        else:
            yield document


def _flags_of_text(text: str | bytes) -> list[str]:
    """Return the words of a text that has flags and no documents in it."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", "replace")
    if not _FLAG.search(text) or _OBJECT.search(text):
        return []
    return words_in_text(text)


def _take_flags(arguments: list[str], name: str, content: _Content) -> None:
    kept, unset = _without_variables(arguments)
    flags = read_flags(kept)
    content.passed_over += unset
    if flags:
        content.flags.append((name, flags))
    elif flags.config:
        content.passed_over.append(f"flags that name the configuration file {flags.config}")
    else:
        content.passed_over.append(name)


def _without_variables(arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return arguments without amounts that a shell variable has, and those amounts in words."""
    kept = []
    unset = []
    for argument in arguments:
        name, equals, value = argument.partition("=")
        parts = value.split(",")
        clear = [part for part in parts if not _SHELL_VARIABLE.search(part)]
        if equals and len(clear) < len(parts) and name.lstrip("-") in _AMOUNTS:
            unset += [f"{part} of {name}" for part in parts if part not in clear]
            argument = f"{name}={','.join(clear)}"  # noqa: PLW2901
        kept.append(argument)

    return kept, unset


def _read_document(
    document: Mapping[str, Any], name: str, content: _Content, depth: int, index: int
) -> None:
    """Read a document, by its kind or by its keys."""
    kind = document.get("kind")
    if not isinstance(kind, str):
        kind = ""
    if _APPENDED in document:
        document = _with_appended(document)
    wrappers = _wrappers()
    marker = next((key for key in wrappers if key[:1] == "." and key[1:] in document), "")
    wrapper = kind or marker

    label = name or _name_of(document, kind, index)
    if depth > _MOST_NESTED:
        content.passed_over.append(label)
    elif wrapper in wrappers:
        count = len(content)
        _read_places(document, wrappers[wrapper], label, content, depth)
        if len(content) == count:
            content.passed_over.append(label)
        elif not kind and "" not in wrappers[wrapper]:
            read = {wrapper[1:], *(path.partition(".")[0] for path in wrappers[wrapper])}
            content.passed_over += [
                repr(key) for key in document if isinstance(key, str) and key not in read
            ]
    elif kind:
        content.passed_over.append(label)
    elif known_names(_KIND) & document.keys():
        place = f" at {index + 1}" if index else ""
        content.fields.append((name or f"a {_KIND}{place}", document))
    else:
        content.passed_over.append(_strange(document))


def _with_appended(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a configuration of k3s with the arguments that are appended among the others.

    They are appended to what stands before them; what stands behind them takes their place.
    """
    arguments: list[Any] = []
    for key, value in document.items():
        if key == _ARGUMENTS:
            arguments = []
        if key in {_ARGUMENTS, _APPENDED}:
            arguments += value if isinstance(value, list) else [value]

    given = [argument for argument in arguments if argument is not None]
    others = {key: value for key, value in document.items() if key != _APPENDED}
    return {**others, _ARGUMENTS: given}


def _read_places(
    document: Mapping[str, Any],
    places: Mapping[str, _Form],
    label: str,
    content: _Content,
    depth: int,
) -> None:
    """Read what lies at the places of a document, and note whose part of a configuration it is."""
    for path, form in places.items():
        steps = path.split(".") if path else []
        for part_label, value in _values_at(document, steps, label):
            settled = len(content.fields) + len(content.flags)
            _TAKE[form.name](value, part_label, content, depth + 1)
            if len(content.fields) + len(content.flags) > settled or form.name == "switch":
                content.platform = _platform_of(form, value, content.platform)


def _platform_of(form: _Form, value: Any, platform: str) -> str:
    """Return whose part of a configuration a text is after a place of it is read."""
    if form.name == "switch" and value is not True:
        return platform
    return form.platform or platform


def _name_of(document: Mapping[str, Any], kind: str, index: int) -> str:
    """Return what a document is called."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if isinstance(name, str):
        return f"{kind} {name}"

    place = f" at {index + 1}" if index and not name else ""
    return f"a {kind or 'document'}{place}"


def _strange(document: Mapping[str, Any]) -> str:
    """Return in words what a document without any field that is known is."""
    if not document:
        return "a mapping with nothing in it"

    keys = some_of(list(map(repr, document)))
    hint = ""
    for _, nearest in unknown_keys(document, known_names(_KIND)):
        if nearest:
            hint = f" (did you mean {nearest}?)"
            break
    return f"a mapping of {keys}, none of which is a field of it{hint}"


def _values_at(value: Any, path: list[str], name: str) -> Iterator[tuple[str, Any]]:
    """Yield what lies at a path, with its name.

    `*` is each item by its own name, `+` each as a part of the whole.
    """
    if not path:
        yield name, value
        return

    step, steps = path[0], path[1:]
    if step in {"*", "+"}:
        items: Iterable[tuple[Any, Any]] = ()
        if isinstance(value, Mapping):
            items = value.items()
        elif isinstance(value, list):
            items = enumerate(value, 1)
        for key, item in items:
            yield from _values_at(item, steps, f"{key} of {name}" if step == "*" else name)
    elif isinstance(value, Mapping) and step in value:
        yield from _values_at(value[step], steps, name)


def _take_document(value: Any, _: str, content: _Content, depth: int) -> None:
    """Read a document in a list of such."""
    if isinstance(value, Mapping):
        _read_document(value, "", content, depth, 0)


def _take_whole(value: Any, name: str, content: _Content, _: int) -> None:
    """Take a KubeletConfiguration, as a kubelet decodes it.

    Raises:
        InputError: it has a number where a kubelet takes the text of a quantity only.
    """
    if not isinstance(value, Mapping):
        return

    for field_name in _TEXT_MAPS:
        amounts = value.get(field_name)
        for resource, amount in amounts.items() if isinstance(amounts, Mapping) else ():
            if isinstance(amount, int | float) and not isinstance(amount, bool):
                place = f'{field_name}["{resource}"]'
                raise InputError.at(place, f'a string such as "{amount}"', amount)

    _take_known(value, name, content)


def _take_known(value: Mapping[str, Any], name: str, content: _Content) -> None:
    """Take a KubeletConfiguration, or fields of one."""
    if value.get("kind") == _KIND or known_names(_KIND) & value.keys():
        content.fields.append((name, value))


def _take_fields(value: Any, name: str, content: _Content, _: int) -> None:
    """Take the fields of a platform's object, if there are any."""
    if not isinstance(value, Mapping):
        return

    _take_known(fields_of_platform(value, name), name, content)


def _take_settings(value: Any, name: str, content: _Content, _: int) -> None:
    """Take the settings of Bottlerocket's kubelet."""
    if isinstance(value, Mapping) and (fields := fields_of_settings(value, name)):
        content.fields.append((name, fields))


def _take_deckhouse(value: Any, name: str, content: _Content, _: int) -> None:
    """Take what a NodeGroup of Deckhouse says of the kubelet."""
    if isinstance(value, Mapping) and (fields := fields_of_deckhouse(value, name)):
        content.fields.append((name, fields))


def _take_kubespray(value: Any, _: str, content: _Content, __: int) -> None:
    """Take the variables of kubespray that are the kubelet's."""
    fields = fields_of_kubespray(value, "the variables of kubespray")
    if fields:
        content.fields.append(("the variables of kubespray", fields))


def _take_options(value: Any, name: str, content: _Content, _: int) -> None:
    """Take the extra options of a profile of minikube that are the kubelet's."""
    if not isinstance(value, list):
        return

    options = [option for option in value if isinstance(option, Mapping)]
    arguments = [
        f"--{option.get('Key')}={option.get('Value')}"
        for option in options
        if option.get("Component") == "kubelet"
    ]
    if arguments:
        _take_flags(arguments, name, content)


def _take_switch(value: Any, name: str, _: _Content, __: int) -> None:
    """Take nothing: what is switched on is the place's platform.

    Raises:
        InputError: it is no switch.
    """
    if not isinstance(value, bool | None):
        raise InputError.at(f"the switch of {name}", "true or false", value)


def _take_profile(value: Any, name: str, content: _Content, _: int) -> None:
    """Take what OpenShift's operator makes of a profile."""
    from alignup.kubernetes.performance_profile import (  # noqa: PLC0415  # seldom used
        kubelet_of_profile,
    )

    fields, left_out = kubelet_of_profile(value, name)
    content.fields.append((name, fields))
    if left_out:
        content.passed_over.append(f"{', '.join(left_out)} of {name}")


def _take_arguments(value: Any, name: str, content: _Content, _: int) -> None:
    """Take flags in the form of a program's option."""
    arguments = [f"--{flag}" for flag in _flags_of(value)]
    flags = read_flags(_without_variables(arguments)[0])
    if flags or flags.config:
        _take_flags(arguments, name, content)


def _take_text(value: Any, name: str, content: _Content, depth: int) -> None:
    """Read a text with documents or flags in it."""
    if isinstance(value, str):
        for text in _parts(value):
            _read_text(text, name, content, depth)


def _take_base64(value: Any, name: str, content: _Content, depth: int) -> None:
    """Read a text in base64."""
    data = _of_base64(value, content) if isinstance(value, str) else None
    if data:
        _read_text(data, name, content, depth)
    else:
        content.passed_over.append(name)


def _take_cloud_file(value: Any, name: str, content: _Content, depth: int) -> None:
    """Read a file that cloud-init writes, in any of its encodings that text can have."""
    text = value.get("content") if isinstance(value, Mapping) else None
    if not isinstance(text, str):
        return

    encoding = str(value.get("encoding")).strip().lower()
    compression, _, inner = encoding.rpartition("+")
    if inner not in _BASE64:
        _take_text(text, name, content, depth)
        return

    data = _of_base64(text, content)
    if data is not None and compression in _GZIP:
        data = _inflated(data, name)
    if data:
        _read_text(data, name, content, depth)
    else:
        content.passed_over.append(name)


def _of_base64(text: str, content: _Content) -> bytes | None:
    """Return the bytes of base64, which may be on several lines; None: it is none.

    Raises:
        InputError: it is too much together with what was read before.
    """
    from base64 import b64decode  # noqa: PLC0415  # seldom used

    content.count(text)
    try:
        return b64decode("".join(text.split()), validate=True)
    except ValueError:
        return None


def _flags_of(value: Any) -> Iterator[str]:
    """Yield flags without their hyphens from any of the forms in which programs take them.

    Raises:
        InputError: a flag that matters has no value.
    """
    if isinstance(value, str):
        yield value.lstrip("-")
    elif isinstance(value, Mapping):
        for flag, setting in value.items():
            for item in setting if isinstance(setting, list) else [setting]:
                name = str(flag).lstrip("-")
                if item is None and name in read_table("kubelet_flags"):
                    raise InputError(f"expected a value of the kubelet's flag --{name}, got null")
                text = str(item).lower() if isinstance(item, bool) else item
                yield f"{flag}={text}"
    elif isinstance(value, list):
        for item in value:
            if isinstance(item, Mapping) and {"name", "value"} <= item.keys():
                yield from _flags_of({str(item["name"]): item["value"]})
            else:
                yield from _flags_of(item)


def _parts(text: str) -> list[str]:
    """Return the parts of a text that cloud-init splits, as in user data; else the text.

    Raises:
        InputError: it has too many parts.
    """
    if not _MIME.match(text):
        return [text]

    if text.count("\n--") > _MOST_DELIMITERS:
        raise InputError(f"user data of MIME has more than {_MOST_DELIMITERS} lines that part it")

    from email import message_from_string  # noqa: PLC0415  # slow to import, seldom used

    parts = []
    for part in message_from_string(text.lstrip()).walk():
        payload = part.get_payload()
        if part.is_multipart() or not isinstance(payload, str):
            continue

        if str(part.get("Content-Transfer-Encoding", "")).strip().lower() in _ENCODED:
            payload = bytes(part.get_payload(decode=True)).decode("utf-8", "replace")
        parts.append(payload)

    return parts


def _take_file(value: Any, name: str, content: _Content, depth: int) -> None:
    """Read a file that Ignition writes, if it is a kubelet's.

    Others are passed over by their path.
    """
    if not isinstance(value, Mapping):
        return

    path = f"{value.get('path')} of {name}"
    text = _file_content(value.get("contents"), path)
    if text:
        _read_text(text, path, content, depth)
    else:
        content.passed_over.append(path)


def _file_content(contents: Any, where: str) -> bytes | None:
    """Return the content of a file that Ignition writes; None: it does not say it."""
    if not isinstance(contents, Mapping) or not isinstance(contents.get("source"), str):
        return None

    data = _decoded(contents["source"], where)
    if data is not None and contents.get("compression") == "gzip":
        return _inflated(data, where)
    return data


def _decoded(source: str, where: str) -> bytes | None:
    """Return the bytes in a data URL (RFC 2397); None: it is another URL."""
    from base64 import b64decode  # noqa: PLC0415  # as the next, seldom used
    from urllib.parse import unquote_to_bytes  # noqa: PLC0415

    matched = _DATA_URL.fullmatch(source)
    if matched is None:
        return None

    data = unquote_to_bytes(matched[2])
    if not matched[1]:
        return data
    try:
        return b64decode(data, validate=True)
    except ValueError as error:
        raise InputError(f"expected base64 in {where}: {error}") from error


def _inflated(data: bytes, where: str) -> bytes:
    """Return the content of gzip data of bounded size; it may have several members (RFC 1952).

    Raises:
        InputError: it is none, is cut off, or has too much content.
    """
    import gzip  # noqa: PLC0415  # slow to import, seldom used

    cut_off = f"expected whole gzip data in {where}, but it is cut off"
    if data == _GZIP_START:  # of so little, the module says that it is none
        raise InputError(cut_off)

    try:
        text = gzip.GzipFile(fileobj=io.BytesIO(data)).read(TEXT_LIMIT + 1)
    except EOFError as error:
        raise InputError(cut_off) from error
    except (gzip.BadGzipFile, zlib.error) as error:
        raise InputError(f"expected gzip data in {where}: {error}") from error

    if len(text) > TEXT_LIMIT:
        raise InputError(f"{where} has more than {TEXT_LIMIT} bytes")

    return text


_TAKE: Final[Mapping[str, _Take]] = {
    "arguments": _take_arguments,
    "base64": _take_base64,
    "cloudFile": _take_cloud_file,
    "deckhouse": _take_deckhouse,
    "document": _take_document,
    "fields": _take_fields,
    "file": _take_file,
    "kubespray": _take_kubespray,
    "options": _take_options,
    "profile": _take_profile,
    "settings": _take_settings,
    "switch": _take_switch,
    "text": _take_text,
    "whole": _take_whole,
}


@cache
def _wrappers() -> Mapping[str, Mapping[str, _Form]]:
    """Return the places of what documents hold, and how that is read.

    By the kind of a document, or after a stop by a key that one without a kind has. The file has
    them by project, and several projects may share a kind.
    """
    places_by_kind: dict[str, dict[str, _Form]] = {}
    for wrappers in read_table("configuration_wrappers").values():
        for kind, places in wrappers.items():
            forms = places_by_kind.setdefault(kind, {})
            for path, form in places.items():
                forms[path] = (
                    _Form(form) if isinstance(form, str) else _Form(form["form"], form["platform"])
                )

    return places_by_kind
