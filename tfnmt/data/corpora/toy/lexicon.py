"""The words of the synthetic corpus and their inflection: a pocket grammar of English and German.

Nothing is taken from texts. The tables list only irregular forms. Endings of articles, adjectives
and nouns are computed from rules.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

Table = tuple[tuple[str, ...], ...]


class Case(IntEnum):
    """The case of a noun phrase: a row of a declension table."""

    NOMINATIVE = 0
    ACCUSATIVE = 1
    DATIVE = 2


class Gender(IntEnum):
    """The gender of a noun: a column of a declension table. All plurals share one."""

    MASCULINE = 0
    FEMININE = 1
    NEUTER = 2
    PLURAL = 3


class Person(IntEnum):
    """The agreement of verb and subject: ich, er or sie (she), wir or sie (they)."""

    FIRST = 0
    THIRD = 1
    PLURAL = 2


def _table(*lines: str) -> Table:
    """Return a declension table: rows by `Case`, columns by `Gender`, "-" for no ending."""
    return tuple(tuple(cell.strip("-") for cell in line.split()) for line in lines)


ARTICLE = _table("er ie as ie", "en ie as ie", "em er em en")
RELATIVE = _table("er ie as ie", "en ie as ie", "em er em enen")
POSSESSIVE = _table("- e - e", "en e - e", "em er em en")
STRONG = _table("er e es e", "en e es e", "em er em en")
WEAK = _table("e e e en", "en e e en", "en en en en")
MIXED = _table("er e es en", "en e es en", "en en en en")
NO_ENDING = _table("- - - -", "- - - -", "- - - -")


@dataclass(frozen=True, eq=False, slots=True)
class Determiner:
    """The first word of a noun phrase. It decides number and adjective endings."""

    english: str
    stem: str
    endings: Table
    adjective_endings: Table
    is_plural: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Adjective:
    """An adjective: the English word and the German stem."""

    english: str
    stem: str


@dataclass(frozen=True, eq=False, slots=True)
class Noun:
    """A noun. A weak one has its plural form in every case except the nominative."""

    english: tuple[str, str]
    singular: str
    plural: str
    gender: Gender
    is_weak: bool
    is_person: bool
    adjectives: tuple[Adjective | None, ...]

    def german(self, case: Case, column: Gender) -> str:
        """Return the singular or the plural, with the -n of the dative plural."""
        if column is not Gender.PLURAL:
            is_oblique = case is not Case.NOMINATIVE
            return self.plural if self.is_weak and is_oblique else self.singular
        if case is Case.DATIVE and self.plural[-1] not in "ns":
            return self.plural + "n"
        return self.plural


@dataclass(frozen=True, eq=False, slots=True)
class Phrase:
    """A subject or object with its forms by `Case`, which may be empty.

    Names and pronouns have no `noun`. `relative` is the German relative clause. Unlike the English
    one, it may be separated from its noun.
    """

    english: tuple[str, ...]
    german: tuple[str, ...]
    person: Person = Person.THIRD
    noun: Noun | None = None
    relative: str = ""
    is_pronoun: bool = False


class Words(NamedTuple):
    """Uninflected words of a sentence: an adverb, a conjunction, a whole clause."""

    english: str
    german: str


@dataclass(frozen=True, eq=False, slots=True)
class Preposition:
    """A preposition, the case that it governs in German, and its possible nouns."""

    english: str
    german: str
    case: Case
    objects: tuple[Noun | Phrase, ...]


@dataclass(frozen=True, eq=False, slots=True)
class Auxiliary:
    """A modal, tense or question verb: base and third person, and the German forms by `Person`."""

    english: tuple[str, str]
    german: tuple[str, str, str]
    takes_participle: bool = False


@dataclass(frozen=True, eq=False, slots=True)
class Verb:
    """A verb with its principal parts and the object that it governs.

    `english` is base and third person, `german` has the finite forms by `Person`. A German prefix
    is separable: it leaves the finite verb of a main clause. A verb that `gives` has a recipient in
    addition to its object, and one that `reports` has a clause instead.
    """

    english: tuple[str, str]
    english_participle: str
    german: tuple[str, str, str]
    german_participle: str
    prefix: str
    prepositions: tuple[str, str]
    perfect: Auxiliary
    case: Case
    objects: tuple[Noun | Phrase, ...]
    gives: bool
    reports: bool

    def english_with(self, helper: Auxiliary) -> str:
        """Return the English form after an auxiliary: (has) seen, (can) see."""
        return self.english_participle if helper.takes_participle else self.english[0]

    def german_with(self, helper: Auxiliary) -> str:
        """Return the German form after an auxiliary: (hat) angesehen, (kann) ansehen."""
        infinitive = self.german[Person.PLURAL]
        return self.prefix + (self.german_participle if helper.takes_participle else infinitive)


def _pronoun(person: Person, english: str, german: str) -> Phrase:
    return Phrase(tuple(english.split()), tuple(german.split()), person, is_pronoun=True)


NO_WORDS = Words("", "")
SILENCE = Phrase(("",) * 3, ("",) * 3)

NAMES = tuple(
    Phrase((name,) * 3, (name,) * 3)
    for name in ("Anna", "Clara", "Felix", "Lukas", "Maria", "Peter")
)
FIRST_PERSONS = (
    _pronoun(Person.FIRST, "I me me", "ich mich mir"),
    _pronoun(Person.PLURAL, "we us us", "wir uns uns"),
)
# German has one word for she and they. Only the verb distinguishes them, so they are never
# objects.
CLEAR_PRONOUNS = (*FIRST_PERSONS, _pronoun(Person.THIRD, "he him him", "er ihn ihm"))
PRONOUNS = (
    *CLEAR_PRONOUNS,
    _pronoun(Person.THIRD, "she her her", "sie sie ihr"),
    _pronoun(Person.PLURAL, "they them them", "sie sie ihnen"),
)

# Words that are listed twice are sampled twice as often, here and in all tables.
DETERMINERS = (
    *[Determiner("the", "d", ARTICLE, WEAK)] * 4,
    *[Determiner("a", "ein", POSSESSIVE, MIXED)] * 3,
    Determiner("this", "dies", STRONG, WEAK),
    Determiner("every", "jed", STRONG, WEAK),
    Determiner("my", "mein", POSSESSIVE, MIXED),
    Determiner("his", "sein", POSSESSIVE, MIXED),
    Determiner("our", "unser", POSSESSIVE, MIXED),
    *[Determiner("the", "d", ARTICLE, WEAK, is_plural=True)] * 2,
    Determiner("", "", NO_ENDING, STRONG, is_plural=True),
    Determiner("these", "dies", STRONG, WEAK, is_plural=True),
    Determiner("my", "mein", POSSESSIVE, MIXED, is_plural=True),
    Determiner("our", "unser", POSSESSIVE, MIXED, is_plural=True),
)
OBJECT_DETERMINERS = (
    *DETERMINERS,
    Determiner("no", "kein", POSSESSIVE, MIXED),
    Determiner("no", "kein", POSSESSIVE, MIXED, is_plural=True),
)

DO = Auxiliary(("do", "does"), ("", "", ""))
HAVE = Auxiliary(("have", "has"), ("habe", "hat", "haben"), takes_participle=True)
BE = Auxiliary(("have", "has"), ("bin", "ist", "sind"), takes_participle=True)
# None is the present tense. HAVE stands for the perfect auxiliary of the verb, which may be BE.
HELPERS = (
    *[None] * 4,
    *[HAVE] * 2,
    Auxiliary(("can", "can"), ("kann", "kann", "können")),
    Auxiliary(("must", "must"), ("muss", "muss", "müssen")),
    Auxiliary(("should", "should"), ("soll", "soll", "sollen")),
    Auxiliary(("may", "may"), ("darf", "darf", "dürfen")),
)

OPENING_ADVERBS = (
    Words("today", "heute"),
    Words("now", "jetzt"),
    Words("here", "hier"),
    Words("perhaps", "vielleicht"),
    Words("sometimes", "manchmal"),
    Words("of course", "natürlich"),
)
MIDDLE_ADVERBS = (
    Words("always", "immer"),
    Words("often", "oft"),
    Words("rarely", "selten"),
    Words("secretly", "heimlich"),
    Words("finally", "endlich"),
)
CONJUNCTIONS = (
    Words("because", "weil"),
    Words("although", "obwohl"),
    Words("if", "wenn"),
    Words("while", "während"),
    Words("as soon as", "sobald"),
)

# English, German stem, kinds of noun.
ADJECTIVES = """
    old       alt        living thing place
    small     klein      living thing place
    big       groß       living thing place
    strange   seltsam    living thing place
    young     jung       living
    clever    klug       living
    brave     mutig      living
    tired     müd        living
    friendly  freundlich living
    happy     glücklich  living
    new       neu        thing place
    beautiful schön      thing place
    red       rot        thing
    black     schwarz    thing
    heavy     schwer     thing
"""

# English singular and plural, German singular and plural, gender, kind.
NOUNS = """
    man       men        Mann     Männer      masculine person
    king      kings      König    Könige      masculine person
    teacher   teachers   Lehrer   Lehrer      masculine person
    doctor    doctors    Arzt     Ärzte       masculine person
    brother   brothers   Bruder   Brüder      masculine person
    boy       boys       Junge    Jungen      weak      person
    neighbour neighbours Nachbar  Nachbarn    weak      person
    woman     women      Frau     Frauen      feminine  person
    queen     queens     Königin  Königinnen  feminine  person
    sister    sisters    Schwester Schwestern feminine  person
    child     children   Kind     Kinder      neuter    person
    girl      girls      Mädchen  Mädchen     neuter    person

    dog       dogs       Hund     Hunde       masculine animal
    bird      birds      Vogel    Vögel       masculine animal
    bear      bears      Bär      Bären       weak      animal
    cat       cats       Katze    Katzen      feminine  animal
    mouse     mice       Maus     Mäuse       feminine  animal
    horse     horses     Pferd    Pferde      neuter    animal

    door      doors      Tür      Türen       feminine  fixture
    window    windows    Fenster  Fenster     neuter    fixture

    letter    letters    Brief    Briefe      masculine container
    box       boxes      Kiste    Kisten      feminine  container
    bag       bags       Tasche   Taschen     feminine  container
    book      books      Buch     Bücher      neuter    container
    gift      gifts      Geschenk Geschenke   neuter    container

    ball      balls      Ball     Bälle       masculine ware
    apple     apples     Apfel    Äpfel       masculine ware
    hat       hats       Hut      Hüte        masculine ware
    flower    flowers    Blume    Blumen      feminine  ware
    cup       cups       Tasse    Tassen      feminine  ware
    clock     clocks     Uhr      Uhren       feminine  ware
    picture   pictures   Bild     Bilder      neuter    ware
    shirt     shirts     Hemd     Hemden      neuter    ware

    garden    gardens    Garten   Gärten      masculine place
    forest    forests    Wald     Wälder      masculine place
    school    schools    Schule   Schulen     feminine  place
    church    churches   Kirche   Kirchen     feminine  place
    house     houses     Haus     Häuser      neuter    place
    castle    castles    Schloss  Schlösser   neuter    place
"""

# English base, third person, participle, preposition; German forms for ich, er and wir, participle,
# and a prefix (an-) or a preposition (an); perfect auxiliary, kind of object. The name of a table
# is the case of its objects.
ACCUSATIVE_VERBS = """
    see     sees     seen     -    sehe    sieht   sehen    gesehen   -      hat anything
    find    finds    found    -    finde   findet  finden   gefunden  -      hat anything
    look    looks    looked   for  suche   sucht   suchen   gesucht   -      hat anything
    look    looks    looked   at   sehe    sieht   sehen    gesehen   an-    hat anything
    think   thinks   thought  of   denke   denkt   denken   gedacht   an     hat anything
    love    loves    loved    -    liebe   liebt   lieben   geliebt   -      hat living
    wait    waits    waited   for  warte   wartet  warten   gewartet  auf    hat living
    know    knows    known    -    kenne   kennt   kennen   gekannt   -      hat someone
    visit   visits   visited  -    besuche besucht besuchen besucht   -      hat someone
    invite  invites  invited  -    lade    lädt    laden    geladen   ein-   hat someone
    call    calls    called   -    rufe    ruft    rufen    gerufen   an-    hat someone
    buy     buys     bought   -    kaufe   kauft   kaufen   gekauft   -      hat thing
    carry   carries  carried  -    trage   trägt   tragen   getragen  -      hat thing
    pack    packs    packed   -    packe   packt   packen   gepackt   ein-   hat thing
    unpack  unpacks  unpacked -    packe   packt   packen   gepackt   aus-   hat thing
    open    opens    opened   -    mache   macht   machen   gemacht   auf-   hat shut
    close   closes   closed   -    mache   macht   machen   gemacht   zu-    hat shut
    give    gives    given    -    gebe    gibt    geben    gegeben   -      hat gift
    show    shows    shown    -    zeige   zeigt   zeigen   gezeigt   -      hat gift
    send    sends    sent     -    schicke schickt schicken geschickt -      hat gift
"""

DATIVE_VERBS = """
    help    helps    helped   -    helfe   hilft   helfen   geholfen  -      hat living
    follow  follows  followed -    folge   folgt   folgen   gefolgt   -      ist living
    listen  listens  listened to   höre    hört    hören    gehört    zu-    hat living
    thank   thanks   thanked  -    danke   dankt   danken   gedankt   -      hat someone
    dream   dreams   dreamed  of   träume  träumt  träumen  geträumt  von    hat anything
"""

OTHER_VERBS = """
    sleep   sleeps   slept    -    schlafe schläft schlafen geschlafen -     hat nothing
    work    works    worked   -    arbeite arbeitet arbeiten gearbeitet -    hat nothing
    run     runs     run      -    laufe   läuft   laufen   gelaufen  -      ist nothing
    arrive  arrives  arrived  -    komme   kommt   kommen   gekommen  an-    ist nothing
    return  returns  returned -    komme   kommt   kommen   gekommen  zurück- ist nothing
    say     says     said     -    sage    sagt    sagen    gesagt    -      hat clause
    believe believes believed -    glaube  glaubt  glauben  geglaubt  -      hat clause
    know    knows    known    -    weiß    weiß    wissen   gewusst   -      hat clause
"""


def _rows(table: str) -> Iterator[list[str]]:
    """Return the rows of a word table. A "-" stands for no word."""
    for line in filter(None, map(str.split, table.splitlines())):
        yield ["" if word == "-" else word for word in line]


def _adjectives(kind: str) -> tuple[Adjective | None, ...]:
    """Return the adjectives of a kind of noun, mostly none."""
    fit = [Adjective(word, stem) for word, stem, *kinds in _rows(ADJECTIVES) if kind in kinds]
    return (*[None] * 15, *fit)


def _nouns(wanted: str, adjectives: tuple[Adjective | None, ...]) -> tuple[Noun, ...]:
    """Return the nouns of a kind. Weak ones are masculine."""
    return tuple(
        Noun(
            english=(one, many),
            singular=singular,
            plural=plural,
            gender=Gender.MASCULINE if gender == "weak" else Gender[gender.upper()],
            is_weak=gender == "weak",
            is_person=kind == "person",
            adjectives=adjectives,
        )
        for one, many, singular, plural, gender, kind in _rows(NOUNS)
        if kind == wanted
    )


def _verbs(table: str, case: Case) -> tuple[Verb, ...]:
    """Return the verbs of a table, whose objects have this case."""
    return tuple(_verb(row, case) for row in _rows(table))


def _verb(row: list[str], case: Case) -> Verb:
    base, third, english_participle, preposition, *german, particle, perfect, kind = row
    first_person, third_person, plural, german_participle = german
    return Verb(
        english=(base, third),
        english_participle=english_participle,
        german=(first_person, third_person, plural),
        german_participle=german_participle,
        prefix=particle[:-1] if particle.endswith("-") else "",
        prepositions=(preposition, "" if particle.endswith("-") else particle),
        perfect=BE if perfect == "ist" else HAVE,
        case=case,
        objects=OBJECTS[kind],
        gives=kind == "gift",
        reports=kind == "clause",
    )


PEOPLE = _nouns("person", _adjectives("living"))
ANIMALS = _nouns("animal", _adjectives("living"))
FIXTURES = _nouns("fixture", _adjectives("thing"))
CONTAINERS = _nouns("container", _adjectives("thing"))
WARES = _nouns("ware", _adjectives("thing"))
PLACES = _nouns("place", _adjectives("place"))

THINGS = (*CONTAINERS, *WARES)
SOMEONE: tuple[Noun | Phrase, ...] = (*PEOPLE, *NAMES, *CLEAR_PRONOUNS)

SUBJECTS: tuple[Noun | Phrase, ...] = (*PEOPLE, *ANIMALS, *NAMES, *PRONOUNS, *PRONOUNS)
OBJECTS: dict[str, tuple[Noun | Phrase, ...]] = {
    "nothing": (),
    "clause": (),
    "someone": SOMEONE,
    "living": (*SOMEONE, *ANIMALS),
    "thing": THINGS,
    "gift": THINGS,
    "shut": (*FIXTURES, *CONTAINERS),
    "anything": (*SOMEONE, *ANIMALS, *FIXTURES, *THINGS),
}

PREPOSITIONS = (
    Preposition("with", "mit", Case.DATIVE, (*SOMEONE, *THINGS)),
    Preposition("without", "ohne", Case.ACCUSATIVE, (*SOMEONE, *THINGS)),
    Preposition("in", "in", Case.DATIVE, PLACES),
    Preposition("behind", "hinter", Case.DATIVE, (*PLACES, *FIXTURES)),
    Preposition("next to", "neben", Case.DATIVE, (*PLACES, *FIXTURES)),
    Preposition("in front of", "vor", Case.DATIVE, (*PLACES, *FIXTURES)),
)

VERBS = (
    *_verbs(ACCUSATIVE_VERBS, Case.ACCUSATIVE),
    *_verbs(DATIVE_VERBS, Case.DATIVE),
    *_verbs(OTHER_VERBS, Case.ACCUSATIVE),
)
