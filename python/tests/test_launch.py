"""`ashlar run`, `python -m ashlar`, the hook on `import torch`, and sitecustomize."""

import os
import subprocess
import sys
import unittest

from installation import Installation

# Uses CUDA, and says whether that is on Ashlar.
PROBE = "import torch, ashlar; torch.cuda.init(); print(ashlar.is_enabled())"

SCRIPT = """
import sys
from helper import answer
import torch, ashlar
assert not ashlar.is_enabled()
torch.empty(1, device="cuda")
print(__name__, sys.argv, answer, ashlar.is_enabled(), sys.modules["__main__"].__dict__ is globals())
"""


def application() -> Installation:
    """An installation with a program in a directory of its own."""
    app = Installation()
    directory = app.root / "program"
    directory.mkdir()
    (directory / "train.py").write_text(SCRIPT)
    (directory / "helper.py").write_text("answer = 42\n")
    return app


def run(app: Installation, *command: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """`ashlar run` with a command."""
    return app.run("-m", "ashlar", "run", *command, **variables)


class Run(unittest.TestCase):
    def test_a_program_is_on_ashlar_without_a_change(self):
        app = application()
        result = run(app, sys.executable, "program/train.py", "--lr", "1")
        expected = "__main__ ['program/train.py', '--lr', '1'] 42 True True"
        self.assertEqual(result.stdout.strip(), expected, result.stderr)
        self.assertEqual(app.calls()[-1], "closing")

    def test_children_are_too(self):
        app = application()
        (app.root / "program" / "spawn.py").write_text(
            "import multiprocessing as mp, subprocess, sys\n"
            "def work(rank):\n"
            "    import torch, ashlar; torch.cuda.init(); print(rank, ashlar.is_enabled(), flush=True)\n"
            "if __name__ == '__main__':\n"
            "    p = mp.get_context('spawn').Process(target=work, args=(7,)); p.start(); p.join()\n"
            f"    subprocess.run([sys.executable, '-c', {PROBE!r}])\n"
        )
        for command in (("run", sys.executable, "program/spawn.py"), ("program/spawn.py",)):
            with self.subTest(command):
                result = app.run("-m", "ashlar", *command)
                self.assertEqual(result.stdout.splitlines(), ["7 True", "True"], result.stderr)

    def test_a_process_that_does_not_use_cuda_is_left_alone(self):
        app = application()
        result = run(app, sys.executable, "-c", "import sys; print('ctypes' in sys.modules)")
        self.assertEqual(result.stdout.strip(), "False", result.stderr)
        run(app, sys.executable, "-c", "import torch")
        result = run(app, sys.executable, "-c", "import torch", STUB_TORCH_CUDA="")
        self.assertEqual(result.returncode, 0, result.stderr)
        result = run(app, sys.executable, "-c", "import torch; torch.cuda.init()", STUB_DEVICES="0")
        self.assertIn("RuntimeError: No CUDA GPUs are available", result.stderr)
        self.assertEqual(app.calls(), [])

    def test_a_parent_without_cuda_forks_children_with_it(self):
        app = application()
        result = run(
            app, sys.executable, "-c", "import torch, ashlar, os, sys\nfor _ in range(2):\n    if os.fork() == 0:\n"
            "        torch.cuda.init(); print(ashlar.is_enabled(), len(ashlar.stats()) > 0); sys.exit()\n"
            "    os.wait()\n"
            "print(ashlar.is_enabled())",
        )  # fmt: skip
        self.assertEqual(result.stdout.splitlines(), ["True True"] * 2 + ["False"], result.stderr)
        self.assertEqual(app.calls(), ["init 2 ", "install name:ashlar,graphs:native,ipc:native", "closing"] * 2)

    def test_it_is_enabled_once_and_closed_after_the_programs_handlers(self):
        app = application()
        result = run(
            app, sys.executable, "-c", "import torch, ashlar, atexit\n"
            "atexit.register(lambda: ashlar.set_limit(0) or ashlar.unpin(8))\n"
            "init = torch._C._cuda_init\ntorch.cuda.init(); torch.cuda.init()\nprint(init is torch._C._cuda_init)",
        )  # fmt: skip
        self.assertEqual(result.stdout.strip(), "False", result.stderr)
        self.assertEqual(app.calls(), ["init 2 ", "install name:ashlar,graphs:native,ipc:native", "unpin 8", "closing"])

    def test_a_recording_that_begins_before_cuda_is_of_ashlar(self):
        app = application()
        result = run(
            app, sys.executable, "-c", "import torch, ashlar\nprint(ashlar.is_enabled())\n"
            "try: torch._C._cuda_record_memory_history('all', 'python')\n"
            "except RuntimeError as err: print(err, ashlar.is_enabled())\ntorch.cuda.init()",
        )  # fmt: skip
        original = "the original _cuda_record_memory_history was called"
        self.assertEqual(result.stdout.splitlines(), ["False", f"{original} True"], result.stderr)
        self.assertEqual(app.calls(), ["init 2 ", "install name:ashlar,graphs:native,ipc:native", "closing"])

    def test_options_set_the_settings_and_leniency(self):
        app = application()
        code = "import torch, ashlar; torch.cuda.init(); print(ashlar.is_enabled())"
        result = run(app, "--conf", "limit:1GiB", "--", sys.executable, "-c", code)
        self.assertEqual((result.stdout.strip(), app.calls()[0]), ("True", "init 2 limit:1GiB"), result.stderr)
        result = run(app, "--conf=colour:red", sys.executable, "-c", code)
        self.assertNotEqual(result.returncode, 0)
        self.assertIn("unknown setting colour", result.stderr)
        result = run(app, "--try", "--conf=colour:red", sys.executable, "-c", code)
        self.assertEqual(result.stdout.strip(), "False", result.stderr)
        self.assertIn("PyTorch keeps its own allocator", result.stderr)

    def test_exit_statuses(self):
        app = application()
        self.assertEqual(run(app, sys.executable, "-c", "raise SystemExit(41)").returncode, 41)
        self.assertEqual(run(app, "no-such-command").returncode, 127)
        self.assertEqual(run(app, str(app.root)).returncode, 126)
        self.assertEqual(run(app).returncode, 2)
        self.assertEqual(run(app, "--colour", "x").returncode, 2)
        self.assertIn("usage: ashlar run", run(app, "--help").stdout)

    def test_another_sitecustomize_still_runs(self):
        app = application()
        hidden = app.root / "hidden"
        hidden.mkdir()
        (hidden / "sitecustomize.py").write_text("import sys; sys.hidden = __file__\n")
        path = os.pathsep.join([str(hidden), app.environment()["PYTHONPATH"]])
        code = (
            "import sys, sitecustomize; print(sys.hidden == sitecustomize.__file__, sys.hidden, "
            "any('startup' in p for p in sys.path)); " + PROBE
        )
        result = run(app, sys.executable, "-c", code, PYTHONPATH=path)
        self.assertEqual(
            result.stdout.splitlines(), [f"True {hidden / 'sitecustomize.py'} False", "True"], result.stderr
        )

    def test_a_python_that_has_no_ashlar_finds_the_one_that_runs_it(self):
        app = application()
        site = app.environment()["PYTHONPATH"].split(os.pathsep)[1]
        place = str(app.package.parent)
        code = f"import sys; sys.path.insert(0, {place!r}); from ashlar import command; command.main()"
        result = subprocess.run(
            [sys.executable, "-c", code, "run", sys.executable, "-c", PROBE],
            env=app.environment(PYTHONPATH=site), cwd=app.root, capture_output=True, text=True, timeout=60,
        )  # fmt: skip
        self.assertEqual(result.stdout.strip(), "True", result.stderr)

    def test_nothing_happens_without_the_variable(self):
        app = application()
        path = os.pathsep.join([str(app.package / "startup"), app.environment()["PYTHONPATH"]])
        self.assertEqual(
            app.python("import torch, sys; torch.cuda.init(); print('ashlar' in sys.modules)", PYTHONPATH=path), "False"
        )


class Module(unittest.TestCase):
    def test_scripts_and_modules(self):
        app = application()
        result = app.run("-m", "ashlar", "program/train.py", "a", "-b")
        self.assertEqual(result.stdout.strip(), "__main__ ['program/train.py', 'a', '-b'] 42 True True", result.stderr)
        (app.root / "program" / "__main__.py").write_text(SCRIPT.replace("helper", ".helper", 1))
        result = app.run("-m", "ashlar", "-m", "program", "a")
        self.assertIn("'a'] 42 True True", result.stdout, result.stderr)
        result = app.run("-m", "ashlar", "-m", "program.helper")
        self.assertEqual(result.returncode, 0, result.stderr)

    def test_the_status_of_the_program_is_that_of_the_process(self):
        app = application()
        script = app.root / "leave.py"
        script.write_text("raise SystemExit(7)\n")
        self.assertEqual(app.run("-m", "ashlar", "leave.py").returncode, 7)
        script.write_text("1 / 0\n")
        result = app.run("-m", "ashlar", "leave.py")
        self.assertEqual(result.returncode, 1)
        self.assertIn("leave.py\", line 1", result.stderr)
        self.assertIn("ZeroDivisionError", result.stderr)

    def test_what_does_not_exist_is_wrong_usage(self):
        app = application()
        for arguments in (("absent.py",), ("-m",), ("-m", "no_such_module"), ("-m", "no_such.module")):
            with self.subTest(arguments):
                result = app.run("-m", "ashlar", *arguments)
                self.assertEqual(result.returncode, 2, result.stderr)
                self.assertTrue(result.stderr.startswith("ashlar: "), result.stderr)

    def test_classes_of_the_program_can_be_pickled_until_the_end(self):
        app = application()
        (app.root / "late.py").write_text(
            "import atexit, pickle\nclass Thing: pass\natexit.register(lambda: print(len(pickle.dumps(Thing())) > 0))\n"
        )
        self.assertEqual(app.run("-m", "ashlar", "late.py").stdout.strip(), "True")


class Hook(unittest.TestCase):
    def test_it_calls_once_after_the_module_and_leaves_no_trace(self):
        app = Installation()
        (app.root / "victim.py").write_text("state = 'ready'\n")
        out = app.python(
            "import sys\nfrom ashlar.importhook import after_import\n"
            "before = list(sys.meta_path)\n"
            "after_import('victim', lambda: print('called', sys.modules['victim'].state))\n"
            "import json, importlib.util\nimportlib.util.find_spec('victim')\nprint('so far')\n"
            "import victim, importlib; importlib.reload(victim)\n"
            "print(sys.meta_path == before, type(victim.__loader__).__name__,\n"
            "      victim.__spec__.origin == victim.__file__)"
        )
        self.assertEqual(out.splitlines(), ["so far", "called ready", "True SourceFileLoader True"])

    def test_two_hooks_for_one_module_are_both_called(self):
        out = Installation().python(
            "from ashlar.importhook import after_import\n"
            "for name in ('first', 'second'):\n    after_import('colorsys', lambda name=name: print(name))\n"
            "import colorsys"
        )
        self.assertEqual(out.splitlines(), ["first", "second"])

    def test_a_module_that_is_imported_already_counts(self):
        out = Installation().python(
            "import json\nfrom ashlar.importhook import after_import\nafter_import('json', lambda: print('now'))"
        )
        self.assertEqual(out, "now")

    def test_a_module_that_cannot_be_imported_does_not(self):
        app = Installation()
        (app.root / "victim.py").write_text("raise ImportError('no')\n")
        out = app.python(
            "from ashlar.importhook import after_import\nafter_import('victim', lambda: print('called'))\n"
            "for name in ('victim', 'victim', 'absent'):\n"
            "    try: __import__(name)\n    except ImportError as err: print(err)"
        )
        self.assertEqual(out.splitlines(), ["no", "no", "No module named 'absent'"])

    def test_a_loader_that_cannot_be_changed_is_wrapped(self):
        out = Installation().python(
            "import sys\nfrom importlib.abc import Loader\nfrom importlib.machinery import ModuleSpec\n"
            "from ashlar.importhook import after_import\n"
            "class Fixed(Loader):\n"
            "    __slots__ = ()\n"
            "    def exec_module(self, module): module.state = 'made'\n"
            "class Slotted(Fixed):\n"
            "    __slots__ = ()\n"
            "    def __setattr__(self, name, value): raise AttributeError(name)\n"
            "class Finder:\n"
            "    def find_spec(self, name, path, target=None):\n"
            "        return ModuleSpec(name, Slotted()) if name == 'victim' else None\n"
            "sys.meta_path.append(Finder())\nafter_import('victim', lambda: print('called'))\n"
            "import victim; print(victim.state)"
        )
        self.assertEqual(out.splitlines(), ["called", "made"])

    def test_an_error_of_enable_is_one_of_each_use_of_cuda(self):
        result = run(
            Installation(), sys.executable, "-c", "import torch\nfor _ in range(2):\n    try: torch.cuda.init()\n"
            "    except RuntimeError as err: print(err)",
            STUB_BACKEND="pluggable",
        )  # fmt: skip
        self.assertEqual(result.stdout.count("ashlar: PyTorch uses the allocator 'pluggable'"), 2, result.stderr)


if __name__ == "__main__":
    unittest.main()
