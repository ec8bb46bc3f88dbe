"""Reads the Common Expression Language (CEL) into a tree, macros expanded.

The grammar is that of github.com/google/cel-spec, as Kubernetes parses it: optional syntax on,
escaped field names, macros as cel-go expands them, since what an expression costs is what its
expansion costs.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from alignup.text.digits import number_of


class CompileError(Exception):
    """The API server would refuse the expression."""


class NotUnderstood(Exception):  # noqa: N818  # an answer, not a fault of the expression
    """The expression may be right, and is beyond the bounds of this evaluator."""


class Uint(int):
    """An unsigned integer of CEL, which is another type than int."""

    __slots__ = ()


class Node(NamedTuple):
    """A part of an expression, and what it is made of: by kind, its parts and its value.

    | kind | parts | value |
    |---|---|---|
    | `literal` | none | None, bool, int, `Uint`, float, str or bytes |
    | `name` | none | the name of a variable or of a type |
    | `select`, `has` | the operand | the field |
    | `call` | the arguments | the function, an operator by CEL's name for it, as `_+_` |
    | `method` | the target, the arguments | the function |
    | `list` | the elements | the places of the optional ones |
    | `map` | keys and values in turn | the places of the optional values |
    | `message` | names of fields and values in turn | the name of its type, and the same |
    | `fold` | range, first value, condition, step, result | its variables and accumulator, named |

    Attributes:
        at: the place in the expression, in characters.
    """

    kind: str
    at: int
    parts: tuple[Node, ...] = ()
    value: Any = None


# The API server's limit of an expression, in bytes.
_LONGEST: Final = 10 * 1024
# Nesting; cel-go's limit is 250.
_DEEPEST: Final = 60
# The height of the tree, which operators side by side make.
_TALLEST: Final = 150
# `optMap` repeats its target, so that many of them side by side are as many as powers of two.
_MOST_PARTS: Final = 100_000

_TOKEN: Final = re.compile(
    r"""(?P<space>[ \t\r\n\f]+|//[^\n]*)
    |(?P<string>[bB]?[rR]?(?:\"\"\"|\'\'\'|["']))
    |(?P<number>0x[0-9a-fA-F]+[uU]?|[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+
        |[0-9]+[uU]?)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_.\-/\ ]+`)
    |(?P<mark>==|!=|<=|>=|&&|\|\||[-+*/%<>!?:.,()\[\]{}])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPE: Final = re.compile(
    r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_SIMPLE: Final = dict(zip("abfnrtv\"'\\?`", "\a\b\f\n\r\t\v\"'\\?`", strict=True))
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_RESERVED: Final = frozenset(
    """
    as break const continue else for function if import let loop package namespace return var void
    while in
    """.split()  # noqa: SIM905  # so many names read better without quotes
)
_LEVELS: Final = (("<", "<=", ">=", ">", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
# The macros of a target: by number of arguments, how many of them are variables.
_MACROS: Final = {
    **{name: {2: 1, 3: 2} for name in ("all", "exists", "exists_one", "existsOne")},
    **{name: {2: 1} for name in ("filter", "optMap", "optFlatMap", "sortBy")},
    **{name: {3: 2, 4: 2} for name in ("transformList", "transformMap", "transformMapEntry")},
    "map": {2: 1, 3: 1},
    "bind": {3: 1},
}
_RESULT: Final = "@result"
_SORTED: Final = "@__sortBy_input__"


class _Token(NamedTuple):
    kind: str
    text: str
    at: int
    value: Any = None


def parse(text: str) -> Node:
    """Return the tree of an expression.

    Raises:
        CompileError: it is no expression.
        NotUnderstood: it is nested too deeply for this evaluator.
    """
    if len(text.encode("utf-8", "surrogatepass")) > _LONGEST:
        raise CompileError(f"the expression is longer than {_LONGEST} bytes")

    parser = _Parser(_tokens(text))
    root = parser.expression()
    if parser.token.kind != "end":
        raise parser.unexpected()

    count = 0
    ahead = [(root, 1)]
    while ahead:
        node, height = ahead.pop()
        count += 1
        if height > _TALLEST or count > _MOST_PARTS:
            raise NotUnderstood(
                f"an expression of more than {_TALLEST} levels or {_MOST_PARTS} parts"
            )

        ahead.extend((part, height + 1) for part in node.parts)

    return root


def _error(at: int, text: str, kind: str = "Syntax error: ") -> CompileError:
    return CompileError(f"ERROR: <input>:1:{at + 1}: {kind}{text}")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _error(at, f"token recognition error at: {text[at : at + 20]!r}")

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

    return [*tokens, _Token("end", "<EOF>", len(text))]


def _number(text: str, at: int) -> object:
    if text[-1] in "uU":
        value = _integer(text[:-1])
        if value is None:
            raise _error(at, "invalid uint literal")

        return Uint(value)

    if text.startswith("0x") or text.isdigit():
        value = _integer(text)
        if value is None:
            raise _error(at, "invalid int literal")

        return value

    double = float(text)
    if double == float("inf"):
        raise _error(at, "invalid double literal")

    return double


def _integer(text: str) -> int | None:
    """Return an integer, decimal or hexadecimal; None: 64 bits do not hold it."""
    if not text.startswith("0x"):
        return number_of(text, 2**64 - 1)

    value = int(text, 16)
    return value if value < 2**64 else None


def _string(text: str, at: int, opening: str) -> tuple[object, int]:
    """Return the value of a string or bytes literal and the place behind it."""
    prefix = opening.rstrip("\"'").lower()
    quote = opening[len(prefix) :]
    is_raw = "r" in prefix
    is_bytes = "b" in prefix
    start = at + len(opening)
    end = start
    while not text.startswith(quote, end):
        if end >= len(text) or (len(quote) == 1 and text[end] in "\r\n"):
            raise _error(at, f"token recognition error at: {text[at : at + 20]!r}")

        is_escape = text[end] == "\\" and not is_raw
        end += 2 if is_escape else 1

    body = text[start:end].replace("\r\n", "\n").replace("\r", "\n")
    if not is_raw:
        body = _ESCAPE.sub(lambda match: _unescaped(match, at, is_bytes=is_bytes), body)

    behind = end + len(quote)
    if is_bytes:
        return body.encode("utf-8", "surrogateescape"), behind

    return body, behind


def _unescaped(match: re.Match[str], at: int, *, is_bytes: bool) -> str:
    two, four, eight, octal, simple = match.groups()
    if simple is not None:
        if simple not in _SIMPLE:
            raise _error(at, f"unknown escape \\{simple}")

        return _SIMPLE[simple]

    code = int(octal, 8) if octal else int(two or four or eight, 16)
    if is_bytes:
        if four or eight:
            raise _error(at, "no unicode escapes in bytes")

        return bytes([code]).decode("utf-8", "surrogateescape")

    if code > 0x10FFFF or 0xD800 <= code < 0xE000:  # noqa: PLR2004  # what is no character
        raise _error(at, "invalid unicode code point")

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
        return _error(self.token.at, f"unexpected {self.token.text!r}")

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
        mark = self._take("?")
        if mark is not None:
            if_true = self._chain("||")
            self._expect(":")
            if_false = self.expression()
            node = _call(mark.at, "_?_:_", node, if_true, if_false)

        self._depth -= 1
        return node

    def _chain(self, operator: str) -> Node:
        at = self.token.at
        terms = [self._term(operator)]
        while self._take(operator) is not None:
            terms.append(self._term(operator))

        if len(terms) == 1:
            return terms[0]

        return _call(at, f"_{operator}_", *terms)

    def _term(self, operator: str) -> Node:
        if operator == "||":
            return self._chain("&&")

        return self._binary(0)

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()

        node = self._binary(level + 1)
        while (mark := self._take(*_LEVELS[level])) is not None:
            name = "@in" if mark.text == "in" else f"_{mark.text}_"
            node = _call(mark.at, name, node, self._binary(level + 1))

        return node

    def _unary(self) -> Node:
        sign = self._take("!", "-")
        if sign is None:
            return self._member()

        following = self.token
        if sign.text == "-" and type(following.value) in (int, float):
            # a negative number, as cel-go reads it; its methods follow
            self._tokens[self._next] = following._replace(at=sign.at, value=-following.value)
            return self._member()

        count = 1
        while self._take(sign.text):
            count += 1

        operand = self._member()
        if count % 2 == 0:
            return operand

        return _call(sign.at, f"{sign.text}_", operand)

    def _member(self) -> Node:
        node = self._primary()
        while True:
            token = self.token
            if self._take("."):
                node = self._field(node, token.at)
            elif self._take("["):
                name = "_[?_]" if self._take("?") is not None else "_[_]"
                node = _call(token.at, name, node, self.expression())
                self._expect("]")
            elif token.text == "{" and token.kind == "mark" and node.kind in ("name", "select"):
                node = self._message(token.at, path_of(node))
            else:
                return node

    def _message(self, at: int, name: str) -> Node:
        self._next += 1
        fields = _collection("message", at, self._sequence("}", is_map=True))
        if not name or any(field.kind != "name" for field in fields.parts[::2]):
            raise self.unexpected()

        return fields._replace(value=(name, fields.value))

    def _field(self, node: Node, at: int) -> Node:
        is_optional = self._take("?") is not None
        name = self.token
        if name.kind not in ("name", "escaped") or name.text in ("in", *_CONSTANTS):
            raise self.unexpected()

        self._next += 1
        if name.kind == "name" and not is_optional and self._take("("):
            arguments = self._sequence(")", ends_with_comma=False)
            expansion = _expanded(name, node, arguments)
            if expansion is not None:
                return expansion

            return Node("method", name.at, (node, *arguments), name.text)

        field = name.text.strip("`")
        if is_optional:
            return _call(at, "_?._", node, Node("literal", name.at, value=field))

        return Node("select", at, (node,), field)

    def _sequence(
        self, closing: str, *, ends_with_comma: bool = True, is_map: bool = False
    ) -> list[Node]:
        """Return expressions up to a bracket; an optional one is a node of that kind around it."""
        nodes: list[Node] = []
        if ends_with_comma and self._take(","):
            self._expect(closing)
            return nodes

        while not self._take(closing):
            at = self.token.at
            is_optional = ends_with_comma and self._take("?") is not None
            element = self.expression()
            if is_map:
                self._expect(":")
                nodes.append(element)
                element = self.expression()

            if is_optional:
                element = Node("optional", at, (element,))

            nodes.append(element)
            if not self._take(","):
                self._expect(closing)
                break
            if not ends_with_comma and self.token.text == closing:
                raise self.unexpected()

        return nodes

    def _primary(self) -> Node:
        token = self.token
        self._next += 1
        if token.kind == "literal":
            if type(token.value) is int and not -(2**63) <= token.value < 2**63:
                raise _error(token.at, "invalid int literal")
            return Node("literal", token.at, value=token.value)

        if token.text == "." and self.token.kind == "name" and self.token.text not in _CONSTANTS:
            token = self.token
            self._next += 1

        if token.kind == "name" and token.text in _CONSTANTS:
            return Node("literal", token.at, value=_CONSTANTS[token.text])
        if token.kind == "name" and token.text not in _RESERVED:
            if not self._take("("):
                return Node("name", token.at, value=token.text)

            arguments = self._sequence(")", ends_with_comma=False)
            if token.text == "has" and len(arguments) == 1:
                return _presence(token.at, arguments[0])

            return _call(token.at, token.text, *arguments)

        return self._bracketed(token)

    def _bracketed(self, opening: _Token) -> Node:
        """Return an expression in parentheses, a list or a map; the bracket is passed."""
        if opening.text == "(":
            node = self.expression()
            self._expect(")")
            return node
        if opening.text == "[":
            return _collection("list", opening.at, self._sequence("]"))
        if opening.text == "{":
            return _collection("map", opening.at, self._sequence("}", is_map=True))

        self._next -= 1
        raise self.unexpected()


def _call(at: int, name: str, *arguments: Node) -> Node:
    return Node("call", at, arguments, name)


def _collection(kind: str, at: int, nodes: list[Node]) -> Node:
    """Return a list or a map; its optional parts are named by their places."""
    parts = tuple(node.parts[0] if node.kind == "optional" else node for node in nodes)
    optional = frozenset(place for place, node in enumerate(nodes) if node.kind == "optional")
    return Node(kind, at, parts, optional)


def path_of(node: Node) -> str:
    """Return the dotted name that a chain of fields spells; empty: it is none."""
    if node.kind == "select":
        before = path_of(node.parts[0])
        return before and f"{before}.{node.value}"
    if node.kind == "name":
        return str(node.value)

    return ""


def _presence(at: int, operand: Node) -> Node:
    if operand.kind != "select":
        raise _error(at, "invalid argument to has() macro", "")

    return operand._replace(kind="has", at=at)


def _expanded(name: _Token, target: Node, arguments: list[Node]) -> Node | None:
    """Return what a macro stands for; None: there is none of that name and number of arguments."""
    count = _MACROS.get(name.text, {}).get(len(arguments), 0)
    if not count or (name.text == "bind" and (target.kind, target.value) != ("name", "cel")):
        return None

    variables = [argument.value for argument in arguments[:count] if argument.kind == "name"]
    if len(set(variables)) != count:
        raise _error(arguments[0].at, "argument must be a simple name", "")
    if name.text not in ("bind", "optMap", "optFlatMap") and "__result__" in variables:
        raise _error(arguments[0].at, "iteration variable overwrites accumulator variable", "")

    return _Expansion(name.at, variables).of(name.text, target, arguments[count:])


class _Expansion(NamedTuple):
    """The macros at one place, as cel-go's parser and extensions define them.

    Attributes:
        at: the place of the macro's name.
        variables: the names that it binds.
    """

    at: int
    variables: list[str]

    def of(self, name: str, target: Node, bodies: list[Node]) -> Node:
        """Return the expansion of a macro."""
        if name == "bind":
            return self._binding(self.variables[0], bodies[0], bodies[-1])
        if name in ("optMap", "optFlatMap"):
            return self._optional_value(name, target, bodies[-1])
        if name == "sortBy":
            return self._sorted(target, bodies)
        if name in ("all", "exists"):
            return self._every_or_any(name, target, bodies[-1])
        if name in ("exists_one", "existsOne"):
            return self._exactly_one(target, bodies[-1])

        return self._collected(name, target, bodies)

    def _optional_value(self, name: str, target: Node, body: Node) -> Node:
        """Expand `optMap` or `optFlatMap`: the body of what an optional target has, if anything."""
        value = Node("method", self.at, (target,), "value")
        changed = self._binding(self.variables[0], value, body)
        if name == "optMap":
            changed = self._call("optional.of", changed)

        has_value = Node("method", self.at, (target,), "hasValue")
        return self._call("_?_:_", has_value, changed, self._call("optional.none"))

    def _sorted(self, target: Node, bodies: list[Node]) -> Node:
        """Expand `sortBy`: the target in the order of its keys, a list of the same length."""
        if target.kind in ("literal", "map"):
            problem = "sortBy can only be applied to a list, identifier, comprehension or call"
            raise _error(self.at, problem, "")

        elements = self._name(_SORTED)
        keys = self.of("map", elements, bodies)
        order = Node("method", self.at, (elements, keys), "@sortByAssociatedKeys")
        return self._binding(_SORTED, target, order)

    def _every_or_any(self, name: str, target: Node, body: Node) -> Node:
        """Expand `all` or `exists`: a walk that ends where the body decides."""
        result = self._name(_RESULT)
        is_all = name == "all"
        if is_all:
            undecided = result
            step = self._call("_&&_", result, body)
        else:
            undecided = self._call("!_", result)
            step = self._call("_||_", result, body)

        condition = self._call("@not_strictly_false", undecided)
        return self._fold(target, self._literal(is_all), condition, step, result)

    def _exactly_one(self, target: Node, body: Node) -> Node:
        """Expand `existsOne`: whether the elements that match are one."""
        result = self._name(_RESULT)
        unit = self._literal(1)
        step = self._call("_?_:_", body, self._call("_+_", result, unit), result)
        end = self._call("_==_", result, unit)
        return self._fold(target, self._literal(0), self._literal(value=True), step, end)

    def _collected(self, name: str, target: Node, bodies: list[Node]) -> Node:
        """Expand `filter`, `map` or `transform…`: a list or a map that grows with each element."""
        result = self._name(_RESULT)
        body = bodies[-1]
        test = bodies[0] if len(bodies) > 1 else None
        start = Node("list", self.at, (), frozenset())
        if name == "filter":
            test = body
            step = self._appended(result, self._name(self.variables[0]))
        elif name in ("map", "transformList"):
            step = self._appended(result, body)
        else:
            start = start._replace(kind="map")
            key = [self._name(self.variables[0])] if name == "transformMap" else []
            step = self._call("cel.@mapInsert", result, *key, body)

        if test is not None:
            step = self._call("_?_:_", test, step, result)

        return self._fold(target, start, self._literal(value=True), step, result)

    def _name(self, name: str) -> Node:
        return Node("name", self.at, value=name)

    def _literal(self, value: object) -> Node:
        return Node("literal", self.at, value=value)

    def _call(self, name: str, *arguments: Node) -> Node:
        return _call(self.at, name, *arguments)

    def _appended(self, result: Node, element: Node) -> Node:
        return self._call("_+_", result, Node("list", self.at, (element,), frozenset()))

    def _fold(self, *parts: Node) -> Node:
        return Node("fold", self.at, parts, (*self.variables, _RESULT))

    def _binding(self, name: str, value: Node, body: Node) -> Node:
        """Return a walk through nothing, whose accumulator is evaluated where it is needed only."""
        parts = (
            Node("list", self.at, (), frozenset()),
            value,
            self._literal(value=False),
            self._name(name),
            body,
        )
        return Node("fold", self.at, parts, ("#unused", name))
