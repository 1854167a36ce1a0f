"""Tables of words and figures as text and as HTML without scripts. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

#: Cells of one row, or of the head.
Cells = Sequence[str]
_MUTED = "color:var(--jp-ui-font-color2,#5f6368)"
_RULE = "border:0;border-bottom:1px solid var(--jp-border-color2,#d8dadd)"


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


def html_table(head: Cells, rows: Sequence[Cells], left: int = 1, *, strong: int | None = None, note: str = "") -> str:
    """The table as HTML, in a box in which it can be scrolled sideways where it is too wide for the page.

    ``strong``: the number of a row in bold; ``note``: a line below it.
    """

    def cells(row: Cells, tag: str, style: str) -> str:
        return "".join(
            f'<{tag} style="{style};text-align:{"left" if column < left else "right"};padding:3px 10px 3px 0">'
            f"{escape(cell)}</{tag}>"
            for column, cell in enumerate(row)
        )

    lines = [f'<tr style="background:none">{cells(head, "th", f"{_RULE};{_MUTED};font-weight:400")}</tr>']
    for number, row in enumerate(rows):
        weight = "font-weight:600" if number == strong else "font-weight:400"
        lines.append(f'<tr style="background:none">{cells(row, "td", f"{_RULE};{weight};white-space:nowrap")}</tr>')
    below = f'<div style="font-size:12px;{_MUTED};margin-top:4px">{escape(note)}</div>' if note else ""
    return (
        '<div class="mlless-scroll mathjax_ignore tex2jax_ignore" style="overflow-x:auto">'
        '<table style="border-collapse:collapse;margin:0;font-size:12px;font-variant-numeric:tabular-nums">'
        f"{''.join(lines)}</table>{below}</div>"
    )
