"""Language codes and names, as they occur in file names, in headers and in TMX files.

Babel is imported by the functions that use it, because translating does not need it.
"""

import re
from collections.abc import Sequence
from functools import cache

ROLES = ("source", "target")
"""Names of columns and keys that may replace the languages."""

CODE = re.compile(r"([a-z]{2,3})(?:-[a-z]{4})?(?:-(?:[a-z]{2}|[0-9]{3}))?")
"""Language, script and region, normalized by `_normalize`."""

CANONICAL = {"no": "nb", "src": ""}
"""Exceptions to Babel's canonical codes. Norwegian text is Bokmål unless its code says otherwise.
`src` is the usual suffix of source text, and not often a language of Sardinia."""

LONGEST_NAME = 60


def is_code(text: str) -> bool:
    """Return whether a text is the code of a language that has a two-letter code.

    The code may have three letters, and a script and a region may follow: `de`, `deu`, `zh-Hans`,
    `pt_BR`. Other codes of three letters do not count, because many are usual file suffixes.
    """
    found = CODE.fullmatch(_normalize(text))
    return found is not None and _two_letters(found[1]) is not None


def subtags(language: str) -> list[str]:
    """Return the parts of a language code in a canonical form, the language first."""
    first, *rest = _normalize(language).split("-")
    return [_two_letters(first) or first, *rest]


def matches(language: str, wanted: str, other: str) -> bool:
    """Return whether text in a language can be used for the wanted language of a pair.

    Regions and scripts may differ, so `en-GB` matches `en`. They must be equal if both languages of
    the pair differ only in them, so `pt-PT` does not match `pt-BR` in a pair with `pt-PT`.
    """
    has, wants = subtags(language), subtags(wanted)
    return has == wants or has[0] == wants[0] != subtags(other)[0]


def contradicts(language: str, wanted: str, other: str) -> bool:
    """Return whether a language is certainly not the wanted one, because both have codes."""
    return is_code(language) and is_code(wanted) and not matches(language, wanted, other)


def is_header(cells: Sequence[str], source: str, target: str) -> bool:
    """Return whether the first row of a text names its languages instead of being a sentence pair.

    Its cells are `source` and `target`, or codes or names of two languages. One of them is a
    language of the text. A pair such as English and Englisch names one language, so it is text.
    """
    texts = {cell.strip(' "').lower() for cell in cells if len(cell) <= LONGEST_NAME}
    if texts.issuperset(ROLES):
        return True
    if len(texts) < 2:
        return False
    wanted = {subtags(language)[0] for language in (source, target)}
    named = {code for text in texts if (code := _named_language(text, sorted(wanted)))}
    return len(named) > 1 and not wanted.isdisjoint(code[0] for code in named)


def _normalize(code: str) -> str:
    return code.strip().lower().replace("_", "-")


@cache
def _two_letters(primary: str) -> str | None:
    """Return the two-letter code for the first part of a code, if the language has one."""
    from babel import Locale
    from babel.core import get_global

    code = CANONICAL.get(primary, get_global("language_aliases").get(primary, primary))
    return code if len(code) == 2 and code in Locale("en").languages else None


def _named_language(text: str, languages: Sequence[str]) -> tuple[str, ...] | None:
    """Return the subtags of a language given by its code, or by its name in some languages."""
    if is_code(text):
        return tuple(subtags(text))
    name = text.partition("(")[0].strip()
    for language in ("en", *languages):
        if code := _names(language).get(name):
            return tuple(subtags(code))
    return None


@cache
def _names(language: str) -> dict[str, str]:
    """Return the codes of languages by their names in one language, in lower case."""
    from babel import Locale, localedata

    if not localedata.exists(language):
        return {}
    return {name.lower(): code for code, name in Locale(language).languages.items()}
