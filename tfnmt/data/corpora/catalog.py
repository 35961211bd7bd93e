"""The catalog of named corpora, and opening the corpus of a configuration."""

from collections.abc import Sequence
from pathlib import Path

from tfnmt.config import DataConfig
from tfnmt.data.corpora.assembly import Origin, assemble, readable
from tfnmt.data.corpora.corpus import BuiltIn, Corpus, Files, HeldOut, check_files
from tfnmt.data.corpora.discovery import find_texts
from tfnmt.data.corpora.downloads import Download
from tfnmt.data.corpora.published import (
    Part,
    Published,
    every_23rd,
    every_100th_english,
    segments,
    talks,
)
from tfnmt.data.corpora.toy import digits, grammar
from tfnmt.errors import UsageError, did_you_mean
from tfnmt.runs.run import base_folder

MULTI30K = "https://raw.githubusercontent.com/multi30k/dataset/master/data/task1/raw"
STATMT = "https://www.statmt.org"
IWSLT14 = "https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz"
IWSLT17 = (
    "https://huggingface.co/datasets/IWSLT/iwslt2017/resolve/main/data/2017-01-trnted/texts/"
    "{slashed}/{pair}.zip"
)

ANKI = (
    "af:afr ar:ara az:aze be:bel bg:bul bn:ben ca:cat cs:ces da:dan de:deu el:ell eo:epo es:spa "
    "et:est eu:eus fa:pes fi:fin fr:fra gl:glg he:heb hi:hin hr:hrv hu:hun hy:hye id:ind is:isl "
    "it:ita ja:jpn ka:kat kk:kaz ko:kor la:lat lt:lit lv:lvs mk:mkd mr:mar ms:zsm nl:nld no:nob "
    "pl:pol pt:por ro:ron ru:rus sk:slk sl:slv sq:sqi sr:srp sv:swe ta:tam te:tel th:tha tl:tgl "
    "tr:tur uk:ukr ur:urd vi:vie yi:yid zh:cmn"
)
"""Languages of manythings.org/anki: our name, and the name in its files."""
_ANKI_CODES = dict(item.split(":") for item in ANKI.split())


def _multi30k(split: str, size: int, *pairs: str) -> Part:
    return Part(f"{MULTI30K}/{split}.{{language}}.gz", f"{split}.{{language}}", size, pairs=pairs)


_DIGITS = ("4e96602ae0af0e026bd7809d16797a1a3c59e02ad7dfbcf941f7f13cf65e9c6d",)
_EN_DE_FR = ("en-de", "en-fr", "de-fr")

CORPORA: dict[str, BuiltIn | Published] = {
    "toy": BuiltIn(
        grammar.LANGUAGES,
        grammar.pairs,
        # The revisions of the built-in corpora are the SHA-256 of the modules that first generated
        # their text, because older runs have these values in their keys.
        revision=(
            "4b716ebfb1040eca6f8c9ac5b597c6a5a38034aa43c9d524fbae51c07de262d3",
            "85b3ac735ab72a1f487b3421453ab0ad70e452210143ff1a1468224470e6687f",
        ),
        pairs="1,000,000",
    ),
    "copy": BuiltIn(("digits", "copied"), digits.copy_pairs, _DIGITS, pairs="50,000"),
    "reverse": BuiltIn(("digits", "reversed"), digits.reverse_pairs, _DIGITS, pairs="50,000"),
    "multi30k": Published(
        folder="multi30k",
        groups=(("en", "de", "fr", "cs"),),
        splits={
            "train": (_multi30k("train", 600_000),),
            "val": (_multi30k("val", 25_000),),
            "test_2016_flickr": (_multi30k("test_2016_flickr", 25_000),),
            "test_2017_flickr": (_multi30k("test_2017_flickr", 25_000, *_EN_DE_FR),),
            "test_2017_mscoco": (_multi30k("test_2017_mscoco", 12_000, *_EN_DE_FR),),
        },
        pairs="29,000",
        license="none stated; made from Flickr30K, for non-commercial research and education",
        aliases={"test": "test_2016_flickr"},
        # Checksums of torchtext (pytorch/text, torchtext/datasets/multi30k.py).
        checksums={
            "test_2016_flickr.cs.gz": "md5:3104872229daa1bef3b401d44dd2220b",
            "test_2016_flickr.de.gz": "md5:efd67d314d98489b716b145475101932",
            "test_2016_flickr.en.gz": "md5:ff2c0fcb4893a13bd73414306bc250ae",
            "test_2016_flickr.fr.gz": "md5:08dc7cd4a662f31718412de95ca9bfe3",
            "test_2017_flickr.de.gz": "md5:6a8d5c87f6ae19e3d35681aa6fd16571",
            "test_2017_flickr.en.gz": "md5:005396bac545d880abe6f00bbb7dbbb4",
            "test_2017_flickr.fr.gz": "md5:cb09af7d2b501f9112f2d6a59fa1360d",
            "test_2017_mscoco.de.gz": "md5:e8cd6ec2bc8a11fc846fa48a46e3d0bb",
            "test_2017_mscoco.en.gz": "md5:a7b684e0edbef1d4a23660c8e8e743fd",
            "test_2017_mscoco.fr.gz": "md5:4995d10954a804d3cdfd907b9fd093e8",
            "train.cs.gz": "md5:d9a5fc268917725a2b0efce3a0cc8607",
            "train.de.gz": "md5:81ff90b99829c0cd4b1b587d394afd39",
            "train.en.gz": "md5:0065d13af80720a55ca8153d126e6627",
            "train.fr.gz": "md5:6cb767741dcad3931f966fefbc05203f",
            "val.cs.gz": "md5:83cdc082f646b769095615384cf5c0ca",
            "val.de.gz": "md5:6e0e229eb049e3fc99a1ef02fb2d5f91",
            "val.en.gz": "md5:2b69aa9253948ac9f67e94917272dd40",
            "val.fr.gz": "md5:93fc564584b7e5ba410c761ea5a1c682",
        },
    ),
    "tatoeba": Published(
        folder="tatoeba",
        groups=tuple((language, "en") for language in _ANKI_CODES),
        splits={
            split: (
                Part(
                    "https://www.manythings.org/anki/{alpha3}-eng.zip",
                    "{alpha3}.txt",
                    5_000_000,
                    every_100th_english(held_out=split == "val"),
                ),
            )
            for split in ("train", "val")
        },
        pairs="up to 300,000",
        license="CC BY 2.0: name manythings.org/anki and tatoeba.org where you publish a model",
        pair_folders=True,
        alpha3=_ANKI_CODES,
    ),
    "iwslt14": Published(
        folder="iwslt14",
        groups=(("de", "en"),),
        splits={
            "train": (
                Part(
                    IWSLT14,
                    "de-en/train.tags.de-en.{language}",
                    20_000_000,
                    every_23rd(talks, held_out=False),
                ),
            ),
            "val": (
                Part(
                    IWSLT14,
                    "de-en/train.tags.de-en.{language}",
                    20_000_000,
                    every_23rd(talks, held_out=True),
                ),
            ),
            # In the order in which fairseq concatenates them.
            "test": tuple(
                Part(IWSLT14, f"de-en/IWSLT14.{name}.de-en.{{language}}.xml", 20_000_000, segments)
                for name in (
                    "TED.dev2010",
                    "TEDX.dev2012",
                    "TED.tst2010",
                    "TED.tst2011",
                    "TED.tst2012",
                )
            ),
        },
        pairs="167,000",
        license="CC BY-NC-ND 3.0 (TED): not for commercial use",
        pair_folders=True,
    ),
    "iwslt17": Published(
        folder="iwslt17",
        groups=(("de", "en"), ("fr", "en")),
        splits={
            "train": (Part(IWSLT17, "{pair}/train.tags.{pair}.{language}", 17_000_000, talks),),
            "val": (
                Part(
                    IWSLT17,
                    "{pair}/IWSLT17.TED.dev2010.{pair}.{language}.xml",
                    17_000_000,
                    segments,
                ),
            ),
            "test": tuple(
                Part(
                    IWSLT17,
                    f"{{pair}}/IWSLT17.TED.tst{year}.{{pair}}.{{language}}.xml",
                    17_000_000,
                    segments,
                )
                for year in range(2010, 2016)
            ),
        },
        pairs="210,000 to 240,000",
        license="CC BY-NC-ND 4.0 (TED): not for commercial use",
        pair_folders=True,
    ),
    "umc005": Published(
        folder="umc005",
        groups=(("en", "ur"),),
        splits={
            split: tuple(
                Part(
                    "https://ufal.mff.cuni.cz/umc/005-en-ur/download.php?f=umc005-corpus.zip",
                    f"{book}/{stem}.{{language}}",
                    3_700_000,
                )
                for book in ("bible", "quran")
            )
            for split, stem in (("train", "train"), ("val", "dev"), ("test", "test"))
        },
        pairs="13,400",
        license="CC BY-NC-SA: research only",
    ),
    "wmt14": Published(
        folder="wmt14",
        groups=(("de", "en"), ("fr", "en")),
        splits={
            "train": (
                Part(
                    f"{STATMT}/wmt13/training-parallel-europarl-v7.tgz",
                    "training/europarl-v7.{pair}.{language}",
                    657_632_379,
                ),
                Part(
                    f"{STATMT}/wmt13/training-parallel-commoncrawl.tgz",
                    "commoncrawl.{pair}.{language}",
                    918_311_367,
                ),
                Part(
                    f"{STATMT}/wmt14/training-parallel-nc-v9.tgz",
                    "training/news-commentary-v9.{pair}.{language}",
                    80_418_416,
                ),
                Part(
                    f"{STATMT}/wmt13/training-parallel-un.tgz",
                    "un/undoc.2000.{pair}.{language}",
                    2_400_000_000,
                    pairs=("fr-en",),
                ),
                Part(
                    f"{STATMT}/wmt10/training-giga-fren.tar",
                    "giga-fren.release2.fixed.{language}.gz",
                    2_600_000_000,
                    pairs=("fr-en",),
                ),
            ),
            "newstest2013": (
                Part(
                    "https://data.statmt.org/wmt17/translation-task/dev.tgz",
                    "dev/newstest2013.{language}",
                    30_000_000,
                ),
            ),
            "newstest2014": (
                Part(
                    f"{STATMT}/wmt14/test-full.tgz",
                    "test-full/newstest2014-{joined}-ref.{language}.sgm",
                    3_300_000,
                    segments,
                ),
            ),
        },
        pairs="4,500,000 (de), 40,800,000 (fr)",
        license="research use; each part has its own terms, see statmt.org/wmt14",
        aliases={"val": "newstest2013", "test": "newstest2014"},
        pair_folders=True,
        # The first three are from TensorFlow Datasets (url_checksums/wmt14_translate.txt), the last
        # one is from sacreBLEU.
        checksums={
            "training-parallel-europarl-v7.tgz": (
                "sha256:0224c7c710c8a063dfd893b0cc0830202d61f4c75c17eb8e31836103d27d96e7"
            ),
            "training-parallel-commoncrawl.tgz": (
                "sha256:c7a74e2ea01ac6c920123108627e35278d4ccb5701e15428ffa34de86fa3a9e5"
            ),
            "training-parallel-nc-v9.tgz": (
                "sha256:cb8953f292298e6877ae433c98912b927cb0766b303f4540512ddd286c748485"
            ),
            "test-full.tgz": "md5:a8cd784e006feb32ac6f3d9ec7eb389a",
        },
    ),
}
"""The named corpora. docs/contributing/development.md explains how to add one."""


def data_folder(named: str | None) -> Path:
    """Return the folder of all corpora: the given one, or data/."""
    return Path(named or base_folder() / "data")


def open_corpus(data: DataConfig, seed: int, data_dir: Path) -> Corpus:
    """Open the corpus of a configuration in its direction.

    Args:
        data: The `data` section.
        seed: The random seed that selects held-out rows of custom data.
        data_dir: The folder of all corpora.

    Raises:
        UsageError: The name or the direction does not exist.
    """
    if data.train is not None:
        return _custom_corpus(data, seed)
    return _entry(data).open(data.source, data.target, data_dir)


def download_missing(
    data: DataConfig, corpus: Corpus, splits: Sequence[str], data_dir: Path, origin: Origin
) -> None:
    """Download the missing files of some splits. Existing files are used unchanged.

    Raises:
        UserError: The download failed, or files of custom data are missing.
    """
    entry = CORPORA.get(data.corpus or "")
    if isinstance(entry, Published):
        for split in splits:
            if not all(path.is_file() for path in corpus.files(split)):
                assemble(entry, (data.source, data.target), split, data_dir, origin)
    check_files(corpus, *splits)


def has_test(data: DataConfig, corpus: Corpus) -> bool:
    """Return whether the corpus has a test split under this or another name."""
    entry = CORPORA.get(data.corpus or "")
    return "test" in corpus.splits or (isinstance(entry, Published) and "test" in entry.aliases)


def split_name(data: DataConfig, corpus: Corpus, split: str) -> str:
    """Return the corpus' own name of a split: `test` is `newstest2014` in wmt14."""
    entry = CORPORA.get(data.corpus or "")
    aliases = entry.aliases if isinstance(entry, Published) else {}
    name = aliases.get(split, split)
    if name not in corpus.splits:
        known = ", ".join((*corpus.splits, *aliases))
        raise UsageError(f"--split={split}: unknown split; choose one of {known}")
    return name


def license(data: DataConfig) -> str:
    """Return the license of the training text, if known."""
    if data.corpus is None:
        return "that of your custom data"
    entry = CORPORA.get(data.corpus)
    return entry.license if isinstance(entry, Published) else "synthetic text, generated by tfnmt"


def listing() -> str:
    """Return a listing of all corpora: names, directions, sizes and licenses."""
    blocks = []
    for name, entry in CORPORA.items():
        directions = sorted({"-".join(sorted(pair)) for pair in entry.directions()})
        pairs = ", ".join(directions[:8]) + (
            f" and {len(directions) - 8} more" * (len(directions) > 8)
        )
        blocks.append(f"{name}: {entry.pairs} pairs; both directions of {pairs}\n  {_terms(entry)}")
    return "\n".join(blocks)


def _terms(entry: BuiltIn | Published) -> str:
    if isinstance(entry, BuiltIn):
        return "built in: synthetic, generated by tfnmt, no download"
    first, *others = dict.fromkeys(entry.pair(*pair) for pair in sorted(entry.directions()))
    sizes = [
        f"{pair} {readable(sum(download.size for download in _all_downloads(entry, pair)))}"
        for pair in ([first, *others] if len(others) == 1 else [first])
    ]
    return f"download about {', '.join(sizes)}; license: {entry.license}"


def _all_downloads(entry: Published, pair: str) -> list[Download]:
    source, target = pair.split("-")
    found: dict[str, Download] = {}
    for split in entry.splits:
        found |= entry.downloads(split, source, target)
    return list(found.values())


def _entry(data: DataConfig) -> BuiltIn | Published:
    """Return the catalog entry of a configuration and check its direction."""
    name = data.corpus or ""
    entry = CORPORA.get(name)
    if entry is None:
        raise UsageError(
            f"data.corpus={name}: unknown corpus; {did_you_mean(name, CORPORA)}choose one of "
            f"{', '.join(CORPORA)}"
        )
    if (data.source, data.target) not in entry.directions():
        pairs = ", ".join(f"{a}-{b}" for a, b in sorted(entry.directions()))
        raise UsageError(
            f"data.corpus={name}: no direction {data.source}-{data.target}; choose one of {pairs}"
        )
    return entry


def _custom_corpus(data: DataConfig, seed: int) -> Corpus:
    assert data.train is not None
    texts = {
        split: find_texts(names, data.source, data.target)
        for split, names in (("train", data.train), ("val", data.val))
        if names is not None
    }
    if data.val is None:
        return HeldOut(Files(texts), seed)
    return Files(texts)
