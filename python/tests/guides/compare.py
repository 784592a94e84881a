"""What a page shows, beside what a command said."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass, field

_ID = re.compile(r"\b[0-9a-f]{16}\b")
# What differs from run to run, and what stands in its place on both sides.
_NORMAL = (
    # "rows":… of a JSON object is compared; times and bytes of the machine are not.
    (re.compile(r'("\w*(?:_s|_ms|_bytes|_seconds)":) ?[0-9.e+-]+'), r"\1<number>"),
    (re.compile(r"\b\d[\d,]*(?:\.\d+)? ?(?:kB|MB|GB|TB|B)(?:/s)?(?!\w)"), "<bytes>"),
    (re.compile(r"\b\d[\d,]*(?:\.\d+)? ?(?:ns|µs|us|ms|s|min|h|d)(?!\w)"), "<time>"),
    (re.compile(r"-{3,}"), "---"),
    (re.compile(r"\s+$"), ""),
)
_SPACES = re.compile(r"(?<=\S) {2,}")


@dataclass
class Identities:
    """Identities that a page shows, and what they are in this run: whoever is shown first is meant from then on."""

    known: dict[str, str] = field(default_factory=dict)

    def real(self, text: str) -> str:
        """A command of the page, with the identities of this run."""
        return _ID.sub(lambda found: self.known.get(found[0], found[0]), text)


@dataclass(frozen=True)
class Difference:
    """Where a page differs from the program.

    Attributes
    ----------
    offset
        The line below the command that is the first one without a counterpart.
    """

    offset: int
    text: str


def normal(line: str) -> str:
    """A line without what differs from run to run."""
    for pattern, instead in _NORMAL:
        line = pattern.sub(instead, line)
    # Columns of a table are as wide as what stands in them.
    return _SPACES.sub(" ", line) if "|" in line else line


def difference(shown: tuple[str, ...], said: str, identities: Identities) -> Difference | None:
    """None where the page shows what the program said. `…` stands for anything; on a line alone, for any lines."""
    lines = said.rstrip().splitlines()
    reached = _matched(shown, lines, identities)
    if reached == len(shown):
        return None
    before, after = ([normal(_ID.sub("<id>", line)) for line in side] for side in (shown, lines))
    return Difference(reached, "\n".join(difflib.unified_diff(before, after, "the page", "the program", lineterm="")))


def _matched(shown: tuple[str, ...], said: list[str], identities: Identities) -> int:
    """How many lines of the page have their counterparts: all of them only if nothing of `said` is left over."""
    # Ends of `said` that the lines so far may reach.
    ends = {0}
    for number, line in enumerate(shown):
        if line.strip() == "…":
            ends = set(range(min(ends), len(said) + 1))
        else:
            ends = {end + 1 for end in sorted(ends) if end < len(said) and _is_same(line, said[end], identities)}
        if not ends:
            return number
    return len(shown) if len(said) in ends else len(shown) - 1


def _is_same(shown: str, said: str, identities: Identities) -> bool:
    pattern = re.escape(normal(_ID.sub("<id>", shown))).replace("…", ".*").replace("<id>", "([0-9a-f]{16})")
    found = re.fullmatch(pattern, normal(said))
    if found is None:
        return False
    pairs = list(zip(_ID.findall(shown), found.groups(), strict=True))
    if any(identities.known.get(name, real) != real for name, real in pairs):
        return False
    identities.known.update(pairs)
    return True
