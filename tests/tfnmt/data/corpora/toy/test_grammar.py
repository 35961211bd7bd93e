import re
from itertools import islice
from zlib import crc32

import numpy as np
import numpy.typing as npt
import pytest
import sacrebleu

from tfnmt.data.corpora.toy.grammar import HELD_OUT, LANGUAGES, SIZES, pairs
from tfnmt.data.corpora.toy.lexicon import OBJECTS, VERBS, Noun

Pair = tuple[str, str]
Counts = npt.NDArray[np.float32]

PHENOMENA = {
    "declension": {
        "The old bird should sleep.": "Der alte Vogel soll schlafen.",
        "I open the old letter that he carries.": "Ich mache den alten Brief auf, den er trägt.",
        "Our cats must help the old neighbour.": "Unsere Katzen müssen dem alten Nachbarn helfen.",
        "The old cat arrives.": "Die alte Katze kommt an.",
        "The happy neighbours follow the old queen.": (
            "Die glücklichen Nachbarn folgen der alten Königin."
        ),
        "The old girl arrives.": "Das alte Mädchen kommt an.",
        "Today an old bird must follow a horse.": "Heute muss ein alter Vogel einem Pferd folgen.",
        "She sends an old ball to us.": "Sie schickt uns einen alten Ball.",
        "A child may thank an old king.": "Ein Kind darf einem alten König danken.",
        "An old child should pack our bag.": "Ein altes Kind soll unsere Tasche einpacken.",
        "We may thank an old sister.": "Wir dürfen einer alten Schwester danken.",
        "Every old sister gives the apple to me.": "Jede alte Schwester gibt mir den Apfel.",
    },
    "plurals": {
        "He must see old men.": "Er muss alte Männer sehen.",
        "My old teachers should arrive.": "Meine alten Lehrer sollen ankommen.",
        "The bear has helped the old dogs.": "Der Bär hat den alten Hunden geholfen.",
        "We dream of the old letters.": "Wir träumen von den alten Briefen.",
        "These bears must open gifts.": "Diese Bären müssen Geschenke aufmachen.",
    },
    "verb second": {
        "Today the old brother sleeps.": "Heute schläft der alte Bruder.",
        "Here a big teacher finds a bird.": "Hier findet ein großer Lehrer einen Vogel.",
        "Of course Clara invites a happy king.": (
            "Natürlich lädt Clara einen glücklichen König ein."
        ),
        "Because Peter calls Clara, they know Anna.": "Weil Peter Clara anruft, kennen sie Anna.",
        "Although Felix has slept, they have run.": (
            "Obwohl Felix geschlafen hat, sind sie gelaufen."
        ),
    },
    "verb last": {
        "I sleep because Maria listens to his child.": (
            "Ich schlafe, weil Maria seinem Kind zuhört."
        ),
        "He knows that she can call Anna.": "Er weiß, dass sie Anna anrufen kann.",
        "Every bear helps the old queen if we return.": (
            "Jeder Bär hilft der alten Königin, wenn wir zurückkommen."
        ),
    },
    "separable verbs": {
        "She opens the old bag.": "Sie macht die alte Tasche auf.",
        "We have opened his red door.": "Wir haben seine rote Tür aufgemacht.",
        "Today we can open bags.": "Heute können wir Taschen aufmachen.",
        "While he opens a window, she works.": "Während er ein Fenster aufmacht, arbeitet sie.",
        "Felix closes a letter that he may see.": "Felix macht einen Brief zu, den er sehen darf.",
    },
    "brackets": {
        "Peter can open my small bags.": "Peter kann meine kleinen Taschen aufmachen.",
        "Has every girl always opened a big book?": (
            "Hat jedes Mädchen immer ein großes Buch aufgemacht?"
        ),
        "The sisters have opened an old letter.": (
            "Die Schwestern haben einen alten Brief aufgemacht."
        ),
        "He has followed me.": "Er ist mir gefolgt.",
    },
    "prepositions": {
        "The bear sleeps without a clever girl.": "Der Bär schläft ohne ein kluges Mädchen.",
        "Maria has run with the neighbour.": "Maria ist mit dem Nachbarn gelaufen.",
        "A bear visits Maria in the castle.": "Ein Bär besucht Maria im Schloss.",
        "Anna helps Maria behind the window.": "Anna hilft Maria hinter dem Fenster.",
        "The young men wait for the doctor.": "Die jungen Männer warten auf den Arzt.",
        "Lukas must think of us.": "Lukas muss an uns denken.",
    },
    "dative objects": {
        "Peter gives every letter to Maria.": "Peter gibt Maria jeden Brief.",
        "He shows the shirts to these children.": "Er zeigt diesen Kindern die Hemden.",
        "Felix can give the letters to the brother.": "Felix kann dem Bruder die Briefe geben.",
        "Peter has listened to an old cat.": "Peter hat einer alten Katze zugehört.",
    },
    "pronouns": {
        "Here Peter sees me.": "Hier sieht mich Peter.",
        "May Maria thank me?": "Darf mir Maria danken?",
        "Peter gives our flower to him.": "Peter gibt ihm unsere Blume.",
        "Maria visits Anna if a sister has known me.": (
            "Maria besucht Anna, wenn mich eine Schwester gekannt hat."
        ),
        "Today they see Anna.": "Heute sehen sie Anna.",
        "She sees the strange window.": "Sie sieht das seltsame Fenster.",
    },
    "negation": {
        "Here we open no old book.": "Hier machen wir kein altes Buch auf.",
        "Our men pack no heavy letter.": "Unsere Männer packen keinen schweren Brief ein.",
        "Should Clara pack no hats?": "Soll Clara keine Hüte einpacken?",
    },
    "relative clauses": {
        "Anna waits for our doctor whom we love.": "Anna wartet auf unseren Arzt, den wir lieben.",
        "Now a bear that I have followed sleeps.": "Jetzt schläft ein Bär, dem ich gefolgt bin.",
        "She finds boys whom he invites.": "Sie findet Jungen, die er einlädt.",
        "Every clever child whom we dream of arrives.": (
            "Jedes kluge Kind, von dem wir träumen, kommt an."
        ),
        "The horses listen to these girls who arrive.": (
            "Die Pferde hören diesen Mädchen zu, die ankommen."
        ),
        "Today girls whom we have thanked return.": (
            "Heute kommen Mädchen, denen wir gedankt haben, zurück."
        ),
    },
    "nesting": {
        "The bears say that she knows that Felix has returned.": (
            "Die Bären sagen, dass sie weiß, dass Felix zurückgekommen ist."
        ),
        "His doctor who loves a mouse that can carry my big shirt runs.": (
            "Sein Arzt, der eine Maus liebt, die mein großes Hemd tragen kann, läuft."
        ),
    },
    "many meanings": {
        "Now Clara knows Lukas.": "Jetzt kennt Clara Lukas.",
        "Today he knows that she must often sleep.": "Heute weiß er, dass sie oft schlafen muss.",
        "Lukas looks for the sister.": "Lukas sucht die Schwester.",
        "Peter looks at us.": "Peter sieht uns an.",
    },
}


FEW = {"train": 20_000, "val": 200, "test": 200}
MANY = {"train": 200_000, "val": 1_000, "test": 1_000}


@pytest.fixture(
    scope="module",
    params=[pytest.param(FEW, id="few"), pytest.param(MANY, id="many", marks=pytest.mark.slow)],
)
def splits(request: pytest.FixtureRequest) -> dict[str, list[Pair]]:
    """Return the first pairs of each split: few of them (4 s), or many in slow tests (18 s)."""
    return {split: list(islice(pairs(split), size)) for split, size in request.param.items()}


def side(corpus: list[Pair], language: str) -> list[str]:
    return [pair[LANGUAGES.index(language)] for pair in corpus]


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[.,?]", text.lower())


@pytest.mark.parametrize(
    ("split", "count", "checksum"),
    [("train", 20_000, 2191345609), ("val", 200, 614897561), ("test", 200, 782877349)],
)
def test_corpus_is_the_same_everywhere(
    splits: dict[str, list[Pair]], split: str, count: int, checksum: int
) -> None:
    """Other text needs another `revision` in the catalog, or caches and runs mix two texts."""
    lines = [f"{english}\t{german}\n" for english, german in splits[split][:count]]
    assert crc32("".join(lines).encode()) == checksum


def test_corpus_is_the_same_in_each_call(splits: dict[str, list[Pair]]) -> None:
    assert list(islice(pairs("val"), len(splits["val"]))) == splits["val"]


def test_unknown_split_is_an_error_before_iteration() -> None:
    with pytest.raises(ValueError, match="dev: not one of train, val, test"):
        pairs("dev")


@pytest.mark.parametrize("split", ["val", pytest.param("test", marks=pytest.mark.slow)])
def test_val_and_test_are_complete_without_repetitions(split: str) -> None:
    generated = list(pairs(split))
    assert len(set(generated)) == len(generated) == SIZES[split] == 1_000


@pytest.mark.parametrize("phenomenon", PHENOMENA)
def test_german_translations_are_grammatical(
    splits: dict[str, list[Pair]], phenomenon: str
) -> None:
    german = dict(splits["train"][:20_000])
    examples = PHENOMENA[phenomenon]
    assert {english: german.get(english) for english in examples} == examples


def test_sentences_have_three_to_25_words(splits: dict[str, list[Pair]]) -> None:
    lengths = [len(english.split()) for english in side(splits["train"], "en")]
    assert (min(lengths), max(lengths)) == (3, 25)
    assert 9 < sum(lengths) / len(lengths) < 11


def test_sentences_have_capitals_and_final_marks(splits: dict[str, list[Pair]]) -> None:
    shape = re.compile(r"[A-ZÄÖÜ]\w*(,? \w+)+[.?]")
    assert all(shape.fullmatch(text) for pair in splits["train"][:20_000] for text in pair)


def test_each_sentence_has_one_translation_in_either_direction(
    splits: dict[str, list[Pair]],
) -> None:
    train = splits["train"]
    assert len(set(side(train, "en"))) == len(set(side(train, "de"))) == len(train)


@pytest.mark.slow
def test_a_million_pairs_are_distinct_in_either_language() -> None:
    train = list(pairs("train"))
    assert len(set(side(train, "en"))) == len(set(side(train, "de"))) == len(train) == 1_000_000


@pytest.mark.parametrize("language", LANGUAGES)
def test_splits_share_no_sentence(splits: dict[str, list[Pair]], language: str) -> None:
    sentences = [set(side(split, language)) for split in splits.values()]
    assert len(set.union(*sentences)) == sum(map(len, sentences))


VERB_FORMS = {verb.english[0]: (*verb.english, verb.english_participle) for verb in VERBS}
NOUN_FORMS = {
    noun.english[0]: noun.english for noun in OBJECTS["anything"] if isinstance(noun, Noun)
}


def contains_held_out(english: str) -> bool:
    """Return whether a sentence has any forms of a verb and a noun of a held-out combination."""
    found = set(words(english))
    return any(
        found.intersection(VERB_FORMS[verb]) and found.intersection(NOUN_FORMS[noun])
        for verb, noun in HELD_OUT
    )


@pytest.mark.parametrize("split", ["train", "val"])
def test_train_and_val_never_contain_held_out_combinations(
    splits: dict[str, list[Pair]], split: str
) -> None:
    assert not any(map(contains_held_out, side(splits[split][:20_000], "en")))


def test_every_fifth_test_sentence_contains_a_held_out_combination(
    splits: dict[str, list[Pair]],
) -> None:
    found = [contains_held_out(english) for english in side(splits["test"], "en")]
    assert found == [False, False, False, False, True] * (len(found) // 5)


@pytest.mark.parametrize("language", LANGUAGES)
def test_test_split_has_no_unknown_words(splits: dict[str, list[Pair]], language: str) -> None:
    known = vocabulary(side(splits["train"][:20_000], language))
    assert set(vocabulary(side(splits["test"], language))) <= set(known)


def vocabulary(texts: list[str]) -> list[str]:
    return sorted({word for text in texts for word in words(text)})


def counts(texts: list[str], known: list[str]) -> Counts:
    """Count each known word in each text, [texts, words]."""
    index = {word: position for position, word in enumerate(known)}
    matrix = np.zeros((len(texts), len(known)), np.float32)
    for row, text in zip(matrix, texts, strict=True):
        for word in words(text):
            row[index[word]] += 1
    return matrix


def bleu(hypotheses: list[str], references: list[str]) -> float:
    return float(sacrebleu.corpus_bleu(hypotheses, [references], lowercase=True).score)


def dictionary(english: list[str], german: list[str]) -> dict[str, tuple[str, float]]:
    """Return the most probable German word for each English word, by IBM model 1.

    This is expectation maximization over bags of words: each German word of a pair is divided among
    the English words of the pair, in proportion to their translation probabilities.

    Returns:
        The German word and its probability, by English word.
    """
    source_words, target_words = vocabulary(english), vocabulary(german)
    source, target = counts(english, source_words), counts(german, target_words)
    probability = np.ones((len(source_words), len(target_words)), np.float32)
    for _ in range(5):
        probability *= source.T @ (target / (source @ probability).clip(1e-9))
        probability /= probability.sum(axis=1, keepdims=True)
    return {
        word: (target_words[row.argmax()], float(row.max()))
        for word, row in zip(source_words, probability, strict=True)
    }


def test_word_for_word_dictionary_fails(splits: dict[str, list[Pair]]) -> None:
    train, test = splits["train"][:20_000], splits["test"]
    german_for = dictionary(side(train, "en"), side(train, "de"))
    for minimum in (0.0, 0.3):  # less probable words are omitted
        hypotheses = [
            " ".join(german_for[word][0] for word in words(text) if german_for[word][1] >= minimum)
            for text in side(test, "en")
        ]
        assert bleu(hypotheses, side(test, "de")) < 30


def test_copying_the_nearest_sentence_fails(splits: dict[str, list[Pair]]) -> None:
    """The nearest sentence is the one with the highest cosine of word counts."""
    train, test = splits["train"][:20_000], splits["test"]
    known = vocabulary(side(train, "en"))
    memory = counts(side(train, "en"), known)
    memory /= np.linalg.norm(memory, axis=1, keepdims=True)
    nearest = (counts(side(test, "en"), known) @ memory.T).argmax(axis=1)
    assert bleu([train[index][1] for index in nearest], side(test, "de")) < 60
