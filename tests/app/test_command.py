"""Running a command: how a signal ends it."""

import signal
import subprocess
import sys

CODE = "import time; from app.command import run; run(lambda: (print(flush=True), time.sleep(60)))"


def test_sigterm_ends_a_command_by_the_signal() -> None:
    command = [sys.executable, "-c", CODE]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM
        assert not process.stderr.read()
