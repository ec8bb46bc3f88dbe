"""Draws the pictures of docs/concepts beside itself: python docs/pictures/draw.py.

A test draws them again. What they show is computed: hints are those that a node of the article's
machine offers, results those of the merge.
"""

from __future__ import annotations

from itertools import product
from math import prod
from pathlib import Path

from alignup import BitMask, TopologyHint, make_policy

WIDTH = 420
INK, SOFT, LINE = "#1b1f3b", "#5b6070", "#c9cddb"
DARK = "@media (prefers-color-scheme:dark){svg{filter:invert(.91) hue-rotate(180deg)}}"
FILL = {"preferred": "#bfe3c0", "other": "#f3e3b0", "none": "#f4f4f7"}
HINTS = {
    name: [
        TopologyHint(BitMask([0]), True),
        TopologyHint(BitMask([1]), True),
        TopologyHint(BitMask([0, 1]), False),
    ]
    for name in ("CPU", "GPU", "NIC")
}
"""What each resource of the article's pod offers: each is on either NUMA node."""
MASKS = [BitMask(), BitMask([0]), BitMask([1]), BitMask([0, 1])]


def bits(mask: BitMask) -> str:
    """Return a mask as the article writes it: node 1, node 0."""
    return f"{int(mask):02b}"


def text(
    x: float,
    y: float,
    content: str,
    size: int = 13,
    fill: str = INK,
    anchor: str = "middle",
    weight: int = 400,
) -> str:
    """Return one line of text."""
    place = f'x="{x:g}" y="{y:g}" font-size="{size}" fill="{fill}"'
    return f'<text {place} text-anchor="{anchor}" font-weight="{weight}">{content}</text>'


def box(x: float, y: float, width: float, height: float, fill: str, stroke: str = LINE) -> str:
    """Return a rectangle."""
    return (
        f'<rect x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="3" fill="{fill}" '
        f'stroke="{stroke}"/>'
    )


def drawn(height: int, title: str, parts: list[str]) -> str:
    """Return the file of a picture."""
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
        f'width="{WIDTH}" height="{height}"'
    )
    ground = f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>'
    return "\n".join(
        (
            f'{head} font-family="sans-serif" role="img"><title>{title}</title>',
            f"<style>{DARK}</style>",
            ground,
            *parts,
            "</svg>\n",
        )
    )


def cross_product() -> str:
    """Return the 27 rows of the cross product as three squares, one for each hint of the NIC."""
    parts = []
    wide, high, margin = 92, 32, 104
    best = chosen()
    for square, nic in enumerate(HINTS["NIC"]):
        y = 56 + square * 156
        title = f"NIC {bits(nic.affinity)}"
        if not nic.preferred:
            title += " (not preferred)"
        parts.append(text(margin + 1.5 * wide, y - 30, title, weight=600))

        for column, gpu in enumerate(HINTS["GPU"]):
            x = margin + column * wide
            middle = margin + (column + 0.5) * wide
            parts.append(text(middle, y - 8, f"GPU {bits(gpu.affinity)}", 12, SOFT))

            for row, cpu in enumerate(HINTS["CPU"]):
                top = y + row * high
                if column == 0:
                    label = f"CPU {bits(cpu.affinity)}"
                    parts.append(text(margin - 10, y + (row + 0.6) * high, label, 12, SOFT, "end"))

                mask = cpu.affinity & gpu.affinity & nic.affinity
                is_equal = cpu.affinity == gpu.affinity == nic.affinity
                if not mask:
                    kind = "none"
                elif is_equal and cpu.preferred:
                    kind = "preferred"
                else:
                    kind = "other"

                is_best = TopologyHint(mask, kind == "preferred") == best
                stroke = INK if is_best else LINE
                parts.append(box(x + 2, top + 2, wide - 4, high - 4, FILL[kind], stroke))

                ink = SOFT if kind == "none" else INK
                weight = 700 if is_best else 400
                baseline = y + (row + 0.62) * high
                parts.append(text(middle, baseline, bits(mask), 14, ink, weight=weight))

    legend = {
        "preferred": "preferred: all three hints are, and are equal",
        "other": "possible, not preferred",
        "none": "nothing in common: no result",
    }
    for line, (kind, meaning) in enumerate(legend.items()):
        parts.append(box(margin, 488 + line * 22, 18, 14, FILL[kind]))
        parts.append(text(margin + 26, 500 + line * 22, meaning, 12, SOFT, "start"))

    return drawn(560, "The cross product of the article's hints", parts)


def chosen() -> TopologyHint:
    """Return the hint that the Topology Manager chooses."""
    best, _ = make_policy("restricted", numa_nodes=2).merge(
        [{name: hints} for name, hints in HINTS.items()]
    )
    return best


def sums_over_supersets() -> str:
    """Return the counts of hints that include each mask, and their products.

    The last line is how many rows give exactly the mask.
    """
    including = [
        [sum(mask & hint.affinity == mask for hint in hints) for mask in MASKS]
        for hints in HINTS.values()
    ]
    rows = [prod(counts) for counts in zip(*including, strict=True)]
    exactly = [
        sum(
            (-1) ** (len(superset) - len(mask)) * row
            for superset, row in zip(MASKS, rows, strict=True)
            if superset & mask == mask
        )
        for mask in MASKS
    ]
    walked = [a.affinity & b.affinity & c.affinity for a, b, c in product(*HINTS.values())]
    # what the picture claims
    assert exactly == [walked.count(mask) for mask in MASKS]  # noqa: S101

    lines = [
        (f"{name} hints that include the mask", counts)
        for name, counts in zip(HINTS, including, strict=True)
    ]
    lines.append(("multiplied: rows that include the mask", rows))
    lines.append(("less those of its supersets: rows that give exactly the mask", exactly))

    parts = []
    margin, wide, high = 16, 97, 34
    for column, mask in enumerate(MASKS):
        parts.append(text(margin + (column + 0.5) * wide, 26, f"mask {bits(mask)}", weight=600))

    for line, (title, counts) in enumerate(lines):
        y = 58 + line * 62
        parts.append(text(margin + 3, y - 6, title, 12, SOFT, "start"))
        for column, count in enumerate(counts):
            is_reached = counts is exactly and column > 0
            fill = FILL["other" if is_reached else "none"]
            parts.append(box(margin + column * wide + 3, y, wide - 6, high, fill))

            middle = margin + (column + 0.5) * wide
            weight = 700 if is_reached else 400
            parts.append(text(middle, y + 0.68 * high, str(count), 15, weight=weight))

    return drawn(356, "Counting which masks a product of lists reaches", parts)


def pictures() -> dict[str, str]:
    """Return each picture by the name of its file."""
    return {"cross-product.svg": cross_product(), "sums.svg": sums_over_supersets()}


if __name__ == "__main__":
    for name, picture in pictures().items():
        Path(__file__).with_name(name).write_text(picture, "utf-8")
