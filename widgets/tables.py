"""Tables of words and figures as text and as HTML without scripts. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from html import escape

#: Cells of one row, or of the head.
Cells = Sequence[str]
_MUTED = "color:var(--jp-ui-font-color2,#5f6368)"
_RULE = "border:0;border-bottom:1px solid var(--jp-border-color2,#d8dadd)"
#: Most letters of a cell that stays in one line on a narrow page: a figure with its unit.
_SHORT = 8


def text_table(head: Cells, rows: Sequence[Cells], left: int = 1) -> str:
    """The table as lines; the first ``left`` columns are words, the others figures, flush right."""
    every = [head, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(head))]
    lines = [
        "  ".join(
            cell.ljust(width) if column < left else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in every
    ]
    return "\n".join(lines)


def html_table(
    head: Cells,
    rows: Sequence[Cells],
    left: int = 1,
    *,
    strong: int | None = None,
    strong_column: int | None = None,
    note: str = "",
) -> str:
    """The table as HTML. Where the page is too narrow for it, words and names are broken.

    One that is too wide even so can be scrolled sideways in its box. ``strong`` and ``strong_column``: the numbers of a
    row and of a column in bold; ``note``: a line below it.
    """

    def cells(row: Cells, tag: str, style: str, *, is_strong: bool = False) -> str:
        return "".join(
            f'<{tag} style="{style};font-weight:{600 if is_strong or column == strong_column else 400};text-align:'
            f"{'left' if column < left else 'right'};padding:3px 0 3px {10 * (column > 0)}px;white-space:"
            f'{"nowrap" if len(cell) <= _SHORT else "normal"}">'
            f"{broken(cell) if tag == 'th' or column < left else escape(cell)}</{tag}>"
            for column, cell in enumerate(row)
        )

    lines = [f'<tr style="background:none">{cells(head, "th", f"{_RULE};{_MUTED}")}</tr>']
    for number, row in enumerate(rows):
        lines.append(f'<tr style="background:none">{cells(row, "td", _RULE, is_strong=number == strong)}</tr>')
    below = f'<div style="font-size:12px;{_MUTED};margin-top:4px">{escape(note)}</div>' if note else ""
    return (
        '<div class="mlless-scroll mathjax_ignore tex2jax_ignore" style="overflow-x:auto">'
        '<table style="border-collapse:collapse;margin:0;font-size:12px;font-variant-numeric:tabular-nums">'
        f"{''.join(lines)}</table>{below}</div>"
    )


def broken(name: str) -> str:
    """``name`` as HTML that a line may break in: ``optimizer.``, ``learning_``, ``rate``."""
    return re.sub(r"([._])(?=\w)", r"\1<wbr>", escape(name))
