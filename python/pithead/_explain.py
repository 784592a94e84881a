"""Plans as text and as pictures."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field

# Columns of a plan's line that hold the site, and those that a level of the tree takes.
_SITE, _LEVEL = 6, 2
# Of a picture, in pixels.
_CHARACTER, _LINE, _PAD, _GAP, _INDENT = 6.3, 15, 8, 12, 28
_WRAP = 96
_COLOURS = {
    "host": ("#dbe7f6", "#4a78b0", "host"),
    "drive": ("#dcefdc", "#4b8b4b", "drives"),
    "link": ("#fbeed3", "#c08a2d", "link"),
    "": ("#f2f2f2", "#9a9a9a", ""),
}


@dataclass
class Node:
    """A part of a plan.

    Attributes
    ----------
    site
        "host", "drive", "link" (what crosses it), or "" for remarks.
    text
        The operator, or what is said.
    facts
        What drives reported of it, after `analyze`.
    children
        Its inputs.
    """

    site: str
    text: str
    facts: list[str] = field(default_factory=list)
    children: list[Node] = field(default_factory=list)


class Explained:
    """A plan, and where each part of it runs. Notebooks show it as a picture.

    Attributes
    ----------
    analyzed
        Whether it was run.
    roots
        The plan as trees.
    totals
        What all of it cost, after `analyze`.
    """

    def __init__(self, lines: list[str], analyzed: bool) -> None:
        self.lines = lines
        self.analyzed = analyzed
        self.roots, self.totals = _parsed(lines)

    def nodes(self) -> Iterator[Node]:
        """All parts, each before its inputs."""
        pending = list(reversed(self.roots))
        while pending:
            node = pending.pop()
            yield node
            pending.extend(reversed(node.children))

    def svg(self) -> str:
        """The plan as a picture."""
        return _svg(self.roots, self.totals)

    def __str__(self) -> str:
        return "\n".join(self.lines)

    __repr__ = __str__

    def _repr_html_(self) -> str:
        return self.svg()


def _parsed(lines: list[str]) -> tuple[list[Node], list[str]]:
    roots: list[Node] = []
    totals: list[str] = []
    path: list[Node] = []
    body, rest = lines, []
    # An empty line comes before what all of it cost.
    blank = next((at for at, line in enumerate(lines) if not line.strip()), None)
    if blank is not None:
        body, rest = lines[:blank], lines[blank + 1 :]
    for line in body:
        site, text = line[:_SITE].strip(), line[_SITE:]
        depth = (len(text) - len(text.lstrip(" "))) // _LEVEL
        del path[depth:]
        node = Node(site, text.strip())
        is_fact = not site and path and not node.text.endswith(":") and "run first" not in node.text
        if is_fact:
            path[-1].facts.append(node.text)
        elif path:
            path[-1].children.append(node)
        else:
            roots.append(node)
        # What is below a fact belongs to what the fact is of.
        path.append(path[-1] if is_fact else node)
    totals.extend(line.strip() for line in rest if line.strip())
    return roots, totals


def _svg(roots: list[Node], totals: list[str]) -> str:
    shapes: list[str] = []
    width = 0.0
    top = _legend(shapes)

    def place(node: Node, depth: int, top: float) -> float:
        nonlocal width
        fill, stroke, _ = _COLOURS.get(node.site, _COLOURS[""])
        lines = textwrap.wrap(node.text, _WRAP) or [""]
        facts = [part for fact in node.facts for part in textwrap.wrap(fact, _WRAP)]
        left = depth * _INDENT
        broad = max(map(len, lines + facts)) * _CHARACTER + 2 * _PAD
        tall = (len(lines) + len(facts)) * _LINE + _PAD
        shapes.append(
            f'<rect x="{left}" y="{top}" width="{broad:.0f}" height="{tall}" rx="4" fill="{fill}" stroke="{stroke}"/>'
        )
        for at, text in enumerate(lines + facts):
            colour = "#222" if at < len(lines) else "#666"
            shapes.append(
                f'<text x="{left + _PAD}" y="{top + _LINE * (at + 1)}" fill="{colour}">{html.escape(text)}</text>'
            )
        width = max(width, left + broad)
        bottom = top + tall
        below = bottom + _GAP
        for child in node.children:
            middle = below + _LINE / 2 + _PAD / 2
            bend = left + _INDENT / 2
            shapes.append(f'<path d="M{bend} {bottom} V{middle} H{left + _INDENT}" fill="none" stroke="#999"/>')
            below = place(child, depth + 1, below)
        return below

    for root in roots:
        top = place(root, 0, top)
    for total in totals:
        for text in textwrap.wrap(total, _WRAP):
            shapes.append(f'<text x="0" y="{top + _LINE}" fill="#222">{html.escape(text)}</text>')
            width, top = max(width, len(text) * _CHARACTER), top + _LINE
    size = f'width="{width + 2:.0f}" height="{top + _PAD:.0f}"'
    style = 'font-family="ui-monospace,Menlo,Consolas,monospace" font-size="10.5"'
    return f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>{"".join(shapes)}</svg>'


def _legend(shapes: list[str]) -> float:
    left = 0.0
    for fill, stroke, name in _COLOURS.values():
        if name:
            shapes.append(f'<rect x="{left}" y="2" width="11" height="11" rx="2" fill="{fill}" stroke="{stroke}"/>')
            shapes.append(f'<text x="{left + 16}" y="11" fill="#222">{name}</text>')
            left += 16 + len(name) * _CHARACTER + 20
    return 24.0
