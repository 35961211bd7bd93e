import pytest

from tests.tfnmt.documents.translators import Reversed, UpperCase
from tfnmt.documents.html import read_html
from tfnmt.documents.segments import Translator
from tfnmt.documents.translation import Options, translate_segments
from tfnmt.errors import UserError


def translate(text: str, translator: Translator | None = None) -> str:
    document = read_html(text)
    translate_segments(document.segments, translator or UpperCase(), Options())
    return document.write().decode()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ""),
        ("plain &amp; simple", "PLAIN &amp; SIMPLE"),
        ("<p>one <b>two</b>, three</p>", "<p>ONE <b>TWO</b>, THREE</p>"),
        (
            '<p>see <a href="x" title="the title">this <i>page</i></a></p>',
            '<p>SEE <a href="x" title="THE TITLE">THIS <i>PAGE</i></a></p>',
        ),
        ('<img alt="an image" src="a.png">', '<img alt="AN IMAGE" src="a.png">'),
        ("<p>one\n  two</p>\n\n  <p>three</p>", "<p>ONE TWO</p>\n\n  <p>THREE</p>"),
        ("one<br>two", "ONE<br>TWO"),
        ("use <code>ls -l</code> now", "USE <code>ls -l</code> NOW"),
        ("<pre>\n\none <b>two</b></pre>", "<pre>\n\none <b>two</b></pre>"),
        ("<!-- one -->two", "<!-- one -->TWO"),
        (
            '<p translate="no">one</p><p class="x notranslate">two</p>three',
            '<p translate="no">one</p><p class="x notranslate">two</p>THREE',
        ),
        ("<a href=x><img alt=one></a>", '<a href="x"><img alt="ONE"></a>'),
        ("<b><p>one</p></b>", "<b><p>ONE</p></b>"),
        ("<b> </b>one<i></i>", "<b> </b>ONE<i></i>"),
        ("<select><option>one</select>", "<select><option>ONE</option></select>"),
        ("a&nbsp;b", "A&nbsp;B"),
        ("<script>if (a < b) { c() }</script>", "<script>if (a < b) { c() }</script>"),
        ("<p>one<script>two</script> three</p>", "<p>ONE<script>two</script> THREE</p>"),
        ("<style>b > i {}</style><svg><text>x</text></svg>",) * 2,
        ('<svg viewBox="0 0 1 1"><style>a &gt; b</style><path d="m1"></path></svg>',) * 2,
        ("<svg><style>&lt;img src=x onerror=alert(1)&gt;</style></svg>",) * 2,
        ("<template><b>one</b><style>a > b</style></template>",) * 2,
        ('<noscript><img alt="&lt;/noscript&gt;"></noscript>',) * 2,
    ],
)
def test_html_is_translated(text: str, expected: str) -> None:
    assert translate(text) == expected


def test_page_keeps_its_document_type_and_head() -> None:
    page = (
        '<!DOCTYPE html PUBLIC "-//W3C//DTD HTML 4.01//EN"><html lang="en"><head>'
        '<meta charset="utf-8"><title>one</title><link rel="x" href="y"><style>p {}</style></head>'
        "<body><p>two</p></body></html>"
    )
    expected = page.replace("one", "ONE").replace("two", "TWO")
    assert translate(page) == expected


@pytest.mark.parametrize("content", ["<title>x</title>", "<g><desc><div>x</div></desc></g>"])
def test_picture_with_a_title_does_not_end_a_sentence(content: str) -> None:
    picture = f"<svg>{content}</svg>"
    translator = UpperCase()
    assert translate(f"<p>one {picture} two</p>", translator) == f"<p>ONE {picture} TWO</p>"
    assert len(translator.texts) == 1


def test_element_whose_words_are_apart_has_one_id() -> None:
    class Apart(UpperCase):
        def source_of(self, row: int, length: int) -> int:
            return [0, 2, 1, 3][row]

    translation = translate('<p><b id="x" class="y">one two</b> three</p>', Apart())
    assert translation.count("<b") == 2
    assert translation.count('id="x"') == 1
    assert translation.count('class="y"') == 2


def test_translation_is_text_and_never_markup() -> None:
    class Script(UpperCase):
        def translate_one(self, sentence: str) -> str:
            return '"><script>alert(1)</script>'

    translation = translate('<p title="one">two <b>three</b></p>', Script())
    assert "<script" not in translation
    assert translation.startswith('<p title="&quot;&gt;&lt;script')


def test_inline_tags_follow_reordered_words() -> None:
    translation = translate("<p>one <b>two</b> <i>three</i></p>", Reversed())
    assert translation == "<p><i>THREE</i> <b>TWO</b> ONE</p>"


@pytest.mark.parametrize("opening", ["<div>", "<rt>", "<svg><td>", "<div></x>", "<!--</b>--><b>"])
def test_deep_nesting_is_refused(opening: str) -> None:
    with pytest.raises(UserError, match="nested"):
        read_html(opening * 1000 + "x")


@pytest.mark.parametrize(
    "page",
    [
        f"<script>{'for(i=0; i<n; i++){}; ' * 2100}</script>",
        f"<style>{'/* <a> */ ' * 2100}</style>",
        "<!-- <div> -->" * 2100,
    ],
)
def test_text_that_looks_like_tags_is_accepted(page: str) -> None:
    assert translate(page) == page


def test_pages_that_take_too_long_to_parse_are_refused() -> None:
    with pytest.raises(UserError, match="too much time or memory"):
        read_html("<div>" * 100_000)


@pytest.mark.parametrize("block", ["<p>x", "<p>x</p>", "<div>x</div>"])
@pytest.mark.parametrize(
    "opening",
    [
        "<b a={}>",
        "<i x' y=\"'>{}\">",
        "<b a={}><!-- </b> -->",
        '<b a={}><img title="</b>">',
        "<b a={}><select></b></select>",
    ],
)
def test_many_missing_end_tags_are_refused(opening: str, block: str) -> None:
    """A parser opens each of the elements again in each block."""
    many = "".join(f"<div>{opening.format(number)}</div>" for number in range(100))
    with pytest.raises(UserError, match="add missing end tags"):
        read_html(many + block * 1000)


@pytest.mark.parametrize(
    "text",
    [
        "<p>one <b>two" * 1000,  # a parser opens at most three equal elements again
        '<p><font color="red" size=3>x</p>' * 1000,
        "<p><b><i><u><a href=x>x</a></u></i></b></p>" * 1000,
        "".join(f"<a name={number}>x</a><p>" for number in range(1000)),
        "".join(f"<a name={number}>x<p>" for number in range(1000)),  # one link is open at most
        f"<table><tr>{''.join(f'<td><font size={size}>x' for size in range(1000))}</table>",
    ],
)
def test_some_missing_end_tags_are_accepted(text: str) -> None:
    read_html(text)
