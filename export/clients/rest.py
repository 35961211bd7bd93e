"""Translate the arguments, or the lines of standard input, over REST; print one line per text.

    python rest.py "A sentence." "Another one."
    python rest.py --url=http://127.0.0.1:8501/v1/models/demo < lines.en > lines.de
    python rest.py --target=de "A sentence."

Requires only `requests`. Exit codes: 0 success, 1 failure, 2 invalid arguments.
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
"""Seconds before each retry, varied at random so that clients do not retry at the same time."""

BUSY = {429, 503}
"""Statuses of a busy server, which are retried. Other errors would repeat."""

CONNECT_SECONDS = 5.0


class ServerError(Exception):
    """The server returned no translation."""


def translate(
    session: requests.Session, url: str, rows: list[dict[str, str]], signature: str, seconds: float
) -> list[str]:
    """Translate the rows of one request.

    Raises:
        ServerError: The response is an error or has no translation.
    """
    request = {"signature_name": signature, "instances": rows}
    response = post(session, f"{url}:predict", request, seconds)
    if not response.ok:
        raise ServerError(f"status {response.status_code}: {one_line(reason(response))}")
    try:
        return [row["translation"] for row in response.json()["predictions"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ServerError("the response has no translation; check --url and --signature") from error


def post(session: requests.Session, url: str, request: object, seconds: float) -> requests.Response:
    """Post a request; retry if the server is unreachable or busy, but not after a timeout."""
    timeout = (CONNECT_SECONDS, seconds)
    for pause in PAUSES:
        try:
            response = session.post(url, json=request, timeout=timeout)
            if response.status_code not in BUSY:
                return response
        except requests.ConnectionError:
            pass  # the last attempt, below, raises it
        time.sleep(pause * random.uniform(0.5, 1.5))
    return session.post(url, json=request, timeout=timeout)


def reason(response: requests.Response) -> str:
    """Return the error message of the server, or the name of the status."""
    try:
        return str(response.json()["error"])
    except (ValueError, KeyError, TypeError):
        return response.reason


def batches(lines: Iterable[str], rows: int) -> Iterator[list[str]]:
    """Yield the lines in batches of `rows`."""
    remaining = iter(lines)
    while batch := [line.rstrip("\r\n") for line in islice(remaining, rows)]:
        yield batch


def one_line(text: str) -> str:
    """Replace line breaks in a translation or an error message."""
    return text.replace("\n", " ").replace("\r", " ")


def open_streams(reads_stdin: bool) -> None:
    """Check the standard streams and set their encoding.

    A closed one is opened on the null device. Otherwise a socket would get its number.
    """
    if sys.stdout is None:
        sys.exit("rest.py: stdout: closed; send it to a file or a pipe")
    if reads_stdin and sys.stdin is None:
        sys.exit("rest.py: stdin: closed; give a TEXT")
    while (null := os.open(os.devnull, os.O_RDWR)) <= 2:
        pass
    os.close(null)
    sys.stdout.reconfigure(encoding="utf-8")
    if reads_stdin:
        sys.stdin.reconfigure(encoding="utf-8", errors="replace", newline="\n")


def discard_stdout() -> None:
    """Redirect stdout to the null device, because Python would fail again at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def main() -> None:
    """Translate in batches and print the translations in order."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("texts", nargs="*", metavar="TEXT")
    parser.add_argument(
        "--url",
        default="http://127.0.0.1:8501/v1/models/demo",
        help="address of the model (default: %(default)s)",
    )
    parser.add_argument(
        "--signature",
        default="serving_default",
        help="signature to call (default: %(default)s)",
    )
    parser.add_argument("--target", help="language to translate to, if the model has several")
    parser.add_argument(
        "--rows", type=int, default=16, help="sentences per request (default: %(default)s)"
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=30.0,
        help="seconds to wait for a response (default: %(default)s)",
    )
    flags = parser.parse_args()
    if flags.rows < 1:
        parser.error("--rows: must be 1 or greater")
    if not 0 < flags.timeout < float("inf"):
        parser.error("--timeout: must be a finite number of seconds greater than 0")
    open_streams(reads_stdin=not flags.texts)
    target = {"target": flags.target} if flags.target else {}
    try:
        with requests.Session() as session:
            for texts in batches(flags.texts or sys.stdin, flags.rows):
                rows = [{"text": text, **target} for text in texts]
                for line in translate(session, flags.url, rows, flags.signature, flags.timeout):
                    print(one_line(line), flush=True)
    except ServerError as error:
        sys.exit(f"rest.py: {flags.url}: {error}")
    except requests.ReadTimeout:
        sys.exit(
            f"rest.py: {flags.url}: no response within {flags.timeout:g} seconds; see --timeout"
        )
    except requests.ConnectionError:
        sys.exit(f"rest.py: {flags.url}: cannot connect; check that the server is running")
    except requests.RequestException as error:
        sys.exit(f"rest.py: {flags.url}: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:  # the reader has closed the pipe
        discard_stdout()
    except OSError as error:
        discard_stdout()
        sys.exit(f"rest.py: stdin or stdout: {error.strerror}")


if __name__ == "__main__":
    main()
