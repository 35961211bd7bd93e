"""A synthetic English-German corpus: sentences drawn from a small grammar, with translations.

No text was copied: an `Author` draws the structure of a sentence with seeded chance and says it in
both languages. Each sentence has exactly one translation, yet no dictionary finds it. German nouns
have a gender, a number and a case, with which articles, adjectives and relative pronouns agree;
verbs come second in a main clause and last in a subordinate one, and often in two pieces.

A German clause is laid out in its traditional five fields:

    front      left bracket  middle field      right bracket  end field
    Der Hund   hat           den Mann          gesucht        , der ihm hilft
    Heute      macht         das Kind die Tür  auf
    -          weil          ihm die Frau oft  geholfen hat

The checksum of an English sentence decides which split it belongs to, so no two splits share one.
The checksum of a verb and a noun decides whether they are held out: no sentence of train or val has
both, while in every fifth sentence of test, and there only, such a noun is such a verb's object.
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
"""The splits of the checksums, modulo 16; all others are of train."""

SPACES = range(2, 25)
"""The spaces in a sentence: it has three to 25 words."""

Bond = tuple[str, str]
"""A verb and a noun that is its object, by their English dictionary forms."""

Pieces = tuple[str, ...]
"""What will be joined; some pieces may be empty."""

Option = TypeVar("Option")


def _join(*words: str) -> str:
    """One text of several, some of which may be empty."""
    return " ".join(filter(None, words))


@cache
def _noun_phrase(noun: Noun, determiner: Determiner, adjective: Adjective | None) -> Phrase:
    """The old dog: in German, determiner and adjective agree with the noun."""
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
    """A phrase without words, where a relative clause would have its noun."""
    return replace(SILENCE, person=person, noun=noun)


class Clause(NamedTuple):
    """A verb and all that belongs to it.

    `helper` is a modal verb or the auxiliary of the perfect, None in the present tense; `report`
    is the clause that a verb of saying has for an object.
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
        """Subject, verb, object: he often opens the door, he has often opened the door."""
        subject, third = self.subject.english[Case.NOMINATIVE], self.subject.person is Person.THIRD
        if self.helper is None:
            return _join(subject, *self._english_rest(self.verb.english[third]))
        rest = self._english_rest(self.verb.english_with(self.helper))
        return _join(subject, self.helper.english[third], *rest)

    def english_question(self) -> str:
        """Helper, subject, verb, object: does he often open the door."""
        subject, third = self.subject.english[Case.NOMINATIVE], self.subject.person is Person.THIRD
        helper = self.helper or DO
        rest = self._english_rest(self.verb.english_with(helper))
        return _join(helper.english[third], subject, *rest)

    def _english_rest(self, verb: str) -> Pieces:
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
        """The subject in front: der Hund macht die Tür auf."""
        return self._german_main(self._german_subject(), ())

    def german_inverted(self, front: str) -> str:
        """Something else in front, or in a question nothing: heute macht der Hund die Tür auf."""
        return self._german_main((front,), self._german_subject())

    def german_subordinate(self) -> str:
        """The finite verb at the end, its prefix back: der Hund die Tür aufmacht."""
        finite, right = self._german_brackets()
        verbs = f"{right} {finite}" if self.helper else right + finite
        return _join(*self._german_middle(self._german_subject()), verbs, self._german_end())

    def _german_main(self, front: Pieces, subject: Pieces) -> str:
        left, right = self._german_brackets()
        return _join(*front, left, *self._german_middle(subject), right, self._german_end())

    def _german_subject(self) -> Pieces:
        return self.subject.german[Case.NOMINATIVE], self.subject.relative

    def _german_brackets(self) -> tuple[str, str]:
        """The finite verb, and the rest of the verb."""
        person = self.subject.person
        if self.helper is None:
            return self.verb.german[person], self.verb.prefix
        return self.helper.german[person], self.verb.german_with(self.helper)

    def _german_middle(self, subject: Pieces) -> Pieces:
        """Pronouns come before nouns, even before the subject: (weil) mich der Hund oft sieht."""
        pronoun, *objects = self._german_objects()
        opening = (*subject, pronoun) if self.subject.is_pronoun else (pronoun, *subject)
        return (*opening, self.adverb.german, *objects, self.adjunct.german)

    def _german_objects(self) -> Pieces:
        """An object that is a bare pronoun, and the other objects, the dative first."""
        recipient, object_ = self.recipient.german[Case.DATIVE], self.object.german[self.verb.case]
        if self.recipient.is_pronoun:
            return recipient, object_
        preposition = self.verb.prepositions[1] if object_ else ""
        if self.object.is_pronoun and not preposition:
            return object_, recipient
        return "", recipient, preposition, object_

    def _german_end(self) -> str:
        """What is too heavy for the middle field: the object's relative clause, a report."""
        return self.report.german or self.object.relative


def _relative_clause(clause: Clause, gap: Phrase, noun: Noun) -> Words:
    """That I see, who sees me: what the clause says of the noun that it has a gap for."""
    is_subject = gap is clause.subject
    pronoun = ("who" if is_subject else "whom") if noun.is_person else "that"
    preposition = "" if is_subject else clause.verb.prepositions[1]
    case = Case.NOMINATIVE if is_subject else clause.verb.case
    column = Gender.PLURAL if gap.person is Person.PLURAL else noun.gender
    german = _join(preposition, "d" + RELATIVE[case][column], clause.german_subordinate())
    return Words(f"{pronoun} {clause.english()}", f", {german} ,")


class Sentence(NamedTuple):
    """A finished sentence in both languages, and the bonds of all its clauses."""

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
    """Draws sentences: each production of the grammar is a method.

    `depth` says how deeply relative clauses, or reports, may be nested in what is drawn.
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
        """A new sentence, of any shape."""
        self._bonds.clear()
        words, mark = self._pick(self._shapes)()
        return Sentence(
            _written(words.english, mark), _written(words.german, mark), tuple(self._bonds)
        )

    def _statement(self) -> tuple[Words, str]:
        return self._opened(self._clause(depth=2), 0.4), "."

    def _report(self) -> tuple[Words, str]:
        return self._opened(self._reporting_clause(depth=2), 0.2), "."

    def _question(self) -> tuple[Words, str]:
        clause = self._clause(depth=1)
        return Words(clause.english_question(), clause.german_inverted("")), "?"

    def _explanation(self) -> tuple[Words, str]:
        """A clause and a subordinate clause; where that comes first, German inverts the other."""
        conjunction, reason, main = self._pick(CONJUNCTIONS), self._clause(1), self._clause(0)
        english = f"{conjunction.english} {reason.english()}"
        german = f"{conjunction.german} {reason.german_subordinate()}"
        if self._chance(0.5):
            inverted = main.german_inverted(f"{german} ,")
            return Words(f"{english} , {main.english()}", inverted), "."
        return Words(f"{main.english()} {english}", f"{main.german()} , {german}"), "."

    def _opened(self, clause: Clause, probability: float) -> Words:
        """The clause, sometimes after an adverb, which inverts it in German."""
        if not self._chance(probability):
            return Words(clause.english(), clause.german())
        adverb = self._pick(OPENING_ADVERBS)
        return Words(f"{adverb.english} {clause.english()}", clause.german_inverted(adverb.german))

    def _clause(self, depth: int) -> Clause:
        """A clause about anything; only an object that comes last can have a relative clause."""
        subject, verb = self._phrase(SUBJECTS, depth), self._pick(PLAIN_VERBS)
        adjunct = self._adjunct(subject) if self._chance(0.15) else NO_WORDS
        depth = 0 if verb.gives or adjunct is not NO_WORDS else depth
        return self._predicate(subject, verb, self._object(subject, verb, depth), adjunct=adjunct)

    def _reporting_clause(self, depth: int) -> Clause:
        """A clause that reports another, perhaps one that reports one more."""
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
        """The clause, with whatever else its verb needs."""
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
        """What the verb is done to, if to anything."""
        if not verb.objects:
            return SILENCE
        return self._phrase(verb.objects, depth, subject, OBJECT_DETERMINERS)

    def _adjunct(self, subject: Phrase) -> Words:
        """In the garden, with my brother."""
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
        """A name or pronoun as it is, or a noun with determiner, adjective and relative clause."""
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
        """A clause about a noun, which is its subject or its object.

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
    """Whether the word comes back to the subject, and would want a reflexive pronoun."""
    if word in FIRST_PERSONS:
        return subject in FIRST_PERSONS
    return word is subject or word is subject.noun


def _written(text: str, mark: str) -> str:
    """The text as one writes it: no two commas together and none at the end, a capital, a mark."""
    text = ",".join(filter(None, text.split(" ,")))
    return text[0].upper() + text[1:] + mark


HELD_OUT: frozenset[Bond] = frozenset(
    (verb.english[0], noun.english[0])
    for noun, verbs in VERBS_WITH.items()
    for verb in verbs
    if crc32(f"{verb.english[0]} {noun.english[0]}".encode()) % 16 == 0
)
"""A sixteenth of the verbs with their objects, for test to join."""

KEPT_APART: dict[str, frozenset[str]] = {
    form: frozenset(
        verb_form
        for verb in verbs
        if (verb.english[0], noun.english[0]) in HELD_OUT
        for verb_form in (*verb.english, verb.english_participle)
    )
    for noun, verbs in VERBS_WITH.items()
    for form in noun.english
}
"""For each form of a noun, all forms of the verbs that are held out with it."""


def pairs(split: str) -> Iterator[tuple[str, str]]:
    """English sentences and their German translations, lazily, the same ones on every machine."""
    if split not in SIZES:
        raise ValueError(f"{split}: not one of {', '.join(SIZES)}")
    stream = _with_held_out(split) if split == "test" else _without_held_out(split)
    return islice(stream, SIZES[split])


def _with_held_out(split: str) -> Iterator[tuple[str, str]]:
    """Four pairs that hold nothing new, one that joins a verb and a noun held out, and so on."""
    known = _without_held_out(split)
    new = (
        (said.english, said.german) for said in _drawn(split) if not HELD_OUT.isdisjoint(said.bonds)
    )
    while True:
        yield from islice(known, 4)
        yield next(new)


def _without_held_out(split: str) -> Iterator[tuple[str, str]]:
    """Pairs in which no verb and noun meet that are held out."""
    for sentence in _drawn(split):
        words = sentence.english[:-1].replace(",", "").lower().split()
        if all(KEPT_APART[word].isdisjoint(words) for word in words if word in KEPT_APART):
            yield sentence.english, sentence.german


def _drawn(split: str) -> Iterator[Sentence]:
    """The author's sentences that belong to a split, each once."""
    author = Author(SEED)
    seen: set[int] = set()
    while True:
        sentence = author.sentence()
        checksum = crc32(sentence.english.encode())
        belongs = BUCKETS.get(checksum % 16, "train") == split
        if belongs and checksum not in seen and sentence.english.count(" ") in SPACES:
            seen.add(checksum)  # two sentences with one checksum count as the same
            yield sentence
