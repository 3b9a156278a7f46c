"""The frame of a page and the blocks in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files
from math import isfinite
from string import Template

from afterword.pages.tidy import tidy

PAGE = Template("""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>$title</title>
<style>
$css</style>
</head>
<body>
<header>
$header
</header>
<main>
$sections
</main>
</body>
</html>
""")


def page(title: str, header: str, sections: Iterable[str], css: str = "") -> str:
    """Return a whole page: its style inside, no scripts, nothing loaded.

    Args:
        title: Plain text; it is escaped here.
        header: HTML above the sections, the only `h1` in it.
        sections: HTML of each section, as `section` makes it.
        css: Style of what only this page has, after `page.css`.
    """
    base = (files("afterword.pages") / "page.css").read_text(encoding="utf-8")
    return PAGE.substitute(title=escaped(title), css=base + css, header=header, sections="\n".join(sections))


def escaped(text: object) -> str:
    """Return a text as HTML that shows it, on one line and without codes that would turn or hide what follows."""
    return escape(tidy(str(text)))


def section(name: str, heading: str, body: str) -> str:
    """Return a section; `name` is unique on the page, all three are HTML."""
    return f'<section aria-labelledby="{name}">\n<h2 id="{name}">{heading}</h2>\n{body}\n</section>'


def bar(share: float) -> str:
    """Return a bar of 0 to 1 of its length; the number itself must stand beside it."""
    width = 100 * min(max(share, 0.0), 1.0) if isfinite(share) else 0.0
    return f'<span class="bar" aria-hidden="true"><span style="width:{width:.1f}%"></span></span>'


def table(caption: str, head: Sequence[str], rows: Iterable[Sequence[str]], kind: str = "") -> str:
    """Return a table; the roles keep it one for a screen reader where a narrow screen shows it as blocks.

    Args:
        caption: What it shows, as HTML.
        head: Names of the columns, as HTML without tags: narrow screens show them as labels.
        rows: Cells of each row, as HTML; the first one names the row.
        kind: CSS classes; `stack` for columns of numbers that become a block a row on a narrow screen.
    """
    top = "".join(f'<th role="columnheader" scope="col">{name}</th>' for name in head)
    body = "".join(f'<tr role="row">{_cells(head, row)}</tr>\n' for row in rows)
    return (
        f'<table role="table" class="{kind}"><caption>{caption}</caption>\n<thead role="rowgroup"><tr role="row">{top}'
        f'</tr></thead>\n<tbody role="rowgroup">\n{body}</tbody></table>'
    )


def _cells(head: Sequence[str], row: Sequence[str]) -> str:
    rest = zip(head[1:], row[1:], strict=True)
    return f'<th role="rowheader" scope="row">{row[0]}</th>' + "".join(
        f'<td role="cell" data-label="{name}">{value}</td>' for name, value in rest
    )
