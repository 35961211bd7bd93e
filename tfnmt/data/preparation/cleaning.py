"""Cleaning rules that remove training pairs, one for each key of the section `cleaning`.

A rule keeps or removes a pair and never changes text. The first rule that a pair violates is the
reason recorded in the counts and in rejected.tsv.gz.
"""

from collections.abc import Callable, Collection
from typing import NamedTuple

import regex

from tfnmt.config import CleaningConfig
from tfnmt.data.corpora.text_files import Pair

Violates = Callable[[str, str], bool]
"""(source, target) -> whether the pair is removed."""


class Rule(NamedTuple):
    """A reason to remove a pair."""

    name: str  # its key in the section `cleaning`
    violates: Violates


def make_rules(
    config: CleaningConfig, languages: tuple[str, str], held_out: Collection[Pair]
) -> list[Rule]:
    """Return the enabled rules in the order of the configuration.

    Rules may remember pairs, so use them for one pass over the text only.

    Args:
        config: The section `cleaning`.
        languages: Source and target.
        held_out: The pairs of the validation and test sets.
    """
    rules = {
        "empty": _is_empty if config.empty else None,
        "broken": _is_broken if config.broken else None,
        "max_characters": config.max_characters and _longer_than(config.max_characters),
        "max_ratio": config.max_ratio and _ratio_above(config.max_ratio),
        "identical": _is_identical if config.identical else None,
        "scripts": _in_other_scripts(*languages) if config.scripts else None,
        "duplicates": _seen_before() if config.duplicates else None,
        "leakage": _one_of(held_out) if config.leakage else None,
    }
    return [Rule(name, violates) for name, violates in rules.items() if violates]


def violated_rule(rules: list[Rule], pair: Pair) -> str | None:
    """Return the name of the first rule that a pair violates, if any."""
    source, target = pair
    return next((rule.name for rule in rules if rule.violates(source, target)), None)


def _is_empty(source: str, target: str) -> bool:
    return not source.strip() or not target.strip()


# Undecodable bytes were read as unpaired surrogates. Other programs replace them with U+FFFD.
_BROKEN = regex.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\ufffd\ud800-\udfff]")


def _is_broken(source: str, target: str) -> bool:
    return bool(_BROKEN.search(source) or _BROKEN.search(target))


def _longer_than(limit: int) -> Violates:
    return lambda source, target: len(source) > limit or len(target) > limit


def _ratio_above(ratio: float) -> Violates:
    def violates(source: str, target: str) -> bool:
        lengths = sorted((len(source), len(target)))
        return lengths[1] > ratio * lengths[0]

    return violates


def _is_identical(source: str, target: str) -> bool:
    return source.strip() == target.strip()


def _seen_before() -> Violates:
    # 64-bit hashes instead of the text. The odds that any two of ten million different pairs share
    # one are 1 to 370,000.
    seen: set[int] = set()

    def violates(source: str, target: str) -> bool:
        number = hash((source, target))
        if number in seen:
            return True
        seen.add(number)
        return False

    return violates


def _one_of(pairs: Collection[Pair]) -> Violates:
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
"""Languages by the script of nearly all their text."""

_SCRIPT_OF = {
    language: script for script, languages in SCRIPTS.items() for language in languages.split()
}

# Excludes letters of no particular script, such as the long vowel mark in コーヒー.
_LETTER = regex.compile(r"(?!\p{Common})\p{L}")


def _in_other_scripts(source_language: str, target_language: str) -> Violates:
    source_letters, target_letters = _letters(source_language), _letters(target_language)
    return lambda source, target: (
        _mostly_other_script(source, source_letters) or _mostly_other_script(target, target_letters)
    )


def _letters(language: str) -> regex.Pattern[str]:
    """Return a pattern for letters of the language's script, or any letter if it is unknown."""
    language = language.split("_")[0].lower()
    if language == "ja":
        return regex.compile(r"[\p{Han}\p{Hiragana}\p{Katakana}]")
    script = _SCRIPT_OF.get(language)
    return regex.compile(rf"\p{{{script}}}") if script else _LETTER


def _mostly_other_script(text: str, own: regex.Pattern[str]) -> bool:
    """Return whether fewer than half of the letters belong to the script."""
    return 2 * len(own.findall(text)) < len(_LETTER.findall(text))
