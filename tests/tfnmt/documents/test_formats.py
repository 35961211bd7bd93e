"""Each format: the text is translated, everything else is kept, and bad files are refused."""

import io
import tracemalloc
import zipfile

import docx
import pptx
import pytest
from lxml import etree

from tests.archives import make_zip
from tests.tfnmt.documents.files import CONTAINER, FILES, PAGE, make_docx
from tests.tfnmt.documents.translators import Reversed, UpperCase
from tfnmt.documents.archive import Limits
from tfnmt.documents.formats import FORMATS, Languages, read_document, suffix_of
from tfnmt.documents.markdown import BREAK
from tfnmt.documents.segments import Piece, Translator
from tfnmt.documents.translation import Options, translate_segments
from tfnmt.errors import UserError

LANGUAGES = Languages("en", "de")


def translate(
    name: str, content: bytes | None = None, translator: Translator | None = None
) -> bytes:
    document = read_document(content or FILES[name], name, Limits(), LANGUAGES)
    translate_segments(document.segments, translator or UpperCase(), Options())
    return document.write()


def test_each_format_has_a_file_and_round_trips_without_a_translation() -> None:
    assert {suffix_of(name) for name in FILES} | {".htm"} == FORMATS.keys()
    for name, content in FILES.items():
        written = read_document(content, name, Limits(), LANGUAGES).write()
        again = read_document(written, name, Limits(), LANGUAGES)
        assert again.write() == written


@pytest.mark.parametrize("name", FILES)
def test_texts_to_keep_are_kept(name: str) -> None:
    assert translate(name).count(b"keep") == FILES[name].count(b"keep")


def test_text_keeps_its_line_breaks() -> None:
    assert translate("a.txt") == b"ONE.\r\n\r\n  TWO\n"
    assert translate("a.txt", "é\n".encode("utf-16")) == "É\n".encode()


def test_blank_lines_of_a_text_need_no_memory_of_their_own() -> None:
    lines = 1_000_000
    content = b"\n" * lines + b"one\n"
    tracemalloc.start()
    document = read_document(content, "a.txt", Limits(), LANGUAGES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * lines
    translate_segments(document.segments, UpperCase(), Options())
    assert document.write() == b"\n" * lines + b"ONE\n"


@pytest.mark.parametrize("name", ["a.txt", "a.md", "a.srt"])
def test_length_of_a_text_is_checked_before_its_lines_need_memory(name: str) -> None:
    lines = 100_000
    tracemalloc.start()
    with pytest.raises(UserError, match="the limit is 50000"):
        read_document(b"\n" * lines, name, Limits(characters=lines // 2), LANGUAGES)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 10 * lines


def test_docx_keeps_the_style_of_each_run() -> None:
    document = docx.Document(io.BytesIO(translate("a.docx", translator=Reversed())))
    title, paragraph = document.paragraphs
    assert (title.text, title.style.name) == ("TITLE THE", "Heading 1")
    styles = [(run.text.strip(), run.bold, run.italic) for run in paragraph.runs]
    assert styles == [
        ("FOUR", None, True),
        ("THREE", None, None),
        ("TWO", True, None),
        ("ONE.", None, None),
        ("", None, None),  # the tab
        ("AFTER", None, None),
    ]
    assert paragraph.text == "FOUR THREE TWO ONE.\tAFTER"
    assert document.tables[0].cell(0, 0).text == "CELL A"
    assert document.sections[0].header.paragraphs[0].text == "HEADER THE"


OFFICE = "http://schemas.openxmlformats.org"
RELATIONSHIPS = f"{OFFICE}/officeDocument/2006/relationships"


def run(content: str) -> str:
    return f"<w:r>{content}</w:r>"


def translate_paragraph(content: str, translator: Translator | None = None) -> etree._Element:
    """Return the translated part of a docx with one paragraph."""
    namespaces = f'xmlns:w="{OFFICE}/wordprocessingml/2006/main" xmlns:r="{RELATIONSHIPS}"'
    page = f"<w:document {namespaces}><w:body><w:p>{content}</w:p></w:body></w:document>"
    translated = translate("a.docx", make_zip({"word/document.xml": page}), translator)
    with zipfile.ZipFile(io.BytesIO(translated)) as archive:
        return etree.fromstring(archive.read("word/document.xml"))


def written(root: etree._Element) -> list[str]:
    return [each.text for each in root.iter("{*}t") if (each.text or "").strip()]


class Apart(UpperCase):
    """Aligns the second of three words with the last."""

    def source_of(self, row: int, length: int) -> int:
        return [0, 2, 1, 3][row]


def test_docx_fields_and_text_boxes_are_kept() -> None:
    text = "".join(
        [
            run("<w:t>see page </w:t>"),
            run('<w:fldChar w:fldCharType="begin"/>') + run("<w:instrText>PAGE</w:instrText>"),
            run('<w:fldChar w:fldCharType="separate"/>') + run("<w:t>seven</w:t>"),
            run('<w:fldChar w:fldCharType="end"/>'),
            '<w:hyperlink w:anchor="x">' + run("<w:t>the link</w:t>") + "</w:hyperlink>",
            run("<w:pict><w:txbxContent><w:p>" + run("<w:t>a box</w:t>") + "</w:p>"
                "</w:txbxContent></w:pict>"),
            '<w:del w:id="1">' + run("<w:delText>gone</w:delText>") + "</w:del>",
        ]
    )  # fmt: skip
    root = translate_paragraph(text)
    assert written(root) == ["SEE PAGE ", "seven", "THE LINK", "A BOX"]
    kinds = [next(iter(each.attrib.values())) for each in root.iter("{*}fldChar")]
    assert kinds == ["begin", "separate", "end"]
    assert len(list(root.iter("{*}hyperlink"))) == len(list(root.iter("{*}delText"))) == 1


def test_docx_with_deeply_nested_empty_texts_is_read_in_one_pass() -> None:
    """Looking for text in each nested paragraph took quadratic time."""
    inner = f"{'<w:p>' * 80}<w:r><w:t>one</w:t></w:r>{'<w:t></w:t>' * 10_000}{'</w:p>' * 80}"
    assert written(translate_paragraph(inner)) == ["ONE"]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "<w:ins><w:smartTag><w:r><w:fldChar w:fldCharType='begin'/></w:r><w:r><w:instrText>PAGE"
            "</w:instrText></w:r><w:r><w:fldChar w:fldCharType='separate'/></w:r></w:smartTag>"
            "</w:ins><w:r><w:t>3</w:t></w:r><w:r><w:fldChar w:fldCharType='end'/></w:r>"
            "<w:r><w:t>then</w:t></w:r>",
            ["3", "THEN"],
        ),
        (
            "<w:r><w:fldChar w:fldCharType='begin'/></w:r><w:ins><w:smartTag><w:r><w:instrText>"
            "HYPERLINK x</w:instrText></w:r></w:smartTag></w:ins><w:r>"
            "<w:fldChar w:fldCharType='separate'/></w:r><w:r><w:t>link</w:t></w:r>"
            "<w:r><w:fldChar w:fldCharType='end'/></w:r>",
            ["LINK"],
        ),
    ],
)
def test_docx_fields_inside_several_elements_are_found(content: str, expected: list[str]) -> None:
    assert written(translate_paragraph(content)) == expected


def control(properties: str, content: str) -> str:
    return (
        f'<w:sdt><w:sdtPr><w:id w:val="7"/>{properties}</w:sdtPr>'
        f"<w:sdtContent>{content}</w:sdtContent></w:sdt>"
    )


def test_docx_text_of_content_controls_is_translated() -> None:
    inner = control("<w:text/>", run("<w:rPr><w:b/></w:rPr><w:t>three</w:t>"))
    text = run("<w:t>one </w:t>") + control('<w:tag w:val="x"/>', run("<w:t>two </w:t>") + inner)
    root = translate_paragraph(text, Reversed())
    assert written(root) == ["THREE ", "TWO ", "ONE"]
    assert [each.getparent().tag for each in root.iter("{*}sdt")] == [
        root.find(".//{*}p").tag,
        root.find(".//{*}sdtContent").tag,
    ]
    assert written(root.find(".//{*}sdt")) == ["THREE ", "TWO "]
    assert len(root.findall(".//{*}sdtPr/{*}tag")) == len(root.findall(".//{*}b")) == 1
    assert [each.tag.rpartition("}")[2] for each in root.find(".//{*}sdt")] == [
        "sdtPr",
        "sdtContent",
    ]


@pytest.mark.parametrize("kind", ["dropDownList", "comboBox", "date", "checkbox"])
def test_docx_chosen_values_of_content_controls_are_kept(kind: str) -> None:
    text = run("<w:t>one </w:t>") + control(f"<w:{kind}/>", run("<w:t>keep</w:t>"))
    assert written(translate_paragraph(text)) == ["ONE ", "keep"]


def test_docx_control_and_link_whose_words_are_apart_are_written_twice() -> None:
    two = run("<w:t>one two</w:t>")
    for around in (control("", two), f'<w:hyperlink r:id="rId3">{two}</w:hyperlink>'):
        root = translate_paragraph(around + run("<w:t> three</w:t>"), Apart())
        assert written(root) == ["ONE ", "TWO ", "THREE"]
        controls, links = root.findall(".//{*}sdt"), root.findall(".//{*}hyperlink")
        assert len(controls or links) == 2
        assert len(root.findall(".//{*}sdtPr/{*}id")) == (1 if controls else 0)
        assert all(link.get(f"{{{RELATIONSHIPS}}}id") == "rId3" for link in links)


def test_docx_main_part_may_have_a_number() -> None:
    renamed = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(FILES["a.docx"])) as archive,
        zipfile.ZipFile(renamed, "w") as target,
    ):
        for name in archive.namelist():
            content = archive.read(name).replace(b"word/document.xml", b"word/document2.xml")
            target.writestr(name.replace("document.xml", "document2.xml"), content)
    document = docx.Document(io.BytesIO(translate("a.docx", renamed.getvalue())))
    assert [paragraph.text for paragraph in document.paragraphs] == [
        "THE TITLE",
        "ONE TWO THREE FOUR.\tAFTER",
    ]


def test_pptx_keeps_the_style_of_each_run() -> None:
    presentation = pptx.Presentation(io.BytesIO(translate("a.pptx", translator=Reversed())))
    slide = presentation.slides[0]
    runs = slide.placeholders[1].text_frame.paragraphs[0].runs
    assert [(run.text.strip(), run.font.bold) for run in runs] == [
        ("TWO", True),
        ("AND ONE", None),
    ]
    assert slide.shapes.title.text == "TITLE THE"
    assert slide.notes_slide.notes_text_frame.text == "NOTE A"


def test_odt_keeps_spans_and_line_breaks() -> None:
    with zipfile.ZipFile(io.BytesIO(translate("a.odt", translator=Reversed()))) as archive:
        assert archive.infolist()[0].filename == "mimetype"
        assert archive.infolist()[0].compress_type == zipfile.ZIP_STORED
        content = archive.read("content.xml").decode()
    expected = "FOUR THREE <text:span>TWO</text:span> ONE<text:line-break/>FIVE</text:p>"
    assert expected in content


def odt(paragraph: str) -> bytes:
    namespace = 'xmlns:text="urn:oasis:names:tc:opendocument:xmlns:text:1.0"'
    return make_zip({"content.xml": f"<a {namespace}><text:p>{paragraph}</text:p></a>"})


def test_odt_spaces_are_text() -> None:
    text = 'one<text:s/>two<text:s text:c="2"/><text:s/><text:span>three<text:s/>four</text:span>'
    expected = "<text:p>ONE TWO <text:span>THREE FOUR</text:span></text:p>"
    with zipfile.ZipFile(io.BytesIO(translate("a.odt", odt(text)))) as archive:
        assert expected in archive.read("content.xml").decode()


def test_odt_many_spaces_are_read_and_written_at_once() -> None:
    content = odt(f"one{'<text:s/>' * 300_000}two")
    document = read_document(content, "a.odt", Limits(), LANGUAGES)
    assert [segment.text for segment in document.segments] == ["one two"]
    document.write()


@pytest.mark.parametrize("between", ["<!---->", "<text:line-break/>"])
def test_odt_with_much_text_between_elements_is_written_at_once(between: str) -> None:
    """Each text was appended in a time that grows with the text before it."""
    translated = translate("a.odt", odt(f"x{between}" * 20_000))
    with zipfile.ZipFile(io.BytesIO(translated)) as archive:
        assert archive.read("content.xml").count(b"X") == 20_000


def test_odp_keeps_spans() -> None:
    with zipfile.ZipFile(io.BytesIO(translate("a.odp", translator=Reversed()))) as archive:
        assert "<text:span>TWO</text:span> ONE</text:p>" in archive.read("content.xml").decode()


def test_epub_picture_with_a_title_does_not_end_a_sentence() -> None:
    svg = '<svg xmlns="http://www.w3.org/2000/svg"><title>keep</title></svg>'
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><body><p>a {svg} b</p></body></html>'
    translator = UpperCase()
    files = {"META-INF/container.xml": CONTAINER, "page.xhtml": page}
    with zipfile.ZipFile(io.BytesIO(translate("a.epub", make_zip(files), translator))) as archive:
        assert f"<p>A {svg} B</p>" in archive.read("page.xhtml").decode()
    assert len(translator.texts) == 1


def translate_page(body: str) -> str:
    """Return the body of a translated book with one page."""
    page = f'<html xmlns="http://www.w3.org/1999/xhtml"><body>{body}</body></html>'
    translated = translate(
        "a.epub", make_zip({"META-INF/container.xml": CONTAINER, "page.xhtml": page})
    )
    with zipfile.ZipFile(io.BytesIO(translated)) as archive:
        text = archive.read("page.xhtml").decode()
    return text.partition("<body>")[2].partition("</body>")[0]


def test_epub_attributes_of_inline_elements_are_translated() -> None:
    body = '<p><a title="hello world">read <i title="one">more</i> here</a></p>'
    expected = '<p><a title="HELLO WORLD">READ <i title="ONE">MORE</i> HERE</a></p>'
    assert translate_page(body) == expected


def test_epub_attributes_inside_of_excluded_elements_are_kept() -> None:
    image = '<img alt="secret name"/>'
    body = f'<div translate="no"><p>{image}</p></div><p>one <i translate="no">{image}</i></p>'
    assert translate_page(body) == body.replace("one", "ONE")


def test_epub_keeps_its_structure() -> None:
    with zipfile.ZipFile(io.BytesIO(translate("a.epub"))) as archive:
        page = archive.read("page.xhtml").decode()
        assert archive.read("image.png") == b"\0binary"
    for part in (
        "<title>THE BOOK</title>",
        "<li>THREE <b>FOUR</b> FIVE<ul><li>SIX</li></ul></li>",
        '<p>A<br/>B <img alt="AN IMAGE" src="x.png"/></p>',
        "<pre>keep this</pre>",
    ):
        assert part in page


REVERSED_MARKDOWN = """---
title: keep this
---
# TITLE THE

LINE SECOND `code x`. AND [LINK](http://x.org/a_b "T") A WITH *TWO* ONE.

> TEXT QUOTED

- [ ] TASK A
- 1\\. **C** B

| A | B |
|---|---|
| C | D |

```
keep this
```
<div>keep this</div>
"""


def test_markdown_is_replaced_in_the_source() -> None:
    assert translate("a.md", translator=Reversed()).decode() == REVERSED_MARKDOWN
    assert b"- [ ] A TASK\n" in translate("a.md")
    assert b"- 1\\. B **C**\n" in translate("a.md")


def test_markdown_space_is_moved_out_of_emphasis() -> None:
    document = read_document(b"*a*\n", "a.md", Limits(), LANGUAGES)
    (segment,) = document.segments
    em = segment.pieces[0].marks[0]
    link = em._replace(number=9, start="[", end="](x)")
    segment.translation = [
        Piece("one ", (link, em)),
        Piece("\n", (link,), BREAK),
        Piece("  ", (em,)),
        Piece("", (link, em)),
        Piece(" two", (em,)),
    ]
    assert document.write() == b"[*one* ](x)\\\n   *two*\n"


def test_markdown_characters_of_a_translation_are_escaped() -> None:
    class Special(UpperCase):
        def translate_one(self, sentence: str) -> str:
            return "# *A* [b](c) <d> | e_f"

    assert translate("a.md", b"one\n", Special()) == rb"\# \*A\* \[b\](c) \<d\> | e\_f" + b"\n"
    table = b"| one |\n|---|\n| two |\n"
    assert rb"\| e\_f |" in translate("a.md", table, Special())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (r"![Config\_file *x*](x.png)", r"![Config\_file *X*](x.png)"),
        ("![a `b_c` [d](e) ![f](g)\nh](x.png)", "![A `b_c` [D](e) ![F](g) H](x.png)"),
        ("![](x.png)", "![](x.png)"),
    ],
)
def test_markdown_description_of_an_image_keeps_its_markup(text: str, expected: str) -> None:
    assert translate("a.md", text.encode()).decode() == expected


def test_subtitles_keep_times_and_lines() -> None:
    srt = translate("a.srt").decode()
    assert "00:00:01,000 --> 00:00:02,000\nHELLO <i>MY</i> FRIENDS,\nHOW ARE YOU?\n\n2\n" in srt
    vtt = translate("a.vtt").decode()
    assert vtt == FILES["a.vtt"].decode().replace("Hello there", "HELLO THERE")


def test_po_fills_missing_translations() -> None:
    content = translate("a.po").decode()
    assert 'msgstr "OPEN THE %s FILE"' in content
    assert 'msgstr[0] "ONE FILE"\nmsgstr[1] "%d FILES"\nmsgstr[2] "%d FILES"' in content
    assert 'msgid "old"\nmsgstr "keep"' in content


def test_xliff_gets_targets_with_inline_elements() -> None:
    assert b'<target>ONE <g id="1">TWO</g> THREE<x id="2"/></target>' in translate("a.xlf")
    assert b"<target>keep</target>" in translate("a.xlf")
    assert b'<target>ONE <pc id="1">TWO</pc> THREE<ph id="2"/></target>' in translate("a.xliff")
    assert b'trgLang="de"' in translate("a.xliff")


def test_xliff_target_does_not_keep_the_language_of_the_source() -> None:
    content = FILES["a.xlf"].replace(b"<source>one", b'<source xml:lang="en">one')
    assert b'<target xml:lang="de">ONE <g' in translate("a.xlf", content)
    assert b'<source xml:lang="en">one <g' in translate("a.xlf", content)


@pytest.mark.parametrize("source", ["pt_BR", "pt-BR", "PT"])
def test_tmx_languages_are_compared_without_their_regions(source: str) -> None:
    variant = '<tuv xml:lang="{}"><seg>{}</seg></tuv>'.format
    unit = f"<tu>{variant('pt-BR', 'um')}{variant('en_US', 'one')}</tu>"
    content = f"<tmx><body>{unit}<tu>{variant('pt-BR', 'dois')}</tu></body></tmx>".encode()
    document = read_document(content, "a.tmx", Limits(), Languages(source, "en-GB"))
    assert [segment.text for segment in document.segments] == ["dois"]
    document = read_document(content, "a.tmx", Limits(), Languages("en", source))
    assert not document.segments


def test_tmx_gets_the_target_language() -> None:
    content = translate("a.tmx")
    assert b'<tuv xml:lang="de"><seg>ONE <hi>TWO</hi></seg>' in content
    assert b'<tuv xml:lang="en-US"><seg>one <hi>two</hi></seg>' in content


ENTITIES = (
    b'<!DOCTYPE x [<!ENTITY a "b"><!ENTITY c SYSTEM "file:///etc/passwd">]><xliff>&c;</xliff>'
)


PLURALS = b"""msgid ""
msgstr "Plural-Forms: nplurals=%b; plural=0;\\n"

msgid "one"
msgid_plural "two"
msgstr[0] ""
"""


CHARSET = b"""msgid ""
msgstr ""
"Content-Type: text/plain; charset=%s\\n"

msgid "one"
msgstr ""
"""

TINY_ELEMENTS = f"<a>{'<b/>' * 1_000_000}</a>"

LONG_LINK = (
    f'<w:p xmlns:w="{OFFICE}/wordprocessingml/2006/main"><w:hyperlink>'
    f"<w:r><w:t>one</w:t></w:r>{'<w:t/>' * 200_000}</w:hyperlink></w:p>"
)

MANY_PROPERTIES = (
    f'<w:p xmlns:w="{OFFICE}/wordprocessingml/2006/main"><w:r><w:rPr>{"<w:b/>" * 2000}</w:rPr>'
    f"<w:t>one</w:t>{'<w:drawing/>' * 2000}</w:r></w:p>"
)
"""Each of the drawings is moved as a run of its own, with all properties."""

LONG_PROPERTY = MANY_PROPERTIES.replace("<w:b/>" * 2000, f'<w:b a="{"x" * 100_000}"/>')


@pytest.mark.parametrize(
    ("charset", "translated"),
    [
        ("UTF-8", "zwölf"),
        (" utf_8", "zwölf"),
        ("UTF-8; format=flowed", "zwölf"),
        ("", "zwölf"),
        ("CHARSET", "zwölf"),
        ("ANSI_X3.4-1968", "zwoelf"),
        ("ISO-8859-15", "zwölf"),
        ("CP1251", "двенадцать"),
        ("KOI8-U", "дванадцять"),
        ("EUC-JP", "十二"),
        ("Shift_JIS", "十二"),
        ("GB18030", "十二"),
        ("Big5", "十二"),
        ("EUC-KR", "열둘"),
    ],
)
def test_po_keeps_translations_in_any_encoding(charset: str, translated: str) -> None:
    text = (CHARSET % charset.encode()).decode() + (
        f'\nmsgid "twelve"\nmsgstr "{translated}"\n'
        '\nmsgid "charset"\nmsgstr "Content-Type: text/html; charset=big5"\n'
    )
    codec = "utf-8" if translated == "zwölf" and "8859" not in charset else charset
    written_file = translate("a.po", text.encode(codec)).decode()
    assert f'msgstr "{translated}"' in written_file
    assert 'msgstr "ONE"' in written_file


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("a.xyz", b"text", "unknown format"),
        ("a", b"text", "unknown format"),
        ("a.txt", b"\xff\xfe\xfa", "UTF-8"),
        ("a.txt", b"\x80", "UTF-8"),
        ("a.md", b"a\0b", "no text"),
        ("a.docx", b"no archive", "damaged"),
        ("a.docx", make_docx()[:2000], "damaged"),
        ("a.docx", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + b"x" * 100, "password"),
        ("a.docx", make_zip({"x": "y"}), "no text of this format"),
        ("a.docx", make_zip({"word/document.xml": "<w:p"}), "well-formed"),
        ("a.docx", make_zip({"word/document.xml": ENTITIES}), "entities"),
        ("a.docx", make_zip({"word/document.xml": TINY_ELEMENTS}), "more than 1,000,000 tags"),
        ("a.docx", make_zip({"word/document.xml": MANY_PROPERTIES}), "too many properties"),
        ("a.docx", make_zip({"word/document.xml": LONG_PROPERTY}), "too many properties"),
        ("a.docx", make_zip({"word/document.xml": LONG_LINK}), "too many elements"),
        ("a.docx", make_zip({"word/document.xml": "<a>" * 300 + "</a>" * 300}), "nested|depth"),
        ("a.pptx", FILES["a.docx"], "no text of this format"),
        ("a.epub", FILES["a.docx"], "no electronic book"),
        ("a.odt", make_zip({"content.xml": b""}), "well-formed"),
        ("a.srt", b"only text\n", "no subtitles"),
        ("a.po", b'msgid "x\n\xff', "PO"),
        ("a.po", PLURALS % b"2000000", "nplurals=2000000"),
        ("a.po", PLURALS % b"0", "nplurals=0"),
        ("a.po", PLURALS % "²".encode(), "PO"),
        ("a.po", CHARSET % b"punycode", "charset=punycode"),
        ("a.po", CHARSET % b"utf-16", "charset=utf-16"),
        ("a.po", (CHARSET % b"zlib").replace(b"; ", b'; "\n"'), "charset=zlib"),
        ("a.po", (CHARSET % b"punycode").replace(b"set=p", b'set"\n"=p'), "charset=punycode"),
        ("a.po", CHARSET % b"euc-jp" + b"# \xff", "not euc-jp"),
        ("a.docx", make_zip({"x": "y"}, zipfile.ZIP_LZMA), "unusual"),
        ("a.xlf", b"<other/>", "no XLIFF"),
        ("a.xlf", ENTITIES, "entities"),
        ("a.tmx", b"<other/>", "no TMX"),
        ("a.tmx", b'<tmx><tu><tuv xml:lang="fr"><seg>x</seg></tuv></tu></tmx>', "language en"),
    ],
)
def test_bad_document_is_refused_in_one_sentence(name: str, content: bytes, problem: str) -> None:
    with pytest.raises(UserError, match=problem) as caught:
        translate(name, content)
    assert len(caught.value.problems) == 1
    assert caught.value.problems[0].startswith(name)


def test_subtitle_is_not_wrapped_within_a_tag() -> None:
    cue = b"WEBVTT\n\n00:01.000 --> 00:02.000\n<v Roger Bingham>one two\nthree four\n"
    assert b"<v Roger Bingham>ONE" in translate("a.vtt", cue)


def test_tmx_names_its_source_language_itself() -> None:
    content = (
        b'<tmx><header srclang="fr-FR"/><body><tu><tuv xml:lang="fr"><seg>un</seg></tuv></tu>'
        b"</body></tmx>"
    )
    document = read_document(content, "a.tmx", Limits(), Languages("", "de"))
    assert [segment.text for segment in document.segments] == ["un"]


def test_archive_with_two_files_of_one_name_is_refused() -> None:
    content = io.BytesIO(make_docx())
    with zipfile.ZipFile(content, "a") as archive, pytest.warns(UserWarning, match="Duplicate"):
        archive.writestr("word/document.xml", b"<other/>")
    with pytest.raises(UserError, match="same name"):
        translate("a.docx", content.getvalue())


def test_docx_text_after_the_end_of_a_field_of_another_paragraph_is_translated() -> None:
    end, begin = (f'<w:r><w:fldChar w:fldCharType="{kind}"/></w:r>' for kind in ("end", "begin"))
    document = docx.Document()
    document.add_paragraph("normal")
    content = io.BytesIO()
    document.save(content)
    with zipfile.ZipFile(content) as archive:
        files = {name: archive.read(name) for name in archive.namelist()}
    body = files["word/document.xml"].decode()
    run = "<w:r><w:t>normal</w:t></w:r>"
    assert run in body
    fields = f"{end}{run}{begin}<w:r><w:t>keep</w:t></w:r>{end}"
    files["word/document.xml"] = body.replace(run, fields).encode()
    translated = docx.Document(io.BytesIO(translate("a.docx", make_zip(files))))
    assert translated.paragraphs[0].text == "NORMALkeep"


def test_encrypted_files_are_refused() -> None:
    content = bytearray(make_docx())
    for signature, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        start = -1
        while (start := content.find(signature, start + 1)) >= 0:
            content[start + offset] |= 1
    with pytest.raises(UserError, match="encrypted"):
        translate("a.docx", bytes(content))
    files = {
        "META-INF/container.xml": CONTAINER,
        "page.xhtml": PAGE,
        "META-INF/encryption.xml": '<e><CipherReference URI="page.xhtml"/></e>',
    }
    with pytest.raises(UserError, match="protected against copying"):
        translate("a.epub", make_zip(files))


def test_archive_bomb_is_refused_before_it_is_unpacked() -> None:
    bomb = make_zip({"word/document.xml": b"\0" * 50_000_000})
    assert len(bomb) < 100_000
    limits = Limits(unpacked_bytes=1_000_000)
    with pytest.raises(UserError, match="unpacked"):
        read_document(bomb, "a.docx", limits, LANGUAGES)
    lying = bytearray(bomb)
    for signature, offset in ((b"PK\x03\x04", 22), (b"PK\x01\x02", 24)):
        start = lying.find(signature)
        lying[start + offset : start + offset + 4] = (1000).to_bytes(4, "little")
    with pytest.raises(UserError, match=r"unpacked|damaged"):
        read_document(bytes(lying), "a.docx", limits, LANGUAGES)


@pytest.mark.parametrize(
    "limits", [Limits(bytes=10), Limits(files=2), Limits(characters=3), Limits(unpacked_bytes=50)]
)
def test_limits_are_checked(limits: Limits) -> None:
    with pytest.raises(UserError, match=r"limit|larger"):
        read_document(FILES["a.docx"], "a.docx", limits, LANGUAGES)


def test_subtitle_with_a_long_line_is_read_at_once() -> None:
    digits, tag = b"1" * 300_000, b"<" + b"a" * 300_000
    content = b"%b\n00:01 --> 00:02\n%b\n" % (digits, tag)
    document = read_document(content, "a.srt", Limits(), LANGUAGES)
    assert [segment.text.encode() for segment in document.segments] == [tag]
    assert document.write() == content


@pytest.mark.parametrize(
    ("times", "is_cue"),
    [
        ("1 --> 2", True),
        ("--> 1 --> 2 -->", True),
        ("1 --> 2 3 -->", True),
        ("--> 1 2", False),
        ("1 2 -->", False),
        ("1 -- > 2", False),
    ],
)
def test_subtitle_has_an_arrow_between_digits(times: str, is_cue: bool) -> None:
    content = f"1 --> 2\none\n\n{times}\ntwo\n".encode()
    document = read_document(content, "a.srt", Limits(), LANGUAGES)
    assert [segment.text for segment in document.segments] == ["one", "two"][: 1 + is_cue]
