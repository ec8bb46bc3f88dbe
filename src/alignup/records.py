"""Records: small classes with slots that are frozen, compared and hashed by their fields.

To their users they are dataclasses (`dataclasses.replace`, `fields` and `asdict` work, and so does
`copy.replace`), without what makes these slow to import: no code is compiled before the first
record of a class is made, and the module `dataclasses`, with `inspect` behind it, is not imported.
"""

from __future__ import annotations

from collections import namedtuple
from operator import attrgetter

TYPE_CHECKING = False  # `typing` is slow to import
if TYPE_CHECKING:
    import dataclasses
    import inspect
    from collections.abc import Callable, Mapping
    from typing import Any, ClassVar, Final, NoReturn, Self, TypeVar, dataclass_transform

    _R = TypeVar("_R", bound="Record")
else:

    def dataclass_transform(**_options: object) -> Callable[[type], type]:
        """Do what the one of `typing` does."""
        return lambda kind: kind


# Stands for a default where there is none.
_NONE: Final = object()


# What is said about a field of a class, in the words of `dataclasses.field`.
_Field = namedtuple(  # noqa: PYI024  # see the imports
    "_Field",
    ["default", "default_factory", "init", "repr", "hash", "compare"],
    defaults=[_NONE, _NONE, True, True, None, True],
)


def field(**options: Any) -> Any:
    """Return what a class says of a field in place of its default.

    The arguments are those of `dataclasses.field`.
    """
    return _Field(**options)


class _Made:
    """Stands for a value that a constructor makes anew; a signature shows it."""

    def __init__(self, make: Callable[[], object]) -> None:
        self._make = make

    def __repr__(self) -> str:
        return repr(self._make())


class _Fields:
    """The fields as `dataclasses` knows them, made when somebody asks for the first time."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[type, dict[str, dataclasses.Field[Any]]] = {}

    def __get__(self, _record: object, owner: Any) -> dict[str, dataclasses.Field[Any]]:
        if owner in self._made:
            return self._made[owner]

        import dataclasses  # noqa: PLC0415  # see the module

        dataclass_fields = []
        for name, record_field in owner.__record_fields__.items():
            options = {
                option: value
                for option, value in record_field._asdict().items()
                if value is not _NONE
            }
            kind = owner.__record_types__[name]
            dataclass_fields.append((name, kind, dataclasses.field(**options)))

        alike: Any = dataclasses.make_dataclass(owner.__name__, dataclass_fields, eq=False)
        fields: dict[str, dataclasses.Field[Any]] = alike.__dataclass_fields__
        self._made[owner] = fields
        return fields


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
class _RecordType(type):
    """Makes the classes of records of the annotations in their bodies."""

    __record_fields__: dict[str, _Field]
    __record_types__: dict[str, str]
    __match_args__: tuple[str, ...]

    def __new__(
        cls,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        *,
        eq: bool = True,
        frozen: bool = True,
    ) -> _RecordType:
        fields: dict[str, _Field] = {}
        types: dict[str, str] = {}
        for base in reversed(bases):
            fields |= getattr(base, "__record_fields__", {})
            types |= getattr(base, "__record_types__", {})

        own_keys = [
            key
            for key, kind in namespace.get("__annotations__", {}).items()
            if not kind.startswith("ClassVar")
        ]
        for key in own_keys:
            default = namespace.pop(key, _NONE)
            fields[key] = default if isinstance(default, _Field) else _Field(default)
            types[key] = namespace["__annotations__"][key]

        arguments = tuple(key for key, record_field in fields.items() if record_field.init)
        namespace["__slots__"] = tuple(own_keys)
        namespace["__match_args__"] = arguments
        namespace["__record_fields__"] = fields
        namespace["__record_types__"] = types
        # the class is among them so that one alone comes in a tuple too
        namespace["__record_values__"] = attrgetter(*arguments, "__class__")
        namespace["__record_places__"] = {key: place for place, key in enumerate(arguments)}

        compared = [key for key, record_field in fields.items() if record_field.compare]
        hashed = [key for key in compared if fields[key].hash is not False]
        if compared:
            namespace["__record_key__"] = attrgetter(*compared)
            namespace["__record_hash__"] = attrgetter(*hashed) if hashed else type

        namespace.setdefault("__init__", _first_init)
        if not eq:
            namespace.setdefault("__eq__", object.__eq__)
            namespace.setdefault("__hash__", object.__hash__)

        if not frozen:
            namespace |= {"__setattr__": object.__setattr__, "__delattr__": object.__delattr__}
            namespace.setdefault("__hash__", None)

        return super().__new__(cls, name, bases, namespace)

    @property
    def __signature__(cls) -> inspect.Signature:
        """Of the constructor, which is compiled late."""
        import inspect  # noqa: PLC0415  # see the module

        constructor: Callable[..., None] = cls.__init__  # type: ignore[misc]
        if constructor is _first_init:
            constructor = _init_of(cls)

        signature = inspect.signature(constructor)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _first_init(self: Record, *args: Any, **kwargs: Any) -> None:
    """Make the constructor of the class, and call it."""
    for owner in type(self).__mro__:
        if owner.__dict__.get("__init__") is _first_init:
            owner.__init__ = _init_of(owner)  # type: ignore[arg-type,misc]  # a class of records
            break
    self.__init__(*args, **kwargs)  # type: ignore[misc]


def _init_of(owner: _RecordType) -> Callable[..., None]:
    """Return a constructor that sets each field.

    It then calls `__post_init__` where there is one.
    """
    is_frozen = "__setattr__" not in owner.__dict__
    names: dict[str, Any] = {}
    arguments = ["self"]
    body = []
    for key, record_field in owner.__record_fields__.items():
        names[f"_set_{key}"] = getattr(owner, key).__set__
        names[f"_default_{key}"] = record_field.default
        default = f"_default_{key}"
        value = key if record_field.init else default
        if record_field.default_factory is not _NONE:
            names[f"_make_{key}"] = record_field.default_factory
            names[default] = _Made(record_field.default_factory)
            value = f"_make_{key}()"
            if record_field.init:
                value += f" if {key} is {default} else {key}"

        has_default = record_field.default is not _NONE or record_field.default_factory is not _NONE
        if record_field.init:
            arguments.append(f"{key}={default}" if has_default else key)
        if record_field.init or has_default:
            setter = f"_set_{key}(self, {value})" if is_frozen else f"self.{key} = {value}"
            body.append(f"    {setter}\n")

    if hasattr(owner, "__post_init__"):
        body.append("    self.__post_init__()\n")

    text = f"def __init__({', '.join(arguments)}):\n{''.join(body) or '    pass'}"
    exec(text, names)  # noqa: S102  # our own text
    constructor: Callable[..., None] = names["__init__"]
    constructor.__qualname__ = f"{owner.__qualname__}.__init__"
    constructor.__module__ = owner.__module__
    annotations = {key: owner.__record_types__[key] for key in owner.__match_args__}
    constructor.__annotations__ = {**annotations, "return": None}
    return constructor


class Record(metaclass=_RecordType):
    """The base of records; a class declares its fields as a frozen dataclass with slots would.

    The class argument `eq=False` compares by identity, `frozen=False` makes fields that can be
    assigned.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]
        __match_args__: ClassVar[tuple[str, ...]]
        __record_fields__: ClassVar[Mapping[str, _Field]]
    else:
        __dataclass_fields__ = _Fields()
    __record_key__: ClassVar[Callable[[object], object]] = type
    __record_values__: ClassVar[Callable[[object], tuple[object, ...]]]
    __record_places__: ClassVar[Mapping[str, int]]
    __record_hash__: ClassVar[Callable[[object], object]] = type

    def __setattr__(self, name: str, _value: object) -> NoReturn:
        _refuse(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str) -> NoReturn:
        _refuse(f"cannot delete field {name!r}")

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented

        key = self.__class__.__record_key__
        return key(self) == key(other)

    def __hash__(self) -> int:
        return hash(self.__class__.__record_hash__(self))

    def __repr__(self) -> str:
        arguments = [
            f"{key}={getattr(self, key)!r}"
            for key, record_field in self.__record_fields__.items()
            if record_field.repr
        ]
        return f"{self.__class__.__qualname__}({', '.join(arguments)})"

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return self.__class__, tuple(getattr(self, key) for key in self.__match_args__)

    def __replace__(self, /, **changes: Any) -> Self:
        return replace(self, **changes)


class Shown(Record):
    """The base of records that a notebook shows as a page, once somebody can draw them."""

    def _repr_html_(self) -> str | None:
        draw = _PAGES.get(self.__class__)
        return None if draw is None else draw(self)


# By class of records, what makes the page of one. `alignup.pictures` fills it: records know nothing
# above them.
_PAGES: Final[dict[type, Callable[[Any], str | None]]] = {}


def show_with(kind: type[Shown], draw: Callable[[Any], str | None]) -> None:
    """Let notebooks show the records of a class as a function draws them: as HTML."""
    _PAGES[kind] = draw


class Settings(Record):
    """The base of records of many settings, of which most have their defaults.

    They show those that have not.
    """

    def __repr__(self) -> str:
        arguments = []
        for key, record_field in self.__record_fields__.items():
            value = getattr(self, key)
            default = record_field.default
            if record_field.default_factory is not _NONE:
                default = record_field.default_factory()
            if record_field.repr and value != default:
                arguments.append(f"{key}={value!r}")

        return f"{self.__class__.__qualname__}({', '.join(arguments)})"


def replace(record: _R, /, **changes: Any) -> _R:
    """Return a record with some of its fields changed, as `dataclasses.replace` does."""
    owner = record.__class__
    values = [*owner.__record_values__(record)]
    try:
        for name, value in changes.items():
            values[owner.__record_places__[name]] = value
    except KeyError:
        return owner(**changes)  # it says which name it does not know

    return owner(*values[:-1])


def json_of(value: object) -> Any:
    """Return a record, or what one holds, in JSON's types.

    A record's fields are named in camelCase, or it is what its `to_dict` says.
    """
    if isinstance(value, Record):
        to_dict = getattr(value, "to_dict", None)
        return to_dict() if to_dict is not None else json_fields(value)
    if isinstance(value, tuple):
        return [json_of(element) for element in value]
    return value


def json_fields(record: Record, *names: str) -> dict[str, Any]:
    """Return fields or properties of a record in JSON's types, named in camelCase.

    Without names, return all its fields.
    """
    document = {}
    for name in names or record.__record_fields__:
        first_word, _, more_words = name.partition("_")
        key = first_word + more_words.title().replace("_", "")
        document[key] = json_of(getattr(record, name))

    return document


def _refuse(sentence: str) -> NoReturn:
    from dataclasses import FrozenInstanceError  # noqa: PLC0415  # see the module

    raise FrozenInstanceError(sentence)
