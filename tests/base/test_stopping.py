"""Ctrl-C and SIGTERM: a program ends in time with one line, whatever it is doing, and removes its temporary files."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import pytest

from pipelines.base import database, stopping
from pipelines.readers.inputs.rejects import reason_of
from tests.effort import first_of

ROOT = Path(__file__).parents[2]
HEAD = "import hashlib, signal, sys, tempfile, time\nfrom pipelines.base import stopping\n"
# The program's code between printing "ready" and its end.
BUSY = {
    "unwinds": "with stopping.unwinding():\n    try:\n        time.sleep(60)\n    except KeyboardInterrupt:\n"
    "        sys.exit(stopping.end())\n",
    "swallows": "with stopping.unwinding():\n    while True:\n        try:\n            time.sleep(60)\n"
    "        except KeyboardInterrupt:\n            pass\n",
    "in a library": "with stopping.unwinding():\n    hashlib.pbkdf2_hmac('sha256', b'', b'', 10**9)\n",
    "not begun": "time.sleep(60)\n",
}


def ended(program: str, number: int, after_s: float = 0.0, folder: Path | None = None) -> tuple[int, str]:
    """Return the exit status and stderr of a program that gets the signal `after_s` seconds after it prints "ready".

    The program must end long before its work does (60 s). If `folder` is set, it runs from there as a module (`-m`).
    """
    if folder:
        (folder / "program.py").write_text(program)
    process = subprocess.Popen(
        [sys.executable, *(("-m", "program") if folder else ("-c", program))],
        cwd=folder or ROOT,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout and process.stdout.readline() == "ready\n"
    time.sleep(after_s)
    process.send_signal(number)
    try:
        _, stderr = process.communicate(timeout=40)
    finally:
        process.kill()
    return process.returncode, stderr


ENDED = [(what, number) for number in (signal.SIGINT, signal.SIGTERM) for what in BUSY]
QUICK = [("swallows", signal.SIGINT), ("not begun", signal.SIGINT), ("unwinds", signal.SIGTERM)]


@pytest.mark.parametrize(
    ("what", "number"), first_of([*QUICK, *(case for case in ENDED if case not in QUICK)], len(QUICK))
)
def test_a_program_ends_in_time_with_one_line(what: str, number: int) -> None:
    code, stderr = ended(f"{HEAD}stopping.listen()\nprint('ready', flush=True)\n{BUSY[what]}", number)
    assert code == 128 + number
    assert stopping.AT_MOST_S + stopping._TIDY_S < 2
    assert stderr == f"{ {2: 'interrupted', 15: 'terminated'}[number] }: the same command run again finishes\n"


def test_a_signal_while_a_class_is_made_gives_its_status_too(tmp_path: Path) -> None:
    """A signal that arrives while a dataclass is created with exec() ends the program with the signal's status.

    A module (`python -m tracelake`) used to die by SIGINT in this case.
    """
    program = BUSY["unwinds"].replace("time.sleep(60)", "exec('time.sleep(60)')")
    ending = ended(f"{HEAD}stopping.listen()\nprint('ready', flush=True)\n{program}", signal.SIGTERM, 0.1, tmp_path)
    assert ending == (143, "terminated: the same command run again finishes\n")


def test_a_stopped_program_ends_before_python_clears_its_modules() -> None:
    """Threads of libraries crashed then: of 2,000 stopped commands, 2 ended with SIGSEGV."""
    crash = "class Last:\n    def __del__(self, os=os): os.kill(os.getpid(), 11)\nkept = Last()\n"
    program = f"import os\n{HEAD}stopping.listen()\n{crash}print('ready', flush=True)\n{BUSY['unwinds']}"
    assert ended(program, signal.SIGTERM) == (143, "terminated: the same command run again finishes\n")


@pytest.mark.slow  # the tests above already show that the program ends
def test_temporary_folders_go_even_if_the_program_does_not_unwind(tmp_path: Path) -> None:
    program = (
        f"kept = tempfile.TemporaryDirectory(dir={str(tmp_path)!r})\nprint('ready', flush=True)\n{BUSY['swallows']}"
    )
    assert ended(f"{HEAD}stopping.listen()\n{program}", signal.SIGINT)[0] == 130
    assert not list(tmp_path.iterdir())


def test_what_a_shell_ignores_for_it_stays_ignored() -> None:
    """A signal that is ignored at the start stays ignored. A shell ignores SIGINT for its background jobs."""
    program = (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nstopping.listen()\nprint('ready', flush=True)\ntime.sleep(0.3)"
    )
    assert ended(HEAD + program, signal.SIGINT) == (0, "")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_while_python_ends_comes_too_late(number: int) -> None:
    """A signal that arrives after the exit handlers have run changes nothing.

    Python then clears modules, and no signal handlers exist any more.
    """
    last = f"class Last:\n    def __del__(self, os=os): os.kill(os.getpid(), {int(number)})\n"
    program = f"import os\n{HEAD}stopping.listen()\n{last}kept = Last()\nprint('done', flush=True)\n"
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "done\n", "")


QUERY = "duckdb.sql('SELECT sum(hash(range)) FROM range(1000000000000)').fetchall()\n"


def test_a_query_ends_in_time_whether_or_not_duckdb_looks_for_signals() -> None:
    program = (
        f"{HEAD}import duckdb\nstopping.listen()\nprint('ready', flush=True)\nwith stopping.unwinding():\n    try:\n"
        f"        {QUERY}    except (Exception, KeyboardInterrupt) as error:\n"
        "        sys.exit(stopping.end() if stopping.is_stop(error) else repr(error))\n"
    )
    assert ended(program, signal.SIGINT, after_s=0.5) == (130, f"{stopping.sentence()}\n")


@pytest.mark.skipif(duckdb.__version__ >= "2", reason="DuckDB 2.0.1 does not always look for signals during a query")
@pytest.mark.slow  # tests only the installed DuckDB; the test before covers our own code
def test_duckdb_swallows_a_keyboard_interrupt() -> None:
    """DuckDB swallows KeyboardInterrupt, so is_stop exists.

    If this test fails, is_stop must learn DuckDB's new behaviour.
    """
    program = (
        f"import duckdb\nprint('ready', flush=True)\ntry:\n    {QUERY}"
        "except Exception as error:\n    sys.exit(0 if stopping.is_stop(error) else repr(error))\n"
    )
    assert ended(HEAD + program, signal.SIGINT, after_s=0.5) == (0, "")


@pytest.mark.parametrize("error", [RuntimeError("Query interrupted"), duckdb.InterruptException("INTERRUPT Error")])
def test_an_interrupt_is_no_reason_to_reject_a_file(error: Exception) -> None:
    with pytest.raises(KeyboardInterrupt):
        reason_of(error)
    stopping.raise_if_stopped(RuntimeError("Query interrupted by nobody"))
    assert "please report it" in reason_of(RuntimeError("a bug"))


def test_a_full_disk_is_told_from_too_little_memory(tmp_path: Path) -> None:
    with database.connect(config={"temp_directory": str(tmp_path / "spilled"), "threads": 1}) as con:
        con.execute("SET memory_limit = '40MB'")
        rows = "CREATE TABLE t AS SELECT random()::VARCHAR AS b FROM range(1000000) ORDER BY b"
        con.execute("SET max_temp_directory_size = '5MB'")
        with pytest.raises(duckdb.OutOfMemoryException) as full:
            con.execute(rows)
    with pytest.raises(OSError, match=r"No space|no space left") as raised:
        database.raise_if_disk_is_full(full.value, tmp_path)
    assert raised.value.errno == 28 and raised.value.filename == str(tmp_path)
    database.raise_if_disk_is_full(duckdb.OutOfMemoryException("could not allocate block"), tmp_path)


MODULES = ("pipelines.base.stopping", "pipelines.faces.cli.app", "threading", "typer", "rich")


@pytest.mark.parametrize(
    ("module", "number"),
    first_of([*((module, signal.SIGTERM) for module in MODULES), (MODULES[0], signal.SIGINT)], 2),
)
def test_a_signal_during_an_import_ends_the_command_at_once(module: str, number: int) -> None:
    program = (
        "import os, runpy, sys\n"
        "class Finder:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == {module!r}:\n"
        f"            os.kill(os.getpid(), {int(number)})\n"
        f"sys.modules.pop({module!r}, None)\n"
        "sys.meta_path.insert(0, Finder())\n"
        "sys.argv = ['tracelake', 'ingest', '--help']\n"
        "runpy.run_module('tracelake', run_name='__main__')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (128 + number, "")
    assert "Traceback" not in done.stderr
