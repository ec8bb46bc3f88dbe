"""Reads the Common Expression Language (CEL) into a tree, macros included.

The grammar is that of github.com/google/cel-spec, as Kubernetes parses it: optional syntax on, escaped field names.
Types and functions are left to `alignup.claims.cel_program`.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple


class CompileError(Exception):
    """The API server would refuse the expression."""


class NotUnderstood(Exception):  # noqa: N818  # an answer, not a fault of the expression
    """The expression may be right, and uses what this evaluator does not know."""


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
    | `index` | the operand, the index | |
    | `call` | the arguments | the function, an operator by CEL's name for it, as `_+_` |
    | `condition` | the test, then, else | CEL's name for it |
    | `method` | the target, the arguments | the function |
    | `otherwise` | an optional value, what stands for none | `or` or `orValue` |
    | `chain` | the terms | `&&` or `||` |
    | `list`, `map` | entries | |
    | `entry` | an element, or key and value | |
    | `macro` | what it walks, the predicate, the transformation | its name, its variables |

    Attributes:
        at: the place in the expression, in characters.
        is_optional: written with a question mark: `.?field`, `[?index]`, or `?entry`, which is left out where it has no
            value.
    """

    kind: str
    at: int
    parts: tuple[Node, ...] = ()
    value: Any = None
    is_optional: bool = False


# The API server's limit of an expression, in bytes.
_LONGEST: Final = 10 * 1024
# Nesting; cel-go's limit is 250.
_DEEPEST: Final = 60
# The height of the tree, which operators side by side make.
_TALLEST: Final = 150

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
    r"\\(?:[xX]([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.))", re.DOTALL
)
_SIMPLE: Final = dict(zip("abfnrtv\"'\\?`", "\a\b\f\n\r\t\v\"'\\?`", strict=True))
_CONSTANTS: Final = {"true": True, "false": False, "null": None}
_RESERVED: Final = frozenset(
    """
    as break const continue else for function if import let loop package namespace return var void while in
    """.split()  # noqa: SIM905  # so many names read better without quotes
)
_LEVELS: Final = (("<", "<=", ">=", ">", "==", "!=", "in"), ("+", "-"), ("*", "/", "%"))
# By number of arguments, how many of them are variables.
_MACROS: Final = {
    **{name: {2: 1, 3: 2} for name in ("all", "exists", "exists_one", "existsOne")},
    **{name: {2: 1} for name in ("filter", "optMap", "optFlatMap")},
    **{name: {3: 2, 4: 2} for name in ("transformList", "transformMap", "transformMapEntry")},
    "map": {2: 1, 3: 1},
}


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
    ahead = [(root, 1)]
    while ahead:
        node, height = ahead.pop()
        if height > _TALLEST:
            raise NotUnderstood(f"an expression of more than {_TALLEST} levels")
        ahead.extend((part, height + (part.kind != "entry")) for part in node.parts)
    return root


def _syntax_error(at: int, text: str) -> CompileError:
    return CompileError(f"ERROR: <input>:1:{at + 1}: Syntax error: {text}")


def _tokens(text: str) -> list[_Token]:
    tokens: list[_Token] = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise _syntax_error(at, f"token recognition error at: {text[at : at + 20]!r}")
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
    base = 16 if text.startswith("0x") else 10
    if text[-1] in "uU":
        value = int(text[:-1], base)
        if value >= 2**64:
            raise _syntax_error(at, "invalid uint literal")
        return Uint(value)
    if base == 16 or text.isdigit():  # noqa: PLR2004  # hexadecimal
        return int(text, base)
    double = float(text)
    if double == float("inf"):
        raise _syntax_error(at, "invalid double literal")
    return double


def _string(text: str, at: int, opening: str) -> tuple[object, int]:
    """Return the value of a string or bytes literal and the place behind it."""
    prefix = opening.rstrip("\"'").lower()
    quote = opening[len(prefix) :]
    start = end = at + len(opening)
    while not text.startswith(quote, end):
        if end >= len(text) or (len(quote) == 1 and text[end] in "\r\n"):
            raise _syntax_error(at, f"token recognition error at: {text[at : at + 20]!r}")
        end += 2 if text[end] == "\\" and "r" not in prefix else 1
    body = text[start:end]
    is_bytes = "b" in prefix
    if "r" not in prefix:
        body = _ESCAPE.sub(lambda match: _unescaped(match, at, is_bytes=is_bytes), body)
    return (body.encode("utf-8", "surrogateescape") if is_bytes else body), end + len(quote)


def _unescaped(match: re.Match[str], at: int, *, is_bytes: bool) -> str:
    two, four, eight, octal, simple = match.groups()
    if simple is not None:
        if simple not in _SIMPLE:
            raise _syntax_error(at, f"unknown escape \\{simple}")
        return _SIMPLE[simple]
    code = int(octal, 8) if octal else int(two or four or eight, 16)
    if is_bytes:
        if four or eight:
            raise _syntax_error(at, "no unicode escapes in bytes")
        return bytes([code]).decode("utf-8", "surrogateescape")
    if code > 0x10FFFF or 0xD800 <= code < 0xE000:  # noqa: PLR2004  # what is no character
        raise _syntax_error(at, "invalid unicode code point")
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
        return _syntax_error(self.token.at, f"unexpected {self.token.text!r}")

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
            node = Node("condition", mark.at, (node, then, self.expression()), "_?_:_")
        self._depth -= 1
        return node

    def _chain(self, operator: str) -> Node:
        terms = []
        at = self.token.at
        while True:
            terms.append(self._chain("&&") if operator == "||" else self._binary(0))
            if self._take(operator) is None:
                return terms[0] if len(terms) == 1 else Node("chain", at, tuple(terms), operator)

    def _binary(self, level: int) -> Node:
        if level == len(_LEVELS):
            return self._unary()
        node = self._binary(level + 1)
        while (mark := self._take(*_LEVELS[level])) is not None:
            name = "@in" if mark.text == "in" else f"_{mark.text}_"
            node = Node("call", mark.at, (node, self._binary(level + 1)), name)
        return node

    def _unary(self) -> Node:
        sign, following = self._take("!", "-"), self.token
        if sign is None:
            return self._member()
        if sign.text == "-" and type(following.value) in (int, float):
            # a negative number, as cel-go reads it; its methods follow
            self._tokens[self._next] = following._replace(at=sign.at, value=-following.value)
            return self._member()
        count = 1
        while self._take(sign.text):
            count += 1
        operand = self._member()
        return Node("call", sign.at, (operand,), f"{sign.text}_") if count % 2 else operand

    def _member(self) -> Node:
        node = self._primary()
        while True:
            token = self.token
            if self._take("."):
                node = self._field(node, token.at)
            elif self._take("["):
                is_optional = self._take("?") is not None
                node = Node("index", token.at, (node, self.expression()), is_optional=is_optional)
                self._expect("]")
            elif token.text == "{" and token.kind == "mark" and node.kind in ("name", "select"):
                raise NotUnderstood("a message of a type")
            else:
                return node

    def _field(self, node: Node, at: int) -> Node:
        is_optional = self._take("?") is not None
        name = self.token
        if name.kind not in ("name", "escaped") or name.text in ("in", *_CONSTANTS):
            raise self.unexpected()
        self._next += 1
        if name.kind == "name" and not is_optional and self._take("("):
            return _method(name, node, self._arguments())
        return Node("select", at, (node,), name.text.strip("`"), is_optional)

    def _arguments(self) -> tuple[Node, ...]:
        arguments: list[Node] = []
        while not self._take(")"):
            if arguments:
                self._expect(",")
            arguments.append(self.expression())
        return tuple(arguments)

    def _primary(self) -> Node:
        token = self.token
        self._next += 1
        if token.kind == "literal":
            if type(token.value) is int and not -(2**63) <= token.value < 2**63:
                raise _syntax_error(token.at, "invalid int literal")
            return Node("literal", token.at, value=token.value)
        if token.text == "." and self.token.kind == "name":
            token = self.token
            self._next += 1
        if token.kind == "name" and token.text in _CONSTANTS:
            return Node("literal", token.at, value=_CONSTANTS[token.text])
        if token.kind == "name" and token.text not in _RESERVED:
            return _call(token, self._arguments()) if self._take("(") else Node("name", token.at, value=token.text)
        if token.text == "(":
            node = self.expression()
            self._expect(")")
            return node
        if token.text in ("[", "{"):
            return Node("list" if token.text == "[" else "map", token.at, self._entries(token.text))
        self._next -= 1
        raise self.unexpected()

    def _entries(self, opening: str) -> tuple[Node, ...]:
        entries: list[Node] = []
        closing = "]" if opening == "[" else "}"
        while not self._take(closing):
            at, is_optional = self.token.at, self._take("?") is not None
            parts = [self.expression()]
            if opening == "{":
                self._expect(":")
                parts.append(self.expression())
            entries.append(Node("entry", at, tuple(parts), is_optional=is_optional))
            if not self._take(","):
                self._expect(closing)
                break
        return tuple(entries)


def _call(name: _Token, arguments: tuple[Node, ...]) -> Node:
    if name.text == "has" and len(arguments) == 1:
        if arguments[0].kind != "select":
            raise CompileError(f"ERROR: <input>:1:{name.at + 1}: invalid argument to has() macro")
        return arguments[0]._replace(kind="has", at=name.at)
    return Node("call", name.at, arguments, name.text)


def _method(name: _Token, target: Node, arguments: tuple[Node, ...]) -> Node:
    """Return a call of a method, or what a macro of that name stands for."""
    bound = _MACROS.get(name.text, {}).get(len(arguments), 0)
    if (name.text, target.kind, target.value, len(arguments)) == ("bind", "name", "cel", 3):
        variable, target, *bodies = arguments
        arguments, bound = (variable, *bodies), 1
    if not bound:
        kind = "otherwise" if name.text in ("or", "orValue") and len(arguments) == 1 else "method"
        return Node(kind, name.at, (target, *arguments), name.text)
    variables = tuple(one.value for one in arguments[:bound] if one.kind == "name")
    if len(set(variables)) != bound:
        raise CompileError(f"ERROR: <input>:1:{name.at + 1}: argument must be a simple name")
    return Node("macro", name.at, (target, *arguments[bound:]), (name.text, variables))
