"""Put the figures of RESULTS.md into the README and docs/how-fast.md: each is looked up, none is typed.

    python benchmarks/readme.py [--check]

`figures.md` is the README's section, and `how_fast.md` that of docs/how-fast.md, with places for figures:
``{{section > table > row > column}}``, by the name of the benchmark, the beginning of a table's title (or ``...`` and a
part of it), the first cell of a row, and a column's head. A fifth word asks for the ``low`` or ``high`` end of the
range (of one run, the figure itself); without one it is the figure alone, without range and unit of seconds. Where
RESULTS.md does not have a figure, the line of a table, or the paragraph, that quotes it is left out.
"""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
RESULTS = HERE / "RESULTS.md"
#: By template, the page that has its text, between two marks.
PAGES = {
    HERE / "figures.md": HERE.parent / "README.md",
    HERE / "how_fast.md": HERE.parent / "docs" / "how-fast.md",
}
PLACE = re.compile(r"\{\{([^{}]+)\}\}")
RANGE = re.compile(r" \((\S+) to (\S+)\)")

#: By section: (title, by the first cell of a row: by column: cell).
Tables = dict[str, list[tuple[str, dict[str, dict[str, str]]]]]


def cells(line: str) -> list[str]:
    """The cells of a line of a Markdown table."""
    return [cell.strip() for cell in line.strip().strip("|").split(" | ")]


def tables_of(results: str) -> Tables:
    """All tables of RESULTS.md; of columns with one head the first counts."""
    found: Tables = {}
    for part in re.split(r"^(?=## )", results, flags=re.MULTILINE)[1:]:
        name = re.search(r"\(`(\w+)\.py`\)", part.split("\n", 1)[0])
        if name is None:
            continue
        for title, text in re.findall(r"^\*\*(.+)\*\*\n\n((?:\|.*\n?)+)", part, flags=re.MULTILINE):
            heads, _, *lines = [cells(line) for line in text.strip().split("\n")]
            rows = {line[0]: dict(reversed(list(zip(heads, line, strict=True)))) for line in lines}
            found.setdefault(name[1], []).append((title, rows))
    return found


def figure(tables: Tables, path: str) -> str:
    """What stands at ``path``.

    Raises
    ------
    KeyError
        There is nothing.
    """
    section, begin, row, column, *part = (word.strip() for word in path.split(" > "))
    for title, rows in tables.get(section, []):
        is_it = begin[3:] in title if begin.startswith("...") else title.startswith(begin)
        if not is_it or row not in rows:
            continue
        heads = [head for head in rows[row] if head in (column, f"{column} (range)")]
        if not heads:
            continue
        cell = rows[row][heads[0]]
        ends = RANGE.search(cell)
        if part and ends is not None:
            return ends[1] if part == ["low"] else ends[2]
        if cell == "-":
            return cell
        return re.sub(r"^(\**[\d.,]+) s(\**)$", r"\1\2", RANGE.sub("", cell))
    raise KeyError(path)


def render(template: str, results: str, missing: list[str] | None = None) -> str:
    """The template with its figures; paths that lead nowhere are added to ``missing``."""
    tables, missing = tables_of(results), missing if missing is not None else []

    def filled(text: str) -> str | None:
        try:
            return PLACE.sub(lambda place: figure(tables, place[1]), text)
        except KeyError as error:
            missing.append(str(error.args[0]))
            return None

    blocks = []
    for block in template.strip().split("\n\n"):
        if not block.startswith("|"):
            blocks.append(filled(block))
            continue
        head, rule, *lines = block.split("\n")
        known = [line for line in map(filled, lines) if line is not None]
        blocks.append("\n".join([head, rule, *known]) if known else None)
    # A sentence that announces a table goes with it.
    kept = [
        block
        for block, after in zip(blocks, [*blocks[1:], ""], strict=True)
        if block is not None and not (after is None and block.endswith(":"))
    ]
    return "\n\n".join(kept)


def marks(template: Path) -> tuple[str, str]:
    """The lines in a page between which the text of ``template`` stands."""
    return f"<!-- from benchmarks/{template.name}: begin -->", f"<!-- from benchmarks/{template.name}: end -->"


def section_of(page: str, template: Path) -> str:
    """What stands between the marks."""
    begin, end = marks(template)
    return page.split(begin)[1].split(end)[0].strip()


def written(page: str, template: Path, text: str) -> str:
    """The page with ``text`` between its marks."""
    begin, end = marks(template)
    before, rest = page.split(begin)
    return f"{before}{begin}\n\n{text}\n\n{end}{rest.split(end)[1]}"


def update() -> list[str]:
    """Write the pages' sections anew; figures that RESULTS.md does not have."""
    missing: list[str] = []
    results = RESULTS.read_text(encoding="utf-8")
    for template, page in PAGES.items():
        text = render(template.read_text(encoding="utf-8"), results, missing)
        page.write_text(written(page.read_text(encoding="utf-8"), template, text), encoding="utf-8")
    return missing


def main() -> None:
    """Write, or check that there is nothing to write."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    arguments.add_argument("--check", action="store_true", help="change nothing; fail where a page differs")
    if arguments.parse_args().check:
        results = RESULTS.read_text(encoding="utf-8")
        for template, page in PAGES.items():
            text = render(template.read_text(encoding="utf-8"), results)
            if section_of(page.read_text(encoding="utf-8"), template) != text:
                sys.exit(f"{page.name} quotes other figures than RESULTS.md has: run python benchmarks/readme.py")
        return
    for path in update():
        print(f"RESULTS.md has no {path}", file=sys.stderr)


if __name__ == "__main__":
    main()
