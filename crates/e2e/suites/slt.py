"""Reads and writes the part of the sqllogictest syntax that the suites use.

Records are separated by empty lines and begin with any number of `#` comments and `skipif LABEL` or `onlyif LABEL`:

    statement ok            statement error [PATTERN]           query LETTERS [rowsort]         query error [PATTERN]
    SQL                     SQL                                 SQL                             SQL
                                                                ----
                                                                rows, see render.py
"""

import dataclasses


@dataclasses.dataclass
class Record:
    line: int
    head: list  # comments and conditions, as they are
    verb: str  # "statement", "query", or "" for text that only stands there
    words: list  # what follows the verb
    sql: str = ""
    rows: list = None  # lists of cells

    def applies(self, label):
        """Whether the conditions let a runner with this label run it."""
        conditions = [line.split() for line in self.head if line.startswith(("skipif ", "onlyif "))]
        return all((name == label) == (verb == "onlyif") for verb, name in conditions if verb == "onlyif" or name == label)

    @property
    def fails(self):
        return self.words[:1] == ["error"]

    @property
    def unordered(self):
        return "rowsort" in self.words

    def text(self):
        lines = list(self.head)
        if self.verb:
            lines += [" ".join([self.verb, *self.words]), self.sql]
        if self.rows is not None:
            lines += ["----", *("\t".join(row) for row in self.rows)]
        return "\n".join(lines)


def read(path):
    records, block, start = [], [], 1
    for number, line in enumerate(path.read_text().split("\n") + [""], 1):
        if line:
            if not block:
                start = number
            block.append(line)
        elif block:
            records.append(parse(block, start))
            block = []
    return records


def write(path, records):
    path.write_text("\n\n".join(record.text() for record in records) + "\n")


def parse(block, line):
    heads = 0
    while heads < len(block) and block[heads].startswith(("#", "skipif ", "onlyif ")):
        heads += 1
    if heads == len(block):
        return Record(line, block, "", [])
    verb, *words = block[heads].split()
    if verb not in ("statement", "query") or not words:
        raise ValueError(f"line {line + heads}: expected a statement or query, got {block[heads]!r}")
    body = block[heads + 1 :]
    rows = None
    if "----" in body:
        cut = body.index("----")
        body, rows = body[:cut], [row.split("\t") for row in body[cut + 1 :]]
    elif verb == "query" and words[0] != "error":
        rows = []
    return Record(line + heads, block[:heads], verb, words, "\n".join(body), rows)
