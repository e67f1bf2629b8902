"""The command line of the wheel: `ashlar` and `python -m ashlar`.

Python does `run`, `bench torch` and the part of `doctor` that concerns PyTorch. The Go command, which is in the wheel,
does everything else.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from . import files, launch
from .errors import AshlarError

HELP = """With PyTorch:

  ashlar run COMMAND...       run a command with PyTorch on Ashlar's memory (ashlar run --help)
  python -m ashlar SCRIPT...  the same for a script, or with -m for a module
  ashlar doctor               report what PyTorch and the GPU need, what was found, and what to do
  ashlar bench torch          measure PyTorch's allocations with its own allocator and with Ashlar

"""

EXIT_USAGE, EXIT_FAILED = 2, 3  # those of the Go command


def main(arguments: list[str] | None = None) -> int:
    """The command ashlar. Returns its exit status, unless the process becomes another program."""
    arguments = sys.argv[1:] if arguments is None else arguments
    try:
        return _dispatch(arguments)
    except launch.UsageError as err:
        print(f"ashlar: {err}", file=sys.stderr)
        return EXIT_USAGE
    except AshlarError as err:
        print(err, file=sys.stderr)
        return EXIT_FAILED


def module_main(arguments: list[str]) -> int:
    """`python -m ashlar`: a program, or else a command."""
    if arguments and _is_program(arguments[0]):
        try:
            launch.run_program(arguments)
        except launch.UsageError as err:
            print(f"ashlar: {err}", file=sys.stderr)
            return EXIT_USAGE
        return 0
    return main(arguments)


def _is_program(argument: str) -> bool:
    """Whether an argument names a script or -m, and no subcommand."""
    if argument in ("run", "doctor", "bench"):
        return False
    return argument == "-m" or argument.endswith((".py", ".pyc")) or Path(argument).exists()


def _dispatch(arguments: list[str]) -> int:
    name, rest = (arguments[0], arguments[1:]) if arguments else ("help", [])
    if name == "run":
        return launch.run_command(rest)
    if name == "doctor" and not rest:
        from .diagnosis import doctor

        status = doctor()
        return max(status, _driver_report())
    if name == "bench" and rest[:1] == ["torch"]:
        from .bench import main as bench

        return bench(rest[1:])
    if name in ("help", "--help", "-h") and not rest:
        print(HELP, end="", flush=True)
        arguments = ["--help"]
    return _become_go(arguments)


def _go_command() -> Path:
    if not files.COMMAND.is_file():
        raise AshlarError(
            f"there is no command {files.COMMAND}: install the wheel, or in a checkout run "
            "`go build -o python/ashlar/bin/ashlar ./cmd/ashlar`"
        )
    return files.COMMAND


def _become_go(arguments: list[str]) -> int:
    """Replace this process by the Go command."""
    path = str(_go_command())
    sys.stdout.flush()
    os.execv(path, [path, *arguments])


def _driver_report() -> int:
    """What the Go command finds about the GPU and its driver. Its exit status."""
    import subprocess

    if not files.COMMAND.is_file():
        return 0
    sys.stdout.flush()
    return subprocess.run([str(files.COMMAND), "doctor", "cuda"]).returncode
