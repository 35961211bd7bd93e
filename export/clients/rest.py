"""Translates over REST: the arguments, or the lines of standard input; a line a translation.

    python rest.py "A sentence." "Another one."
    python rest.py --url=http://127.0.0.1:8501/v1/models/demo < lines.en > lines.de

Needs `requests` and nothing else. Exit codes: 0 done, 1 failed, 2 called wrongly.
"""

import argparse
import os
import random
import sys
import time
from collections.abc import Iterable, Iterator
from itertools import islice

import requests

PAUSES = (0.5, 1.0, 2.0, 4.0)
"""Seconds before each further attempt, more or less: many clients must not come back at once."""

BUSY = {429, 503}
"""Answers of a server that may do better soon; every other error would only come again."""

CONNECT_SECONDS = 5.0


class ServerError(Exception):
    """No translation came; the message says why."""


def translate(
    session: requests.Session, url: str, texts: list[str], signature: str, seconds: float
) -> list[str]:
    """Asks once for all texts, a row each."""
    request = {"signature_name": signature, "instances": [{"text": text} for text in texts]}
    answer = post(session, f"{url}:predict", request, seconds)
    if not answer.ok:
        raise ServerError(f"{answer.status_code}, {reason(answer)}")
    try:
        return [row["translation"] for row in answer.json()["predictions"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ServerError("what answers there is no translator") from error


def post(session: requests.Session, url: str, request: object, seconds: float) -> requests.Response:
    """Posts, again if nobody is there or the server is busy, not if an answer takes too long."""
    timeout = (CONNECT_SECONDS, seconds)
    for pause in PAUSES:
        try:
            answer = session.post(url, json=request, timeout=timeout)
            if answer.status_code not in BUSY:
                return answer
        except requests.ConnectionError:
            pass
        time.sleep(pause * random.uniform(0.5, 1.5))
    return session.post(url, json=request, timeout=timeout)


def reason(answer: requests.Response) -> str:
    """What the server says about an error, or the status' name if it says nothing of its own."""
    try:
        return str(answer.json()["error"])
    except (ValueError, KeyError, TypeError):
        return answer.reason


def batches(lines: Iterable[str], rows: int) -> Iterator[list[str]]:
    """The lines, some at a time."""
    rest = iter(lines)
    while batch := [line.rstrip("\r\n") for line in islice(rest, rows)]:
        yield batch


def one_line(text: str) -> str:
    """A translation without line breaks of its own."""
    return text.replace("\n", " ").replace("\r", " ")


def main() -> None:
    """Translates batch by batch, in order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument("--url", default="http://127.0.0.1:8501/v1/models/demo")
    parser.add_argument("--signature", default="serving_default")
    parser.add_argument("--rows", type=int, default=16, help="sentences a request")
    parser.add_argument("--timeout", type=float, default=30.0, help="seconds for an answer")
    flags = parser.parse_args()
    if flags.rows < 1:
        parser.error("--rows: at least 1")
    if not 0 < flags.timeout < float("inf"):
        parser.error("--timeout: a number of seconds above 0")
    sys.stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")
    sys.stdout.reconfigure(encoding="utf-8")
    try:
        with requests.Session() as session:
            for texts in batches(flags.texts or sys.stdin, flags.rows):
                for line in translate(session, flags.url, texts, flags.signature, flags.timeout):
                    print(one_line(line), flush=True)
    except ServerError as error:
        sys.exit(f"rest.py: {flags.url}: {error}")
    except requests.ReadTimeout:
        sys.exit(f"rest.py: {flags.url}: no answer within {flags.timeout:g} seconds")
    except requests.ConnectionError:
        sys.exit(f"rest.py: {flags.url}: nobody answers there; is the server up?")
    except requests.RequestException as error:
        sys.exit(f"rest.py: {flags.url}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # whoever read has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
