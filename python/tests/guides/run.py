"""Runs a page: its blocks in order, in one directory, with real programs."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from guides.compare import Identities, difference
from guides.pages import Block, Command, commands_of
from guides.places import Places
from guides.servers import PATIENCE_S, Servers, end_with_parent, finished, is_server

# Executes blocks of Python in one namespace, as if they were typed one after another.
_PYTHON = """
import contextlib, io, json, os, sys, traceback
answers, names = os.fdopen(os.dup(1), "w"), {"__name__": "__main__"}
os.dup2(2, 1)
for line in sys.stdin:
    block = json.loads(line)
    os.environ.clear()
    os.environ.update(block["environment"])
    os.chdir(block["folder"])
    failed = ""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            exec(compile(block["text"], block["page"], "exec"), names)
    except BaseException:
        failed = traceback.format_exc()
    print(json.dumps(failed), file=answers, flush=True)
"""
# Ends a command of the shell: keeps what it left behind for the next one.
_AFTER = 'status=$?; pwd > "$GUIDE_STATE/folder"; env -0 > "$GUIDE_STATE/environment"; exit $status'
_NOT_KEPT = ("_", "SHLVL", "OLDPWD", "PWD")


class Failure(Exception):
    """A page does not do what it says: names page, line and the difference."""

    def __init__(self, page: str, line: int, text: str) -> None:
        super().__init__(f"{page}:{line}: {text}")


class PageRun:
    """A page that is being run: the state of a reader who types what it says."""

    def __init__(self, directory: Path, environment: dict[str, str]) -> None:
        self._state = directory / "state"
        self._folder = str(directory / "reader")
        for name in ("state", "reader", "root"):
            (directory / name).mkdir()
        self._environment = environment | {"GUIDE_STATE": str(self._state), "HOME": self._folder}
        self._places = Places(directory / "root")
        self._identities = Identities()
        self.servers = Servers(self._state)
        self._python: subprocess.Popen[str] | None = None
        self._status = 0

    def block(self, block: Block) -> None:
        """Runs a block, and raises a `Failure` at the first line that is not as shown."""
        if block.kind == "stop":
            self.servers.stop(self._places.real(block.text))
        elif block.kind == "python":
            self._run_python(block)
        elif block.kind == "sql":
            (Path(self._folder) / "block.sql").write_text(block.text)
            self._check(block, Command(block.line, "pithead sql -f block.sql"))
        else:
            commands = list(commands_of(block))
            for command, following in itertools.zip_longest(commands, commands[1:]):
                self._check(block, command, asks_how=following is not None and following.text == "echo $?")

    def close(self) -> None:
        """Ends all processes."""
        self.servers.stop()
        if self._python:
            self._python.kill()
            self._python.communicate()

    def _check(self, block: Block, command: Command, asks_how: bool = False) -> None:
        """A command that shows an error has to fail, all others have to succeed, unless the page asks how it ended."""
        status, said = self._run(command.text)
        said = self._places.documented(said)
        shown = command.shown
        if shown is not None and (found := difference(shown, said, self._identities)):
            line = command.line + command.text.count("\n") + 1 + found.offset
            raise Failure(block.page, line, f"`{command.text}` says something else:\n{found.text}")
        is_to_fail = any(line.startswith("error: ") for line in shown or ())
        if not asks_how and is_to_fail != (status != 0):
            raise Failure(block.page, command.line, f"`{command.text}` ended with {status}:\n{said}")

    def _run(self, text: str) -> tuple[int, str]:
        text = self._places.real(self._identities.real(text))
        if is_server(text):
            server = self.servers.start(text, self._environment, self._folder)
            return server.status, server.said
        # $? is that of the command before.
        script = f"set -a; (exit {self._status}); {{ {text}\n}}; {_AFTER}"
        self._status, said = finished(["bash", "-c", script], self._environment, self._folder)
        self._keep()
        return self._status, said

    def _keep(self) -> None:
        """What a command left behind: its variables and its folder. One that ended the shell left nothing."""
        if not (self._state / "environment").exists():
            return
        self._folder = (self._state / "folder").read_text().removesuffix("\n")
        pairs = (each.partition("=") for each in (self._state / "environment").read_text().split("\0") if each)
        self._environment = {name: value for name, _, value in pairs if name not in _NOT_KEPT}

    def _run_python(self, block: Block) -> None:
        python = self._python = self._python or subprocess.Popen(
            [sys.executable, "-c", _PYTHON],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=self._environment,
            preexec_fn=end_with_parent,
        )
        assert python.stdin and python.stdout
        # Lines of a traceback are those of the page.
        text = "\n" * (block.line - 1) + self._places.real(self._identities.real(block.text))
        request = {"page": block.page, "text": text, "environment": self._environment, "folder": self._folder}
        python.stdin.write(json.dumps(request) + "\n")
        python.stdin.flush()
        answers, _, _ = select.select([python.stdout], [], [], PATIENCE_S)
        answer = python.stdout.readline() if answers else json.dumps(f"it had not ended after {PATIENCE_S} s")
        failed = json.loads(answer) if answer else "Python ended"
        if failed:
            lines = re.findall(rf'File "{re.escape(block.page)}", line (\d+)', failed)
            raise Failure(block.page, int(lines[-1]) if lines else block.line, self._places.documented(failed))


@contextmanager
def page_run(directory: Path, program: Path, root: Path) -> Iterator[PageRun]:
    """A reader in an empty directory, who has the program, the package, and nothing set."""
    tools = directory / "tools"
    tools.mkdir()
    (tools / "pithead").symlink_to(program)
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PITHEAD_", "PYTEST_"))}
    environment |= {
        "PATH": os.pathsep.join([str(tools), str(Path(sys.executable).parent), os.environ["PATH"]]),
        "PYTHONPATH": os.pathsep.join([str(root / "python"), str(root / "python/tests")]),
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    run = PageRun(directory, environment)
    try:
        yield run
    finally:
        run.close()
