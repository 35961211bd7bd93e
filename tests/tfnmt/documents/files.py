"""Documents of each format, made by the library that is usual for it."""

import io
from collections.abc import Callable

import docx
import pptx
from odf.draw import Frame, Page, TextBox
from odf.opendocument import OpenDocumentPresentation, OpenDocumentText
from odf.style import MasterPage, PageLayout
from odf.text import H, LineBreak, P, S, Span

from tests.archives import make_zip

CONTAINER = '<container xmlns="urn:oasis:names:tc:opendocument:xmlns:container"/>'

PAGE = """<?xml version="1.0"?>
<!DOCTYPE html>
<html xmlns="http://www.w3.org/1999/xhtml"><head><title>The book</title></head><body>
<h1>One two</h1><ul><li>three <b>four</b>
five<ul><li>six</li></ul></li></ul><p>a<br/>b <img alt="an image" src="x.png"/></p>
<pre>keep this</pre></body></html>"""


def make_docx() -> bytes:
    document = docx.Document()
    document.add_heading("The title", 1)
    paragraph = document.add_paragraph("one ")
    paragraph.add_run("two").bold = True
    paragraph.add_run(" three ")
    paragraph.add_run("four").italic = True
    paragraph.add_run(".\tafter")
    document.add_table(1, 1).cell(0, 0).text = "a cell"
    document.sections[0].header.paragraphs[0].text = "the header"
    return _saved(document.save)


def make_pptx() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[1])
    slide.shapes.title.text = "The title"
    paragraph = slide.placeholders[1].text_frame.paragraphs[0]
    paragraph.add_run().text = "one and "
    bold = paragraph.add_run()
    bold.text, bold.font.bold = "two", True
    slide.notes_slide.notes_text_frame.text = "a note"
    return _saved(presentation.save)


def make_odt() -> bytes:
    document = OpenDocumentText()
    document.text.addElement(H(outlinelevel=1, text="The title"))
    paragraph = P(text="one ")
    paragraph.addElement(Span(text="two"))
    paragraph.addText(" three")
    paragraph.addElement(S(c=1))
    paragraph.addText("four")
    paragraph.addElement(LineBreak())
    paragraph.addText("five")
    document.text.addElement(paragraph)
    return _saved(document.save)


def make_odp() -> bytes:
    document = OpenDocumentPresentation()
    layout = PageLayout(name="layout")
    master = MasterPage(name="master", pagelayoutname=layout)
    document.automaticstyles.addElement(layout)
    document.masterstyles.addElement(master)
    page, frame, box = Page(masterpagename=master), Frame(), TextBox()
    paragraph = P(text="one ")
    paragraph.addElement(Span(text="two"))
    for parent, child in ((box, paragraph), (frame, box), (page, frame)):
        parent.addElement(child)
    document.presentation.addElement(page)
    return _saved(document.save)


def make_epub() -> bytes:
    files = {"mimetype": "application/epub+zip", "META-INF/container.xml": CONTAINER}
    return make_zip({**files, "page.xhtml": PAGE, "image.png": "\0binary"})


def _saved(save: Callable[[io.BytesIO], object]) -> bytes:
    content = io.BytesIO()
    save(content)
    return content.getvalue()


MARKDOWN = b"""---
title: keep this
---
# The title

One *two* with a [link](http://x.org/a_b "T") and `code x`.
Second line.

> quoted
> text

- [ ] a task
- 1\\. b **c**

| a | b |
|---|---|
| c | d |

```
keep this
```
<div>keep this</div>
"""

SRT = b"""1
00:00:01,000 --> 00:00:02,000
Hello <i>my</i> friends,
how are you?

2
00:00:03,000 --> 00:00:04,000
Bye!
"""

VTT = b"""WEBVTT - keep this

NOTE keep this

STYLE
::cue {}

first
00:01.000 --> 00:02.000 align:start
<v Bob>Hello there
"""

PO = b"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=UTF-8\\n"
"Plural-Forms: nplurals=3; plural=(n != 1);\\n"

#: keep.c:1
msgid "Open the %s file"
msgstr ""

msgid "one file"
msgid_plural "%d files"
msgstr[0] ""
msgstr[1] ""
msgstr[2] ""

msgid "old"
msgstr "keep"
"""

XLIFF_1 = b"""<xliff version="1.2" xmlns="urn:oasis:names:tc:xliff:document:1.2"><file
 source-language="en" original="x" datatype="plaintext"><body><trans-unit id="1"><source>one <g
 id="1">two</g> three<x id="2"/></source></trans-unit><trans-unit id="2" translate="no"><source>keep
</source></trans-unit><trans-unit id="3"><source>old</source><target>keep</target></trans-unit>
</body></file></xliff>"""

XLIFF_2 = b"""<xliff version="2.0" srcLang="en" xmlns="urn:oasis:names:tc:xliff:document:2.0">
<file id="f"><unit id="1"><segment><source>one <pc id="1">two</pc> three<ph id="2"/></source>
</segment></unit></file></xliff>"""

TMX = b"""<tmx version="1.4"><header/><body><tu><tuv xml:lang="en-US"><seg>one <hi>two</hi></seg>
</tuv></tu></body></tmx>"""

FILES = {
    "a.txt": b"One.\r\n\r\n  two\n",
    "a.md": MARKDOWN,
    "a.html": b"<p>one <b>two</b></p>",
    "a.docx": make_docx(),
    "a.pptx": make_pptx(),
    "a.odt": make_odt(),
    "a.odp": make_odp(),
    "a.epub": make_epub(),
    "a.srt": SRT,
    "a.vtt": VTT,
    "a.po": PO,
    "a.xlf": XLIFF_1,
    "a.xliff": XLIFF_2,
    "a.tmx": TMX,
}
