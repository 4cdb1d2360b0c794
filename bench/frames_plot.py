"""Draws active tokens over the calls of a model as an SVG, with a logarithmic axis; nothing needs to be installed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from xml.sax.saxutils import escape

__all__ = ["drawn"]

_COLOURS = ("#8a8a8a", "#d1731f", "#2b7bba", "#1a8f4b")
_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP = 430, 250, 60, 50, 70
_MOST_POINTS = 200


def drawn(panels: Mapping[str, Mapping[str, Sequence[int]]]) -> str:
    """Return the picture: a panel for each task, in it a line for each way, with the tokens of each call."""
    names = list(next(iter(panels.values())))
    width = _LEFT + len(panels) * (_WIDTH + _GAP)
    size = f"0 0 {width} {_TOP + _HEIGHT + 60}"
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{_TOP + _HEIGHT + 60}" fill="#ffffff"/>',
    ]
    for number, (title, lines) in enumerate(panels.items()):
        parts += _panel(_LEFT + number * (_WIDTH + _GAP), title, lines)
    for number, name in enumerate(names):
        at = _LEFT + number * 170
        parts.append(f'<rect x="{at}" y="{_TOP + _HEIGHT + 40}" width="18" height="4" fill="{_COLOURS[number]}"/>')
        parts.append(f'<text x="{at + 24}" y="{_TOP + _HEIGHT + 46}">{escape(name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _panel(left: int, title: str, lines: Mapping[str, Sequence[int]]) -> list[str]:
    top = max(max(line) for line in lines.values())
    low, high = 3.0, math.ceil(math.log10(top) * 2) / 2
    calls = max(map(len, lines.values()))
    bottom = _TOP + _HEIGHT

    def height(tokens: int) -> float:
        share = (math.log10(max(tokens, 10**low)) - low) / (high - low)
        return round(bottom - share * _HEIGHT, 1)

    parts = [f'<text x="{left}" y="{_TOP - 20}" font-weight="bold">{escape(title)}: active tokens at each call</text>']
    for power in range(int(low), int(high) + 1):
        for factor in (1, 3):
            tokens = factor * 10**power
            if math.log10(tokens) <= high:
                y = height(tokens)
                parts.append(f'<path d="M{left} {y}H{left + _WIDTH}" stroke="#dddddd"/>')
                parts.append(
                    f'<text x="{left - 6}" y="{y + 4}" text-anchor="end" fill="#555555">{tokens // 1000}k</text>'
                )
    for name, colour in zip(lines, _COLOURS, strict=False):
        line = lines[name]
        every = max(len(line) // _MOST_POINTS, 1)
        points = [(at, max(line[at : at + every])) for at in range(0, len(line), every)]
        path = " ".join(f"{left + at / calls * _WIDTH:.1f},{height(tokens)}" for at, tokens in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.6"/>')
    parts.append(f'<text x="{left + _WIDTH}" y="{bottom + 18}" text-anchor="end" fill="#555555">{calls:,} calls</text>')
    return parts
