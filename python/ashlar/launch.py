"""Runs programs with Ashlar enabled: `ashlar run CMD...` and `python -m ashlar train.py`.

A program and the processes that it starts get a directory with a sitecustomize.py in PYTHONPATH, and ASHLAR_ENABLE. In
each Python process of them, Ashlar is enabled when PyTorch is about to initialize CUDA. A process that does not use
CUDA is left alone: the workers of a DataLoader, compilers, and a parent that forks processes which use CUDA, and which
could not if the parent had loaded the library.
"""

from __future__ import annotations

import importlib.util
import os
import runpy
import sys
from collections.abc import Callable, Mapping, MutableMapping
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

from . import files
from .importhook import after_import

ENABLE = "ASHLAR_ENABLE"  # 1: enable, or fail; try: enable, or warn

# Functions of torch._C that Ashlar must be enabled before. The last three tell the current allocator to record or to
# report, and PyTorch calls them before it initializes CUDA.
_ENABLING = (
    "_cuda_init",
    "_cuda_record_memory_history",
    "_cuda_record_memory_history_legacy",
    "_cuda_attach_out_of_memory_observer",
)

RUN_HELP = """usage: ashlar run [--conf CONF] [--try] COMMAND [ARGUMENT...]

Runs a command. Ashlar is enabled in it and in the Python processes that it starts, when PyTorch first uses CUDA there.

  --conf CONF   settings, as in ASHLAR_ALLOC_CONF
  --try         if Ashlar cannot be enabled, warn and use PyTorch's own allocator, instead of an error

Python's options -I, -S and -E keep it from working, because Python then ignores PYTHONPATH or sitecustomize.
"""


class UsageError(Exception):
    """A command line that is not understood."""


def requested(environ: Mapping[str, str] = os.environ) -> bool:
    """Whether this process was started by `ashlar run`, or is a child of one."""
    return environ.get(ENABLE) in ("1", "try")


def enable_with_cuda() -> None:
    """Enable Ashlar when PyTorch initializes CUDA, as ASHLAR_ENABLE asks for."""
    after_import("torch", _prepare_torch)


def _prepare_torch() -> None:
    """Have PyTorch call _enable before it initializes CUDA, and before it calls its allocator without doing so."""
    import torch

    from .activation import close_at_exit

    close_at_exit()  # now, so that handlers of the program run before
    if not hasattr(torch._C, "_cuda_init"):
        return  # a PyTorch without CUDA
    if torch.cuda.is_initialized():
        _enable()
        return
    originals = {name: getattr(torch._C, name) for name in _ENABLING if hasattr(torch._C, name)}

    def enabling(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            _enable()
            for name, function in originals.items():
                setattr(torch._C, name, function)
            return original(*args, **kwargs)

        return call

    for name, original in originals.items():
        setattr(torch._C, name, enabling(original))  # PyTorch looks them up when it calls them


def _enable() -> None:
    import torch

    from .activation import enable

    if torch.cuda.device_count() > 0:  # else PyTorch's own error follows
        enable(strict=os.environ.get(ENABLE) != "try")


def set_environment(environ: MutableMapping[str, str], conf: str | None, strict: bool) -> None:
    """Make the Python processes that inherit an environment enable Ashlar with CUDA."""
    startup = str(files.STARTUP)
    others = [part for part in environ.get("PYTHONPATH", "").split(os.pathsep) if part and part != startup]
    environ["PYTHONPATH"] = os.pathsep.join([startup, *others])
    environ[ENABLE] = "1" if strict else "try"
    if conf is not None:
        environ["ASHLAR_ALLOC_CONF"] = conf


def run_command(arguments: list[str]) -> int:
    """`ashlar run`: replace this process by a command. Returns only if that fails."""
    conf, strict, command = _options(arguments)
    if not command:
        print(RUN_HELP, end="")
        return 0
    environ = dict(os.environ)
    set_environment(environ, conf, strict)
    sys.stdout.flush()
    try:
        os.execvpe(command[0], command, environ)
    except OSError as err:
        print(f"ashlar: run {command[0]}: {err.strerror}", file=sys.stderr)
        return 127 if isinstance(err, FileNotFoundError) else 126


def _options(arguments: list[str]) -> tuple[str | None, bool, list[str]]:
    """The options before a command, and the command; none for --help."""
    conf, strict = None, True
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option in ("-h", "--help"):
            return None, True, []
        if option == "--":
            break
        if option == "--try":
            strict = False
        elif option == "--conf" and rest:
            conf = rest.pop(0)
        elif option.startswith("--conf="):
            conf = option.partition("=")[2]
        else:
            raise UsageError(f"run: unknown option {option}, or its value is missing")
    if not rest:
        raise UsageError("run: the command is missing")
    return conf, strict, rest


def run_program(arguments: list[str]) -> None:
    """`python -m ashlar`: run a script, or with -m a module, as __main__ of this process."""
    set_environment(os.environ, None, os.environ.get(ENABLE) != "try")
    enable_with_cuda()
    if arguments[0] == "-m":
        if len(arguments) < 2:
            raise UsageError("-m: the module is missing")
        spec, code = _module_code(arguments[1])
        sys.argv = [str(spec.origin), *arguments[2:]]
        _run_main(code, __file__=spec.origin, __spec__=spec, __package__=spec.parent, __loader__=spec.loader)
        return
    sys.argv = arguments
    path = Path(arguments[0])
    if not path.exists():
        raise UsageError(f"there is no file {path}")
    if path.suffix in (".pyc", ".zip") or path.is_dir():
        runpy.run_path(str(path), run_name="__main__")
        return
    if not getattr(sys.flags, "safe_path", False):
        sys.path[0] = str(path.resolve().parent)
    loader = SourceFileLoader("__main__", str(path))
    _run_main(loader.source_to_code(path.read_bytes(), str(path)), __file__=str(path), __loader__=loader)


def _module_code(name: str) -> tuple[ModuleSpec, CodeType]:
    """The spec and the code of a module, or of the __main__ of a package."""
    try:
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.submodule_search_locations is not None:
            spec = importlib.util.find_spec(name + ".__main__")
    except ImportError as err:
        raise UsageError(f"-m {name}: {err}") from err
    code: Any = spec.loader.get_code(spec.name) if spec is not None and hasattr(spec.loader, "get_code") else None
    if spec is None or code is None:
        raise UsageError(f"-m {name}: there is no such module, or it cannot be run")
    return spec, code


def _run_main(code: CodeType, **attributes: object) -> None:
    """Run code in a new module __main__, which stays: programs look their classes up there until the end."""
    module = ModuleType("__main__")
    module.__dict__.update({"__builtins__": __builtins__, "__cached__": None, **attributes})
    sys.modules["__main__"] = module
    exec(code, module.__dict__)
