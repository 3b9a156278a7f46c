"""The frame and the blocks of a page."""

from __future__ import annotations

import re

from afterword.pages.html import bar, escaped, page, section, table
from afterword.pages.tidy import tidy
from tests.pages.reader import Page


def test_a_page_is_whole_and_loads_nothing() -> None:
    text = page("a <b> & $css", "<h1>One</h1>", [section("s", "Two", "<p>$title</p>")], ".only-here { margin: 0; }\n")
    read = Page(text)
    assert "a <b> & $css" in read.text and "$title" in read.text
    assert ".only-here" in text and ":root" in text
    policy = next(meta for meta in read.named("meta") if "http-equiv" in meta)
    assert policy["content"] == "default-src 'none'; style-src 'unsafe-inline'"
    assert not re.search(r"https?:|url\(|@import|<script", text)
    assert read.named("section") == [{"aria-labelledby": "s"}]


def test_a_table_says_its_roles_and_labels() -> None:
    read = Page(table("about", ["name", "one", "two"], [["a", "1", "2"], ["b", "3", "4"]], "stack"))
    assert [cell["data-label"] for cell in read.named("td")] == ["one", "two"] * 2
    assert [cell["role"] for cell in read.named("th")] == ["columnheader"] * 3 + ["rowheader"] * 2
    assert read.named("table")[0]["class"] == "stack"
    assert len(read.named("caption")) == 1


def test_a_bar_stays_within_its_bounds() -> None:
    shares = {0.5: "50.0%", -1.0: "0.0%", 7.0: "100.0%", float("nan"): "0.0%", float("inf"): "0.0%"}
    for share, width in shares.items():
        assert f'style="width:{width}"' in bar(share)


def test_texts_of_others_are_harmless() -> None:
    assert tidy("a\r\n\tb\ud83d\ude00\udc00") == "a b😀\ufffd"
    assert tidy("\u202eturned \x1b[31mred\x00") == "turned [31mred"
    assert tidy("שלום \u2066x\u2069") == "שלום x"
    assert escaped('<a href="x">\'&') == "&lt;a href=&quot;x&quot;&gt;&#x27;&amp;"
    assert escaped(3) == "3"
