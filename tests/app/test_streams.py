"""The application as a process whose standard streams are closed or full."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]

SOCKET = """
import socket, sys
from app.streams import open_standard_streams
open_standard_streams()
with socket.create_server(("127.0.0.1", 0)) as server:
    print("a status line", flush=True)
    print("a status line", file=sys.stderr)
    sys.exit(0 if server.fileno() > 2 else 3)
"""


def shell(redirections: str, *arguments: str) -> list[str]:
    return ["bash", "-c", f'exec "$@" {redirections}', "-", sys.executable, *arguments]


@pytest.mark.parametrize("redirections", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "&>/dev/full"])
def test_socket_never_gets_the_number_of_a_standard_stream(redirections: str) -> None:
    done = subprocess.run(shell(redirections, "-c", SOCKET), cwd=ROOT, capture_output=True)
    assert (done.returncode, b"Traceback" in done.stderr) == (0, False)


@pytest.mark.parametrize("redirections", ["2>&-", "<&- 2>&-", "2>/dev/full"])
def test_application_answers_without_stderr(redirections: str) -> None:
    backend = "--backend=http://127.0.0.1:9/v1/models/demo"
    command = shell(redirections, "-m", "app", "--port=0", backend)
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            url = process.stdout.readline().removeprefix("app: ").strip()
            # The backend has no server, so the application logs an error for each request.
            answers = [
                httpx.post(f"{url}/api/v1/translate", json={"text": "a"}, trust_env=False)
                for _ in range(2)
            ]
            assert [answer.status_code >= 500 for answer in answers] == [True, True]
            assert httpx.get(f"{url}/livez", trust_env=False).status_code == 200
        finally:
            process.terminate()
        assert process.stdout.read() == ""
