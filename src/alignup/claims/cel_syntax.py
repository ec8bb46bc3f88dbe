"""Reads the Common Expression Language (CEL) into a tree, macros included.

The grammar is that of github.com/google/cel-spec, as Kubernetes parses it: optional syntax on, escaped field names.
Types and functions are left to `alignup.claims.cel_program`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, TypeAlias


class CompileError(Exception):
    """The API server would refuse the expression."""


class NotUnderstood(Exception):  # noqa: N818  # an answer, not a fault of the expression
    """The expression may be right, and uses what this evaluator does not know."""


class Uint(int):
    """An unsigned integer of CEL, which is another type than int."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant: None, bool, int, `Uint`, float, str or bytes."""

    at: int
    """The place in the expression, in characters."""
    value: object


@dataclass(frozen=True, slots=True)
class Ident:
    """The name of a variable or of a type."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, `operand.?field`, or `has(operand.field)`."""

    at: int
    operand: Node
    field: str
    is_optional: bool = False
    is_test: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, a method of `target`, or an operator by CEL's name for it, as `_+_`."""

    at: int
    name: str
    target: Node | None
    arguments: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Logic:
    """A chain of `&&` or of `||`."""

    at: int
    name: str
    terms: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class ListOf:
    """A list; an optional item (`?item`) is left out where it has no value."""

    at: int
    items: tuple[tuple[Node, bool], ...]


@dataclass(frozen=True, slots=True)
class MapOf:
    """A map; an optional entry (`?key: value`) is left out where it has no value."""

    at: int
    entries: tuple[tuple[Node, Node, bool], ...]


@dataclass(frozen=True, slots=True)
class Fold:
    """A macro that binds one or two variables: over the elements of a range, to a value, or to an optional's value."""

    at: int
    macro: str
    range: Node
    variables: tuple[str, ...]
    bodies: tuple[Node, ...]
    """The predicate, the transformation, or both."""


Node: TypeAlias = "Literal | Ident | Select | Call | Logic | ListOf | MapOf | Fold"

_LONGEST: Final = 10 * 1024
"""The API server's limit of an expression, in bytes."""
_DEEPEST: Final = 60
"""Nesting; cel-go's limit is 250."""
_TALLEST: Final = 150
"""The height of the tree, which operators side by side make."""

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|//[^\n]*)
    |(?P<string>(?:[rR][bB]?|[bB][rR]?)?(?:\"\"\"|\'\'\'|["']))
    |(?P<number>0x[0-9a-fA-F]+[uU]?|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|[0-9]+[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<mark>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_SIMPLE: Final = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"} | {
    mark: mark for mark in "\"'\\?`"
}
_RESERVED: Final = frozenset(
    """
    as break const continue else for function if import let loop package namespace return var void while in true
    false null
    """.split()  # noqa: SIM905  # so many names read better without quotes
)
_LEVELS: Final = (("<", "<=", ">=", ">", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
_ONE_VARIABLE: Final = {
    "all": (2,),
    "exists": (2,),
    "exists_one": (2,),
    "existsOne": (2,),
    "map": (2, 3),
    "filter": (2,),
}
_TWO_VARIABLES: Final = {
    "all": (3,),
    "exists": (3,),
    "exists_one": (3,),
    "existsOne": (3,),
    "transformList": (3, 4),
    "transformMap": (3, 4),
    "transformMapEntry": (3, 4),
}
_ON_OPTIONALS: Final = ("optMap", "optFlatMap")


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str
    at: int
    value: object = None


def parse(text: str) -> Node:
    """Return the tree of an expression.

    Raises:
        CompileError: it is no expression.
        NotUnderstood: it is nested too deeply for this evaluator.
    """
    if len(text.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise CompileError(f"the expression is longer than {_LONGEST} bytes")
    parser = _Parser(_tokens(text))
    node = parser.expression()
    if parser.token.kind != "end":
        raise parser.unexpected()
    if _height(node) > _TALLEST:
        raise NotUnderstood(f"an expression of more than {_TALLEST} levels")
    return node


def _height(root: Node) -> int:
    """Return how many levels a tree has."""
    tallest, ahead = 0, [(root, 1)]
    while ahead:
        node, height = ahead.pop()
        tallest = max(tallest, height)
        ahead.extend((child, height + 1) for child in _children(node))
    return tallest


def _children(node: Node) -> tuple[Node, ...]:
    found: tuple[Node, ...] = ()
    match node:
        case Select():
            found = (node.operand,)
        case Call():
            found = node.arguments if node.target is None else (node.target, *node.arguments)
        case Logic():
            found = node.terms
        case ListOf():
            found = tuple(item for item, _ in node.items)
        case MapOf():
            found = tuple(part for key, value, _ in node.entries for part in (key, value))
        case Fold():
            found = (node.range, *node.bodies)
    return found


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CompileError(
                f"ERROR: <input>:1:{at + 1}: Syntax error: token recognition error at: {text[at : at + 20]!r}"
            )
        kind = str(match.lastgroup)
        end = match.end()
        if kind == "string":
            value, end = _string(text, at, match[0])
            tokens.append(_Token("literal", text[at:end], at, value))
        elif kind == "number":
            tokens.append(_Token("literal", match[0], at, _number(match[0], at)))
        elif kind != "space":
            tokens.append(_Token(kind, match[0], at))
        at = end
    tokens.append(_Token("end", "<EOF>", len(text)))
    return tokens


def _number(text: str, at: int) -> object:
    if text[-1] in "uU":
        value = int(text[:-1], 0) if text[:2] == "0x" else int(text[:-1])
        if value >= 2**64:
            raise CompileError(f"ERROR: <input>:1:{at + 1}: Syntax error: invalid uint literal")
        return Uint(value)
    if text[:2] == "0x":
        return int(text, 16)
    if re.fullmatch("[0-9]+", text):
        return int(text)
    double = float(text)
    if double == float("inf"):
        raise CompileError(f"ERROR: <input>:1:{at + 1}: Syntax error: invalid double literal")
    return double


def _string(text: str, at: int, opening: str) -> tuple[object, int]:
    """Return the value of a string or bytes literal and the place behind it."""
    prefix = opening.rstrip("\"'").lower()
    quote = opening[len(prefix) :]
    start = end = at + len(opening)
    while not text.startswith(quote, end):
        if end >= len(text) or (len(quote) == 1 and text[end] in "\r\n"):
            raise CompileError(
                f"ERROR: <input>:1:{at + 1}: Syntax error: token recognition error at: {text[at : at + 20]!r}"
            )
        end += 2 if text[end] == "\\" and "r" not in prefix else 1
    body = text[start:end]
    is_bytes = "b" in prefix
    if "r" not in prefix:
        body = _ESCAPE.sub(lambda match: _unescaped(match, at, is_bytes=is_bytes), body)
    return (body.encode("utf-8", "surrogateescape") if is_bytes else body), end + len(quote)


def _unescaped(match: re.Match[str], at: int, *, is_bytes: bool) -> str:
    short, other, four, eight, octal, simple = match.groups()
    if simple is not None:
        if simple not in _SIMPLE:
            raise CompileError(f"ERROR: <input>:1:{at + 1}: Syntax error: unknown escape \\{simple}")
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(short or other or four or eight, 16)
    if is_bytes:
        if four or eight:
            raise CompileError(f"ERROR: <input>:1:{at + 1}: Syntax error: no unicode escapes in bytes")
        return bytes([code]).decode("utf-8", "surrogateescape")
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:  # noqa: PLR2004  # what is no character
        raise CompileError(f"ERROR: <input>:1:{at + 1}: Syntax error: invalid unicode code point")
    return chr(code)


class _Parser:
    """Reads the tokens from left to right."""

    def __init__(self, tokens: list[_Token]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    @property
    def token(self) -> _Token:
        return self._tokens[self._next]

    def unexpected(self) -> CompileError:
        token = self.token
        return CompileError(f"ERROR: <input>:1:{token.at + 1}: Syntax error: unexpected {token.text!r}")

    def _take(self, *texts: str) -> _Token | None:
        token = self.token
        if token.kind in ("mark", "name") and token.text in texts:
            self._next += 1
            return token
        return None

    def _expect(self, text: str) -> None:
        if self._take(text) is None:
            raise self.unexpected()

    def expression(self) -> Node:
        self._depth += 1
        if self._depth > _DEEPEST:
            raise NotUnderstood(f"an expression nested deeper than {_DEEPEST}")
        node = self._chain("||")
        if (mark := self._take("?")) is not None:
            then = self._chain("||")
            self._expect(":")
            node = Call(mark.at, "_?_:_", None, (node, then, self.expression()))
        self._depth -= 1
        return node

    def _chain(self, operator: str) -> Node:
        terms = []
        at = self.token.at
        while True:
            terms.append(self._chain("&&") if operator == "||" else self._binary(0))
            if self._take(operator) is None:
                return terms[0] if len(terms) == 1 else Logic(at, operator, tuple(terms))

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while (mark := self._take(*_LEVELS[level])) is not None:
            name = "@in" if mark.text == "in" else f"_{mark.text}_"
            node = Call(mark.at, name, None, (node, self._binary(level + 1)))
        return node

    def _unary(self) -> Node:
        at, count, sign = self.token.at, 0, self._take("!", "-")
        if sign is None:
            return self._member()
        following = self.token
        if sign.text == "-" and following.kind == "literal" and type(following.value) in (int, float):
            # a negative number, as cel-go reads it; its methods follow
            self._tokens[self._next] = _Token("literal", following.text, at, -following.value)  # type: ignore[operator]
            return self._member()
        while sign is not None:
            count += 1
            sign = self._take(sign.text)
            if sign is not None:
                at = sign.at
        name = "!_" if self._tokens[self._next - 1].text == "!" else "-_"
        operand = self._member()
        return Call(at, name, None, (operand,)) if count % 2 else operand

    def _member(self) -> Node:
        node = self._primary()
        while True:
            token = self.token
            if self._take("."):
                is_optional = self._take("?") is not None
                name = self.token
                if name.kind == "escaped":
                    self._next += 1
                    node = Select(token.at, node, name.text[1:-1], is_optional)
                elif name.kind != "name" or name.text in ("in", "true", "false", "null"):
                    raise self.unexpected()
                else:
                    self._next += 1
                    if not is_optional and self._take("("):
                        node = self._method(name, node, self._arguments(")"))
                    else:
                        node = Select(token.at, node, name.text, is_optional)
            elif self._take("["):
                operator = "_[?_]" if self._take("?") else "_[_]"
                index = self.expression()
                self._expect("]")
                node = Call(token.at, operator, None, (node, index))
            elif token.text == "{" and token.kind == "mark" and isinstance(node, Ident | Select):
                raise NotUnderstood("a message of a type")
            else:
                return node

    def _arguments(self, closing: str) -> tuple[Node, ...]:
        arguments: list[Node] = []
        if self._take(closing):
            return ()
        while True:
            arguments.append(self.expression())
            if self._take(closing):
                return tuple(arguments)
            self._expect(",")

    def _primary(self) -> Node:
        token = self.token
        self._next += 1
        if token.kind == "literal":
            if type(token.value) is int and not -(2**63) <= token.value < 2**63:
                raise CompileError(f"ERROR: <input>:1:{token.at + 1}: Syntax error: invalid int literal")
            return Literal(token.at, token.value)
        node = self._enclosed(token) if token.kind == "mark" else self._named(token)
        if node is None:
            self._next -= 1
            raise self.unexpected()
        return node

    def _enclosed(self, mark: _Token) -> Node | None:
        """Return what begins with a mark."""
        match mark.text:
            case "(":
                node = self.expression()
                self._expect(")")
                return node
            case "[":
                return ListOf(mark.at, self._items())
            case "{":
                return MapOf(mark.at, self._entries())
            case "." if self.token.kind == "name":
                token = self.token
                self._next += 1
                return self._named(token)
        return None

    def _named(self, token: _Token) -> Node | None:
        """Return what begins with a name."""
        if token.text in ("true", "false", "null"):
            return Literal(token.at, {"true": True, "false": False, "null": None}[token.text])
        if token.kind != "name" or token.text in _RESERVED:
            return None
        if self._take("("):
            return self._function(token, self._arguments(")"))
        return Ident(token.at, token.text)

    def _items(self) -> tuple[tuple[Node, bool], ...]:
        items: list[tuple[Node, bool]] = []
        while not self._take("]"):
            is_optional = self._take("?") is not None
            items.append((self.expression(), is_optional))
            if not self._take(","):
                self._expect("]")
                break
        return tuple(items)

    def _entries(self) -> tuple[tuple[Node, Node, bool], ...]:
        entries: list[tuple[Node, Node, bool]] = []
        while not self._take("}"):
            is_optional = self._take("?") is not None
            key = self.expression()
            self._expect(":")
            entries.append((key, self.expression(), is_optional))
            if not self._take(","):
                self._expect("}")
                break
        return tuple(entries)

    def _function(self, name: _Token, arguments: tuple[Node, ...]) -> Node:
        if name.text == "has" and len(arguments) == 1:
            tested = arguments[0]
            if not isinstance(tested, Select) or tested.is_test:
                raise CompileError(f"ERROR: <input>:1:{name.at + 1}: invalid argument to has() macro")
            return Select(name.at, tested.operand, tested.field, tested.is_optional, is_test=True)
        return Call(name.at, name.text, None, arguments)

    def _method(self, name: _Token, target: Node, arguments: tuple[Node, ...]) -> Node:
        """Return a call of a method, or what a macro of that name stands for."""
        count, text = len(arguments), name.text
        if text == "bind" and target == Ident(target.at, "cel") and count == 3:  # noqa: PLR2004  # name, value, body
            return Fold(name.at, "bind", arguments[1], _variables(name, arguments[:1]), arguments[2:])
        if (count in _ONE_VARIABLE.get(text, ())) and not (
            count == 3 and text in _TWO_VARIABLES  # noqa: PLR2004
        ):
            return Fold(name.at, text, target, _variables(name, arguments[:1]), arguments[1:])
        if text in _ON_OPTIONALS and count == 2:  # noqa: PLR2004  # variable and body
            return Fold(name.at, text, target, _variables(name, arguments[:1]), arguments[1:])
        if count in _TWO_VARIABLES.get(text, ()):
            return Fold(name.at, text, target, _variables(name, arguments[:2]), arguments[2:])
        return Call(name.at, text, target, arguments)


def _variables(macro: _Token, arguments: tuple[Node, ...]) -> tuple[str, ...]:
    names = tuple(argument.name for argument in arguments if isinstance(argument, Ident))
    if len(names) != len(arguments) or len(set(names)) != len(names):
        raise CompileError(f"ERROR: <input>:1:{macro.at + 1}: argument must be a simple name")
    return names
