"""Cleaning: rules that leave out training pairs, each by a key of the configuration.

A rule looks at a pair as it is and removes it whole; none alters text. The first rule that a pair
breaks is the reason for which it is counted and kept in rejected.tsv.gz.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import regex

from tfnmt.config import CleaningConfig
from tfnmt.data.corpora.text_files import Pair

Breaks = Callable[[str, str], bool]


class Rule(NamedTuple):
    """A reason to leave out a pair."""

    name: str  # its key in the section `cleaning`
    breaks: Breaks  # (source, target) -> whether they are left out


def make_rules(
    config: CleaningConfig, languages: tuple[str, str], held_out: Collection[Pair]
) -> list[Rule]:
    """The rules that are switched on, in the order of the configuration.

    `held_out` are the pairs of validation and test. Rules may remember what they have seen: they
    are for one pass over the text.
    """
    rules = {
        "empty": _is_empty if config.empty else None,
        "broken": _is_broken if config.broken else None,
        "max_characters": config.max_characters and _longer_than(config.max_characters),
        "max_ratio": config.max_ratio and _more_uneven_than(config.max_ratio),
        "identical": _is_identical if config.identical else None,
        "scripts": _in_other_scripts(*languages) if config.scripts else None,
        "duplicates": _seen_before() if config.duplicates else None,
        "leakage": _one_of(held_out) if config.leakage else None,
    }
    return [Rule(name, breaks) for name, breaks in rules.items() if breaks]


def broken_rule(rules: list[Rule], pair: Pair) -> str | None:
    """The name of the first rule that a pair breaks."""
    source, target = pair
    return next((rule.name for rule in rules if rule.breaks(source, target)), None)


def _is_empty(source: str, target: str) -> bool:
    return not source.strip() or not target.strip()


# Undecodable bytes were read as lone surrogates; U+FFFD is what others put in their place.
_BROKEN = regex.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd\ud800-\udfff]")


def _is_broken(source: str, target: str) -> bool:
    return bool(_BROKEN.search(source) or _BROKEN.search(target))


def _longer_than(limit: int) -> Breaks:
    return lambda source, target: len(source) > limit or len(target) > limit


def _more_uneven_than(ratio: float) -> Breaks:
    def breaks(source: str, target: str) -> bool:
        lengths = sorted((len(source), len(target)))
        return lengths[1] > ratio * lengths[0]

    return breaks


def _is_identical(source: str, target: str) -> bool:
    return source.strip() == target.strip()


def _seen_before() -> Breaks:
    # Numbers of 64 bits in place of the text: the odds that any two of ten million different pairs
    # share one are 1 to 370,000.
    seen: set[int] = set()

    def breaks(source: str, target: str) -> bool:
        number = hash((source, target))
        if number in seen:
            return True
        seen.add(number)
        return False

    return breaks


def _one_of(pairs: Collection[Pair]) -> Breaks:
    found = frozenset(pairs)
    return lambda source, target: (source, target) in found


# --- Scripts --------------------------------------------------------------------------------------

SCRIPTS = {
    "Arabic": "ar ckb fa ps sd ug ur",
    "Armenian": "hy",
    "Bengali": "as bn",
    "Cyrillic": "be bg kk ky mk mn ru tg tt uk",
    "Devanagari": "hi mr ne sa",
    "Ethiopic": "am ti",
    "Georgian": "ka",
    "Greek": "el",
    "Gujarati": "gu",
    "Gurmukhi": "pa",
    "Han": "zh",
    "Hangul": "ko",
    "Hebrew": "he yi",
    "Kannada": "kn",
    "Khmer": "km",
    "Lao": "lo",
    "Latin": "af az ca cs cy da de en eo es et eu fi fr ga gl hr hu id is it lt lv ms mt nl no nb "
    "nn pl pt ro sk sl so sq sv sw tl tr uz vi xh zu",
    "Malayalam": "ml",
    "Myanmar": "my",
    "Sinhala": "si",
    "Tamil": "ta",
    "Telugu": "te",
    "Thai": "th",
}
"""Languages by the script that nearly all of their text is in."""

_SCRIPT_OF = {
    language: script for script, languages in SCRIPTS.items() for language in languages.split()
}

# Without those of no script in particular, as the sign in コーヒー that makes a vowel long.
_LETTER = regex.compile(r"(?!\p{Common})\p{L}")


def _in_other_scripts(source_language: str, target_language: str) -> Breaks:
    source_letters, target_letters = _letters(source_language), _letters(target_language)
    return lambda source, target: (
        _mostly_others(source, source_letters) or _mostly_others(target, target_letters)
    )


def _letters(language: str) -> regex.Pattern[str]:
    """A letter of the language's script; of any, where the language has several or is unknown."""
    language = language.split("_")[0].lower()
    if language == "ja":
        return regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]")
    script = _SCRIPT_OF.get(language)
    return regex.compile(rf"\p{{{script}}}") if script else _LETTER


def _mostly_others(text: str, own: regex.Pattern[str]) -> bool:
    """Whether fewer than half of the letters are of one's own; digits and marks do not count."""
    return 2 * len(own.findall(text)) < len(_LETTER.findall(text))
