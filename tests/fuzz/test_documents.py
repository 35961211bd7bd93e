"""HTML, documents and glossaries of any content: used or refused, without new scripts."""

import random
from collections import Counter
from collections.abc import Iterator, Sequence

import numpy as np
from hypothesis import example, given
from hypothesis import strategies as st
from selectolax.lexbor import LexborHTMLParser, LexborNode

from tests.tfnmt.documents.files import FILES
from tests.tfnmt.documents.translators import Aligned, UpperCase
from tfnmt.documents.archive import Limits
from tfnmt.documents.formats import Languages, read_document
from tfnmt.documents.glossary import parse_glossary
from tfnmt.documents.html import read_html
from tfnmt.documents.translation import Options, translate_segments
from tfnmt.errors import UserError

TAGS = [
    *("a", "b", "i", "em", "span", "p", "div", "ul", "li", "table", "tr", "td", "th", "h1", "br"),
    *("img", "hr", "code", "pre", "script", "style", "title", "textarea", "select", "option"),
    *("svg", "math", "template", "noscript", "ruby", "rt", "custom-x", "head", "body", "html"),
    *("form", "input", "iframe"),
]
ATTRIBUTES = ["", ' id="x"', " title='a b'", ' alt="<b>"', " translate=no", ' class="notranslate"']
TEXTS = [
    *("one ", "two three. ", " ", "\n", "a<b ", "&amp;", "&nbsp;", "&lt;script&gt;", "<", ">", '"'),
    *("https://x.org/a?b=c ", "{name} ", "12 km ", "\u00e9\U0001f600", "<!-- c -->", "<!--", "-->"),
    *("<![CDATA[x]]>", "<?php x ?>", "<!DOCTYPE html>", "</", "\0", "x" * 40),
]
FRAGMENTS = [
    *(f"<{tag}{attribute}>" for tag in TAGS for attribute in ATTRIBUTES),
    *(f"</{tag}>" for tag in TAGS * 3),
    *TEXTS * 6,
]
HTML = st.lists(st.sampled_from(FRAGMENTS), max_size=30).map("".join)

EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(1)>&lt;<!-- --> </p></title>"


class Chaos(UpperCase):
    """Any words in any order with any alignment, and sometimes markup."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self._random = random.Random(seed)

    def translate_one(self, sentence: str) -> str:
        words = [word for word in sentence.split() if self._random.random() < 0.8]
        self._random.shuffle(words)
        return " ".join(words) + (EVIL if self._random.random() < 0.3 else "")

    def align_one(self, source: list[str], target: list[str]) -> Aligned:
        aligned = super().align_one(source, target)
        shape = (len(aligned.target), len(aligned.source))
        return aligned._replace(attention=np.random.default_rng(len(source)).random(shape))


def nodes(text: str) -> Iterator[LexborNode]:
    page = text.lstrip().lower().startswith(("<!doctype", "<html", "<head", "<body"))
    root = LexborHTMLParser(text if page else f"<!---->{text}", is_fragment=not page).root
    if root is not None:  # its siblings are traversed as well
        yield from root.traverse(include_text=True)


def tags(text: str) -> Counter[str]:
    return Counter(node.tag for node in nodes(text) if node.is_element_node and node.tag)


def scripts(text: str) -> list[str | None]:
    """Return all that a browser would run: scripts, and the names of attributes with code."""
    elements = [node.html for node in nodes(text) if node.tag in ("script", "iframe", "style")]
    attributes = {name for node in nodes(text) if node.is_element_node for name in node.attributes}
    return [*elements, *sorted(name for name in attributes if name.startswith("on"))]


@given(text=HTML, seed=st.integers(0, 1000))
@example(text="<b>" * 300, seed=0)
@example(text="<a>\u00e9", seed=0)
@example(text="x<a></a><a><code>y</code></a>", seed=0)
@example(text='<noscript><p title="</noscript><img src=x onerror=alert(1)>">', seed=1)
@example(text="<svg><style>&lt;img src=x onerror=alert(1)&gt;", seed=1)
@example(text="<template><svg><script>&lt;script&gt;", seed=1)
@example(text="<title><b>one</b></title><textarea></title>two</textarea>", seed=2)
@example(text="<svg></p><style><a id='</style><img src=1 onerror=alert(1)>'>", seed=3)
def test_html_keeps_all_tags_and_gets_no_script(text: str, seed: int) -> None:
    try:
        document = read_html(text)
    except UserError:
        return
    translate_segments(document.segments, Chaos(seed), Options())
    output = document.write().decode()
    # HTML cannot express some trees, such as unfinished scripts: compare with the same page
    # without a translation.
    same = read_html(text).write().decode()
    lost = tags(same) - tags(output)
    assert not lost, (output, lost)
    assert scripts(output) == scripts(same), output
    assert len(scripts(output)) <= len(scripts(text)), output


@given(
    name=st.sampled_from(sorted(FILES)),
    seed=st.integers(0, 1000),
    edits=st.lists(
        st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=20)), max_size=4
    ),
)
def test_damaged_document_is_translated_or_refused(
    name: str, seed: int, edits: Sequence[tuple[float, int, bytes]]
) -> None:
    content = bytearray(FILES[name])
    for position, length, replacement in edits:
        start = int(position * len(content))
        content[start : start + length] = replacement
    try:
        document = read_document(bytes(content), name, Limits(), Languages("en", "de"))
        translate_segments(document.segments, Chaos(seed), Options())
        document.write()
    except UserError:
        pass


GLOSSARY = st.lists(
    st.sampled_from(
        ["dog", "Hund", "#", "\t", "\n", "\r", "\ufeff", "\u2028", "\u0130", "\U0001f600", " "]
    ),
    max_size=30,
).map(lambda parts: "".join(parts).encode())


@given(content=st.binary() | GLOSSARY, text=st.text())
def test_glossary_of_any_bytes_finds_terms_or_is_refused(content: bytes, text: str) -> None:
    try:
        glossary = parse_glossary(content)
    except UserError:
        return
    end = 0
    for match in glossary.find(f"{text} dog Hund {content.decode()}"):
        assert end <= match.span.start < match.span.end
        end = match.span.end
