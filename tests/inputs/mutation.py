"""Makes mutated inputs.

Documents are changed value by value, and texts piece by piece, from a seeded generator.
"""

from __future__ import annotations

import copy
import json
import math

__all__ = ["mutated_bytes", "mutated_document", "mutated_files"]

ODD_VALUES = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        2,
        63,
        64,
        65,
        2**31,
        2**32,
        2**63 - 1,
        2**63,
        2**64,
        -(2**63),
        10**40,
    ),
    *(0.5, -0.0, 1e308, math.inf, math.nan),
    *(
        "",
        " ",
        "0",
        "-1",
        "1e400",
        "9" * 5000,
        "0" * 100,
        "0.1",
        "1n",
        "16Ei",
        "-1Gi",
        "1Ki1",
        "NaN",
        "a\nb",
    ),
    *(
        "0-3",
        "3-0",
        "0-65535",
        "0-65535:2," * 40 + "1",
        "65536",
        ",",
        "0-1,",
        "auto",
        "none",
        "static",
        "\udc80",
    ),
    *(
        "memory",
        "hugepages-2Mi",
        "hugepages-0",
        "cpu",
        "x" * 4000,
        "$(PATH)",
        "\0",
        "é",
        "\U0001f600",
    ),
    *([], {}, [[]], {"": None}, [None] * 300, [{}] * 50, {"a": {"b": {"c": []}}}),
)
PIECES = (
    *(
        b"",
        b"\0",
        b"\n",
        b"\r\n",
        b" ",
        b"\t",
        b",",
        b":",
        b"-",
        b"0",
        b"9" * 400,
        b"-1",
        b"\xff",
        b"\xef\xbb\xbf",
    ),
    *(
        b"[",
        b"]",
        b"{",
        b"}",
        b'"',
        b"'",
        b"<",
        b">",
        b"&",
        b"&amp;",
        b"&#0;",
        b"<!ENTITY a 'b'>",
        b"%",
    ),
    *(
        b"!!bool x",
        b"!!int _",
        b"!!float x",
        b"!!timestamp 2020-13-45",
        b"!!binary x",
        b"!!set {a}",
        b"!!python/x y",
    ),
    *(
        b"&a [*a]",
        b"*a",
        b"<<: *a",
        b"? ",
        b"|",
        b">",
        b"---\n",
        b"...\n",
        b"%YAML 9.9\n",
        b"0x",
        b"1e999",
        b".nan",
    ),
    *(
        b"0-65535",
        b"0-65535:2,",
        b"0xffffffff,",
        b"\x80" + b"\xff" * 11,
        b"-0000001000\0",
        b"ustar",
    ),
    *(b"null", b"true", b"\\u0000", b"\\ud800", b"1.5", b"_", b"=", b"/", b"../", b"->/dev/zero"),
)
DEEP = 5000


def mutated_document(document, rng):
    """Return a copy of plain objects with one to four of its values, keys or entries changed."""
    changed = copy.deepcopy(document)
    for _ in range(rng.choice([1, 1, 1, 2, 4])):
        places = list(_places(changed))
        if not places:
            return rng.choice(ODD_VALUES)
        holder, key = rng.choice(places)
        _change(holder, key, places, rng)
    return changed


def _places(value):
    """Yield every (mapping or list, key) in a document."""
    stack = [value]
    while stack:
        holder = stack.pop()
        entries = holder.items() if isinstance(holder, dict) else enumerate(holder)
        for key, inner in list(entries):
            yield holder, key
            if isinstance(inner, dict | list):
                stack.append(inner)


def _change(holder, key, places, rng):
    """Change one entry."""
    way = rng.randrange(8)
    if way == 0:
        del holder[key]
    elif way == 1 and isinstance(holder, dict):
        holder[rng.choice(["", "x", "id", "name", "cpus", "a\nb", "é" * 50])] = holder.pop(key)
    elif way == 2 and isinstance(holder, list):
        holder.extend(holder[key : key + 1] * rng.choice([1, 2, 70]))
    elif way == 3:
        donor, donor_key = rng.choice(places)
        has_entry = donor_key in donor if isinstance(donor, dict) else donor_key < len(donor)
        if has_entry:
            holder[key] = copy.deepcopy(donor[donor_key])
    elif way == 4 and isinstance(holder[key], int):
        holder[key] += rng.choice([-1, 1, 1 << 31, 1 << 62])
    elif way == 5 and isinstance(holder[key], str):
        holder[key] = mutated_bytes(holder[key].encode(errors="replace"), rng).decode(
            errors="replace"
        )
    else:
        holder[key] = copy.deepcopy(rng.choice(ODD_VALUES))


def mutated_bytes(data, rng):
    """Return bytes with up to six pieces changed, left out, put in or repeated."""
    changed = bytearray(data)
    for _ in range(rng.choice([1, 1, 2, 3, 6])):
        start = rng.randint(0, len(changed))
        end = min(len(changed), start + rng.choice([1, 1, 2, 8, 64, 1024]))
        way = rng.randrange(6)
        if way == 0:
            del changed[start:end]
        elif way == 1:
            changed[start:start] = changed[start:end] * rng.choice([1, 2, 50])
        elif way == 2 and start < len(changed):
            changed[start] ^= 1 << rng.randrange(8)
        elif way == 3:
            changed[start:end] = rng.choice(PIECES)
        elif way == 4:
            changed[start:start] = rng.choice(PIECES) * rng.choice([1, 1, 3, 200])
        elif rng.random() < 0.1:
            del changed[start:]

    return bytes(changed)


def mutated_files(files, rng):
    """Return texts by path with some of them changed, left out, or under other paths."""
    changed = dict(files)
    for _ in range(rng.randint(1, 5)):
        path = "proc/cpuinfo"
        if changed:
            path = rng.choice(sorted(changed))

        way = rng.randrange(4)
        if way == 0:
            changed.pop(path, None)
        elif way == 1:
            number = str(rng.choice([0, 1, 63, 64, 8191, 65535, 65536, 99999]))
            changed["".join(number if letter.isdigit() else letter for letter in path)] = (
                changed.get(path, "")
            )
        elif way == 2:
            changed[path] = changed.get(rng.choice(sorted(files)), "")
        else:
            text = mutated_bytes(changed.get(path, "").encode(errors="replace"), rng)
            changed[path] = text.decode("ascii", "replace")

    return changed


def as_json(document, rng):
    """Return a document as JSON, at times with something nested deeply, or broken."""
    text = json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")
    if rng.random() < 0.02:
        return text[:-1] + b',"deep":' + b"[" * DEEP
    if rng.random() < 0.2:
        return mutated_bytes(text, rng)
    return text
