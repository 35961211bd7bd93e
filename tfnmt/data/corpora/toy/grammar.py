"""A synthetic English-German corpus: sentences sampled from a small grammar, with translations.

No text is copied. An `Author` samples the structure of a sentence with a seeded generator and
writes it in both languages. Each sentence has exactly one translation, yet no dictionary finds it.
German nouns have a gender, a number and a case, and articles, adjectives and relative pronouns
agree with them. Verbs come second in a main clause and last in a subordinate one, and are often
separated into two parts.

A German clause has the traditional five fields:

    front      left bracket  middle field      right bracket  end field
    Der Hund   hat           den Mann          gesucht        , der ihm hilft
    Heute      macht         das Kind die Tür  auf
    -          weil          ihm die Frau oft  geholfen hat

The checksum of an English sentence selects its split, so no two splits share a sentence. The
checksum of a verb and a noun selects the held-out combinations. No sentence of train or val has
such a verb with such a noun. In every fifth sentence of test, and only there, such a noun is the
object of such a verb.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import islice
from random import Random
from typing import NamedTuple, TypeVar
from zlib import crc32

from tfnmt.data.corpora.toy.lexicon import (
    CLEAR_PRONOUNS,
    CONJUNCTIONS,
    DETERMINERS,
    DO,
    FIRST_PERSONS,
    HAVE,
    HELPERS,
    MIDDLE_ADVERBS,
    NO_WORDS,
    OBJECT_DETERMINERS,
    OBJECTS,
    OPENING_ADVERBS,
    PREPOSITIONS,
    RELATIVE,
    SILENCE,
    SOMEONE,
    SUBJECTS,
    VERBS,
    Adjective,
    Auxiliary,
    Case,
    Determiner,
    Gender,
    Noun,
    Person,
    Phrase,
    Verb,
    Words,
)

LANGUAGES = ("en", "de")
SIZES = {"train": 1_000_000, "val": 1_000, "test": 1_000}

SEED = 1
BUCKETS = {0: "val", 1: "test"}
"""Splits by checksum modulo 16. All other checksums belong to train."""

SPACES = range(2, 25)
"""Number of spaces in a sentence, which has 3 to 25 words."""

Bond = tuple[str, str]
"""A verb and the noun that is its object, as English dictionary forms."""

Parts = tuple[str, ...]
"""Parts of a text, which may be empty."""

Option = TypeVar("Option")


def _join(*words: str) -> str:
    """Join texts, some of which may be empty."""
    return " ".join(filter(None, words))


@cache
def _noun_phrase(noun: Noun, determiner: Determiner, adjective: Adjective | None) -> Phrase:
    """Return a noun phrase, for example `the old dog`. Determiner and adjective agree in German."""
    rest = _join(adjective.english if adjective else "", noun.english[determiner.is_plural])
    article = "an" if determiner.english == "a" and rest[0] in "aeiou" else determiner.english
    column = Gender.PLURAL if determiner.is_plural else noun.gender
    german = tuple(
        _join(
            determiner.stem + determiner.endings[case][column],
            adjective.stem + determiner.adjective_endings[case][column] if adjective else "",
            noun.german(case, column),
        )
        for case in Case
    )
    person = Person.PLURAL if determiner.is_plural else Person.THIRD
    return Phrase((_join(article, rest),) * 3, german, person, noun)


@cache
def _gap(noun: Noun, person: Person) -> Phrase:
    """Return a phrase without words, for the gap of a relative clause."""
    return replace(SILENCE, person=person, noun=noun)


class Clause(NamedTuple):
    """A verb and everything that belongs to it.

    `helper` is a modal verb or the auxiliary of the perfect, None in the present tense. `report`
    is the clause that a verb of saying has as its object.
    """

    subject: Phrase
    helper: Auxiliary | None
    verb: Verb
    object: Phrase
    recipient: Phrase
    adverb: Words
    adjunct: Words
    report: Words

    def english(self) -> str:
        """Return subject, verb and object, as in `he has often opened the door`."""
        subject, third = self.subject.english[Case.NOMINATIVE], self.subject.person is Person.THIRD
        if self.helper is None:
            return _join(subject, *self._english_rest(self.verb.english[third]))
        rest = self._english_rest(self.verb.english_with(self.helper))
        return _join(subject, self.helper.english[third], *rest)

    def english_question(self) -> str:
        """Return helper, subject, verb and object, as in `does he often open the door`."""
        subject, third = self.subject.english[Case.NOMINATIVE], self.subject.person is Person.THIRD
        helper = self.helper or DO
        rest = self._english_rest(self.verb.english_with(helper))
        return _join(helper.english[third], subject, *rest)

    def _english_rest(self, verb: str) -> Parts:
        return (
            self.adverb.english,
            verb,
            self.verb.prepositions[0],
            self.object.english[Case.ACCUSATIVE],
            "to" if self.verb.gives else "",
            self.recipient.english[Case.DATIVE],
            self.adjunct.english,
            self.report.english,
        )

    def german(self) -> str:
        """Return the clause with its subject in front: der Hund macht die Tür auf."""
        return self._german_main(self._german_subject(), ())

    def german_inverted(self, front: str) -> str:
        """Return the clause with another front, or none: heute macht der Hund die Tür auf."""
        return self._german_main((front,), self._german_subject())

    def german_subordinate(self) -> str:
        """Return the clause with its verb at the end: der Hund die Tür aufmacht."""
        finite, right = self._german_brackets()
        verbs = f"{right} {finite}" if self.helper else right + finite
        return _join(*self._german_middle(self._german_subject()), verbs, self._german_end())

    def _german_main(self, front: Parts, subject: Parts) -> str:
        left, right = self._german_brackets()
        return _join(*front, left, *self._german_middle(subject), right, self._german_end())

    def _german_subject(self) -> Parts:
        return self.subject.german[Case.NOMINATIVE], self.subject.relative

    def _german_brackets(self) -> tuple[str, str]:
        """Return the finite verb and the rest of the verb."""
        person = self.subject.person
        if self.helper is None:
            return self.verb.german[person], self.verb.prefix
        return self.helper.german[person], self.verb.german_with(self.helper)

    def _german_middle(self, subject: Parts) -> Parts:
        """Put pronouns before nouns, even the subject: (weil) mich der Hund oft sieht."""
        pronoun, *objects = self._german_objects()
        opening = (*subject, pronoun) if self.subject.is_pronoun else (pronoun, *subject)
        return (*opening, self.adverb.german, *objects, self.adjunct.german)

    def _german_objects(self) -> Parts:
        """Return pronoun objects and other objects, the dative first."""
        recipient, object_ = self.recipient.german[Case.DATIVE], self.object.german[self.verb.case]
        if self.recipient.is_pronoun:
            return recipient, object_
        preposition = self.verb.prepositions[1] if object_ else ""
        if self.object.is_pronoun and not preposition:
            return object_, recipient
        return "", recipient, preposition, object_

    def _german_end(self) -> str:
        """Return the end field: the relative clause of the object, or a reported clause."""
        return self.report.german or self.object.relative


def _relative_clause(clause: Clause, gap: Phrase, noun: Noun) -> Words:
    """Return a clause with a gap as a relative clause: `that I see`, `who sees me`."""
    is_subject = gap is clause.subject
    pronoun = ("who" if is_subject else "whom") if noun.is_person else "that"
    preposition = "" if is_subject else clause.verb.prepositions[1]
    case = Case.NOMINATIVE if is_subject else clause.verb.case
    column = Gender.PLURAL if gap.person is Person.PLURAL else noun.gender
    german = _join(preposition, "d" + RELATIVE[case][column], clause.german_subordinate())
    return Words(f"{pronoun} {clause.english()}", f", {german} ,")


class Sentence(NamedTuple):
    """A finished sentence in both languages, and the verb-object pairs of its clauses."""

    english: str
    german: str
    bonds: tuple[Bond, ...]


PLAIN_VERBS = tuple(verb for verb in VERBS if not verb.reports)
REPORTING_VERBS = tuple(verb for verb in VERBS if verb.reports)
VERBS_WITH: dict[Noun, tuple[Verb, ...]] = {
    noun: tuple(verb for verb in VERBS if noun in verb.objects)
    for noun in OBJECTS["anything"]
    if isinstance(noun, Noun)
}


class Author:
    """Samples sentences. Each production of the grammar is a method.

    `depth` limits the nesting of relative clauses and reported clauses.
    """

    def __init__(self, seed: int) -> None:
        self._random = Random(seed).random
        self._bonds: list[Bond] = []
        self._shapes = (
            *[self._statement] * 6,
            *[self._explanation] * 3,
            *[self._report] * 2,
            self._question,
        )

    def sentence(self) -> Sentence:
        """Sample a sentence of any shape."""
        self._bonds.clear()
        words, mark = self._pick(self._shapes)()
        return Sentence(
            _punctuated(words.english, mark), _punctuated(words.german, mark), tuple(self._bonds)
        )

    def _statement(self) -> tuple[Words, str]:
        return self._opened(self._clause(depth=2), 0.4), "."

    def _report(self) -> tuple[Words, str]:
        return self._opened(self._reporting_clause(depth=2), 0.2), "."

    def _question(self) -> tuple[Words, str]:
        clause = self._clause(depth=1)
        return Words(clause.english_question(), clause.german_inverted("")), "?"

    def _explanation(self) -> tuple[Words, str]:
        """Sample a main and a subordinate clause. German inverts a main clause that is second."""
        conjunction, reason, main = self._pick(CONJUNCTIONS), self._clause(1), self._clause(0)
        english = f"{conjunction.english} {reason.english()}"
        german = f"{conjunction.german} {reason.german_subordinate()}"
        if self._chance(0.5):
            inverted = main.german_inverted(f"{german} ,")
            return Words(f"{english} , {main.english()}", inverted), "."
        return Words(f"{main.english()} {english}", f"{main.german()} , {german}"), "."

    def _opened(self, clause: Clause, probability: float) -> Words:
        """Sample an opening adverb for some clauses, which inverts the German clause."""
        if not self._chance(probability):
            return Words(clause.english(), clause.german())
        adverb = self._pick(OPENING_ADVERBS)
        return Words(f"{adverb.english} {clause.english()}", clause.german_inverted(adverb.german))

    def _clause(self, depth: int) -> Clause:
        """Sample a clause. Only an object in the last place can have a relative clause."""
        subject, verb = self._phrase(SUBJECTS, depth), self._pick(PLAIN_VERBS)
        adjunct = self._adjunct(subject) if self._chance(0.15) else NO_WORDS
        depth = 0 if verb.gives or adjunct is not NO_WORDS else depth
        return self._predicate(subject, verb, self._object(subject, verb, depth), adjunct=adjunct)

    def _reporting_clause(self, depth: int) -> Clause:
        """Sample a clause that reports another one, possibly nested."""
        if depth > 1 and self._chance(0.2):
            reported = self._reporting_clause(depth - 1)
        else:
            reported = self._clause(depth=0)
        report = Words(f"that {reported.english()}", f", dass {reported.german_subordinate()} ,")
        subject, verb = self._phrase(SUBJECTS, depth=0), self._pick(REPORTING_VERBS)
        return self._predicate(subject, verb, SILENCE, report=report)

    def _predicate(
        self,
        subject: Phrase,
        verb: Verb,
        object_: Phrase,
        adjunct: Words = NO_WORDS,
        report: Words = NO_WORDS,
    ) -> Clause:
        """Complete a clause with everything that its verb needs."""
        if object_.noun:
            self._bonds.append((verb.english[0], object_.noun.english[0]))
        helper = self._pick(HELPERS)
        return Clause(
            subject=subject,
            helper=verb.perfect if helper is HAVE else helper,
            verb=verb,
            object=object_,
            recipient=self._phrase(SOMEONE, other_than=subject) if verb.gives else SILENCE,
            adverb=self._pick(MIDDLE_ADVERBS) if self._chance(0.15) else NO_WORDS,
            adjunct=adjunct,
            report=report,
        )

    def _object(self, subject: Phrase, verb: Verb, depth: int) -> Phrase:
        """Sample the object of a verb, if it has one."""
        if not verb.objects:
            return SILENCE
        return self._phrase(verb.objects, depth, subject, OBJECT_DETERMINERS)

    def _adjunct(self, subject: Phrase) -> Words:
        """Sample a prepositional phrase, for example `in the garden`."""
        preposition = self._pick(PREPOSITIONS)
        phrase = self._phrase(preposition.objects, other_than=subject)
        english = f"{preposition.english} {phrase.english[Case.ACCUSATIVE]}"
        german = f"{preposition.german} {phrase.german[preposition.case]}"
        return Words(english, german.replace("in dem ", "im "))

    def _phrase(
        self,
        words: Sequence[Noun | Phrase],
        depth: int = 0,
        other_than: Phrase = SILENCE,
        determiners: Sequence[Determiner] = DETERMINERS,
    ) -> Phrase:
        """Sample a name, a pronoun, or a noun with determiner, adjective and relative clause."""
        word = self._pick(words)
        while _is_same(word, other_than):
            word = self._pick(words)
        if isinstance(word, Phrase):
            return word
        phrase = _noun_phrase(word, self._pick(determiners), self._pick(word.adjectives))
        if depth and self._chance(0.15):
            relative = self._relative(word, phrase.person, depth - 1)
            english = f"{phrase.english[Case.NOMINATIVE]} {relative.english}"
            return replace(phrase, english=(english,) * 3, relative=relative.german)
        return phrase

    def _relative(self, noun: Noun, person: Person, depth: int) -> Words:
        """Sample a relative clause, in which a noun is subject or object.

        If it is the object, then the subject is a pronoun that shows its case: "das Kind, das die
        Frau sieht" is the child who sees the woman as well as the child whom the woman sees.
        """
        gap = _gap(noun, person)
        if noun in SUBJECTS and self._chance(0.5):
            verb = self._pick(PLAIN_VERBS)
            clause = self._predicate(gap, verb, self._object(gap, verb, 0 if verb.gives else depth))
        else:
            clause = self._predicate(self._pick(CLEAR_PRONOUNS), self._pick(VERBS_WITH[noun]), gap)
        return _relative_clause(clause, gap, noun)

    def _chance(self, probability: float) -> bool:
        return self._random() < probability

    def _pick(self, options: Sequence[Option]) -> Option:
        return options[int(self._random() * len(options))]


def _is_same(word: Noun | Phrase, subject: Phrase) -> bool:
    """Return whether a word refers to the subject and would need a reflexive pronoun."""
    if word in FIRST_PERSONS:
        return subject in FIRST_PERSONS
    return word is subject or word is subject.noun


def _punctuated(text: str, mark: str) -> str:
    """Finish a sentence: single commas, an initial capital and a final mark."""
    text = ",".join(filter(None, text.split(" ,")))
    return text[0].upper() + text[1:] + mark


HELD_OUT: frozenset[Bond] = frozenset(
    (verb.english[0], noun.english[0])
    for noun, verbs in VERBS_WITH.items()
    for verb in verbs
    if crc32(f"{verb.english[0]} {noun.english[0]}".encode()) % 16 == 0
)
"""A sixteenth of all verb-object pairs, which only test combines."""

HELD_OUT_VERB_FORMS: dict[str, frozenset[str]] = {
    form: frozenset(
        verb_form
        for verb in verbs
        if (verb.english[0], noun.english[0]) in HELD_OUT
        for verb_form in (*verb.english, verb.english_participle)
    )
    for noun, verbs in VERBS_WITH.items()
    for form in noun.english
}
"""For each noun form, all forms of the verbs that are held out with it."""


def pairs(split: str) -> Iterator[tuple[str, str]]:
    """Generate English sentences with German translations, the same on every machine."""
    if split not in SIZES:
        raise ValueError(f"{split}: not one of {', '.join(SIZES)}")
    stream = _with_held_out(split) if split == "test" else _without_held_out(split)
    return islice(stream, SIZES[split])


def _with_held_out(split: str) -> Iterator[tuple[str, str]]:
    """Yield four ordinary pairs, then one with a held-out combination, and so on."""
    known = _without_held_out(split)
    sentences = _sample(split)
    new = ((each.english, each.german) for each in sentences if HELD_OUT & set(each.bonds))
    while True:
        yield from islice(known, 4)
        yield next(new)


def _without_held_out(split: str) -> Iterator[tuple[str, str]]:
    """Yield pairs without held-out combinations."""
    for sentence in _sample(split):
        words = sentence.english[:-1].replace(",", "").lower().split()
        if all(
            HELD_OUT_VERB_FORMS[word].isdisjoint(words)
            for word in words
            if word in HELD_OUT_VERB_FORMS
        ):
            yield sentence.english, sentence.german


def _sample(split: str) -> Iterator[Sentence]:
    """Yield the sentences of a split, each once."""
    author = Author(SEED)
    seen: set[int] = set()
    while True:
        sentence = author.sentence()
        checksum = crc32(sentence.english.encode())
        belongs = BUCKETS.get(checksum % 16, "train") == split
        if belongs and checksum not in seen and sentence.english.count(" ") in SPACES:
            seen.add(checksum)  # two sentences with the same checksum count as equal
            yield sentence
