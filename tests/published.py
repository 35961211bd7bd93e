"""A published corpus, small."""

from tfnmt.data.corpora.published import Part, Published


def small_corpus(url: str) -> Published:
    """Two parts of training text, in two archives of a server; the second is of one pair only."""
    return Published(
        folder="small",
        groups=(("de", "en"), ("fr", "en")),
        splits={
            "train": (
                Part(f"{url}/{{slashed}}/talks-{{joined}}.tgz",
                     "talks/train.{pair}.{language}", 1000),
                Part(f"{url}/get?f=news.zip", "news.{language}", 1000, pairs=("de-en",)),
            ),
            "val": (Part(f"{url}/x/{{alpha3}}.{{language}}.gz", "val", 10),),
        },
        pairs="3",
        licence="none at all",
        pair_folders=True,
        alpha3={"de": "deu", "fr": "fra"},
    )  # fmt: skip
