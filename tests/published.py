"""A small published corpus."""

from tfnmt.data.corpora.published import Part, Published


def small_corpus(url: str) -> Published:
    """Return a corpus with two parts of training text, in two archives of a server.

    The second part belongs to one language pair only.
    """
    talks = Part(f"{url}/{{slashed}}/talks-{{joined}}.tgz", "talks/train.{pair}.{language}", 1000)
    news = Part(f"{url}/get?f=news.zip", "news.{language}", 1000, pairs=("de-en",))
    val = Part(f"{url}/x/{{alpha3}}.{{language}}.gz", "val", 10)
    return Published(
        folder="small",
        groups=(("de", "en"), ("fr", "en")),
        splits={"train": (talks, news), "val": (val,)},
        pairs="3",
        license="none at all",
        pair_folders=True,
        alpha3={"de": "deu", "fr": "fra"},
    )
