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
    """Return what a class says of a field in place of its default; the arguments are those of `dataclasses.field`."""
    return _Field(**options)


class _Fields:
    """The fields as `dataclasses` knows them, made when somebody asks for the first time."""

    __slots__ = ("_made",)

    def __init__(self) -> None:
        self._made: dict[type, dict[str, dataclasses.Field[Any]]] = {}

    def __get__(self, _record: object, owner: Any) -> dict[str, dataclasses.Field[Any]]:
        if owner in self._made:
            return self._made[owner]

        import dataclasses  # noqa: PLC0415  # see the module

        made = []
        for name, one in owner.__record_fields__.items():
            options = {
                option: value for option, value in one._asdict().items() if value is not _NONE
            }
            made.append((name, owner.__record_types__[name], dataclasses.field(**options)))

        alike: Any = dataclasses.make_dataclass(owner.__name__, made, eq=False)
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

        own = [
            key
            for key, kind in namespace.get("__annotations__", {}).items()
            if not kind.startswith("ClassVar")
        ]
        for key in own:
            default = namespace.pop(key, _NONE)
            fields[key] = default if isinstance(default, _Field) else _Field(default)
            types[key] = namespace["__annotations__"][key]

        namespace["__slots__"] = tuple(own)
        namespace["__match_args__"] = tuple(key for key, one in fields.items() if one.init)
        namespace["__record_fields__"] = fields
        # the class is among them so that one alone comes in a tuple too
        namespace["__record_values__"] = attrgetter(*namespace["__match_args__"], "__class__")
        namespace["__record_places__"] = {
            key: place for place, key in enumerate(namespace["__match_args__"])
        }
        namespace["__record_types__"] = types
        compared = [key for key, one in fields.items() if one.compare]
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

        made = cls.__init__ if cls.__init__ is not _first_init else _init_of(cls)  # type: ignore[misc]
        signature = inspect.signature(made)
        return signature.replace(parameters=list(signature.parameters.values())[1:])


def _first_init(self: Record, *args: Any, **kwargs: Any) -> None:
    """Make the constructor of the class, and call it."""
    for owner in type(self).__mro__:
        if owner.__dict__.get("__init__") is _first_init:
            owner.__init__ = _init_of(owner)  # type: ignore[arg-type,misc]  # a class of records
            break
    self.__init__(*args, **kwargs)  # type: ignore[misc]


def _init_of(owner: _RecordType) -> Callable[..., None]:
    """Return a constructor that sets each field, and then calls `__post_init__` where there is one."""
    names: dict[str, Any] = {"_none": _NONE}
    arguments, body = ["self"], []
    for key, one in owner.__record_fields__.items():
        names |= {f"_set_{key}": getattr(owner, key).__set__, f"_default_{key}": one.default}
        value, default = key if one.init else f"_default_{key}", f"_default_{key}"
        if one.default_factory is not _NONE:
            names[f"_make_{key}"] = one.default_factory
            value, default = (
                f"_make_{key}() if {key} is _none else {key}" if one.init else f"_make_{key}()",
                "_none",
            )

        has_default = one.default is not _NONE or one.default_factory is not _NONE
        if one.init:
            arguments.append(f"{key}={default}" if has_default else key)
        if one.init or has_default:
            is_plain = "__setattr__" in owner.__dict__  # of a class that is not frozen
            body.append(
                f"    self.{key} = {value}\n" if is_plain else f"    _set_{key}(self, {value})\n"
            )

    if hasattr(owner, "__post_init__"):
        body.append("    self.__post_init__()\n")

    exec(f"def __init__({', '.join(arguments)}):\n{''.join(body) or '    pass'}", names)  # noqa: S102 - our own text
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{owner.__qualname__}.__init__"
    made.__module__ = owner.__module__
    made.__annotations__ = {key: owner.__record_types__[key] for key in owner.__match_args__} | {
        "return": None
    }
    return made


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
        shown = (key for key, one in self.__record_fields__.items() if one.repr)
        return f"{self.__class__.__qualname__}({', '.join(f'{key}={getattr(self, key)!r}' for key in shown)})"

    def __reduce__(self) -> tuple[type[Self], tuple[object, ...]]:
        return self.__class__, tuple(getattr(self, key) for key in self.__match_args__)

    def __replace__(self, /, **changes: Any) -> Self:
        return replace(self, **changes)


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
    """Return a record, or what one holds, in JSON's types: a record's fields in camelCase, or as its `to_dict` says."""
    if isinstance(value, Record):
        made = getattr(value, "to_dict", None)
        return made() if made is not None else json_fields(value)
    return [json_of(one) for one in value] if isinstance(value, tuple) else value


def json_fields(record: Record, *names: str) -> dict[str, Any]:
    """Return fields or properties of a record, or all its fields, in JSON's types and named in camelCase."""
    found = {}
    for name in names or record.__record_fields__:
        first, _, rest = name.partition("_")
        found[first + rest.title().replace("_", "")] = json_of(getattr(record, name))
    return found


def _refuse(sentence: str) -> NoReturn:
    from dataclasses import FrozenInstanceError  # noqa: PLC0415  # see the module

    raise FrozenInstanceError(sentence)
