"""The wheel: what is in it, its tag, and its installation with pip."""

import base64
import csv
import functools
import hashlib
import importlib.util
import io
import os
import subprocess
import sys
import unittest
import venv
import zipfile
from pathlib import Path

from installation import HEADER, PYTHON_DIR, Installation, library, scratch, shim, site

sys.path.insert(0, str(PYTHON_DIR))

import oldglibc  # noqa: E402
from ashlar import jit  # noqa: E402
from ashlar.elf import ELF, NotELF  # noqa: E402


def program() -> Path:
    """A stand-in for the Go command, compiled."""
    source, target = scratch() / "program.c", scratch() / "program"
    if not target.exists():
        source.write_text('#include <stdio.h>\nint main(int n, char **v) { printf("go: %s\\n", n > 1 ? v[1] : ""); }\n')
        subprocess.run(["gcc", str(source), "-o", str(target)], check=True)
    return target


@functools.lru_cache(maxsize=None)
def hooks() -> Path:
    """The hooks, compiled."""
    target = scratch() / "ashlar_hooks.so"
    jit.compile_hooks(target)
    return target


def build(*arguments: str, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run the builder with the stub library, and no torch unless PYTHONPATH has one."""
    environ = {**Installation().environment(), "PYTHONPATH": "", **variables}
    command = [sys.executable, str(PYTHON_DIR / "build_wheel.py"), "--library", str(library())]
    return subprocess.run(
        [*command, "--command", str(program()), "--hooks", str(hooks()), *arguments], env=environ, capture_output=True, text=True, timeout=120
    )


def wheel_of(result: "subprocess.CompletedProcess[str]") -> Path:
    """The wheel that a successful build wrote."""
    if result.returncode != 0:
        raise AssertionError(result.stdout + result.stderr)
    return Path(result.stdout.splitlines()[-1])


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.out = scratch() / "wheels"
        named = scratch() / "pt211-cu13-abi1.so"
        named.write_bytes(shim().read_bytes())
        cls.wheel = wheel_of(build("--out", str(cls.out), "--shim", str(named)))
        with zipfile.ZipFile(cls.wheel) as archive:
            cls.files = {name: archive.read(name) for name in archive.namelist()}
            cls.modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
        cls.info = next(name for name in cls.files if name.endswith("/RECORD")).partition("/")[0]

    def test_it_has_what_is_needed_and_nothing_else(self):
        sources = {
            path.relative_to(PYTHON_DIR).as_posix()
            for path in (PYTHON_DIR / "ashlar").rglob("*")
            if path.suffix in (".py", ".cpp", ".h") and "include" not in path.parts
        }
        built = {
            "include/ashlar.h", "lib/libashlar.so", "lib/ashlar_hooks.so", "bin/ashlar", "shims/pt211-cu13-abi1.so",
        }  # fmt: skip
        info = {f"{self.info}/{name}" for name in ("METADATA", "WHEEL", "RECORD", "LICENSE", "entry_points.txt")}
        self.assertEqual(set(self.files), sources | {f"ashlar/{name}" for name in built} | info)
        self.assertEqual(self.files["ashlar/include/ashlar.h"], HEADER.read_bytes())
        self.assertIn("ashlar/startup/sitecustomize.py", self.files)

    def test_the_record_has_the_hash_and_the_size_of_every_file(self):
        rows = list(csv.reader(io.StringIO(self.files[f"{self.info}/RECORD"].decode())))
        self.assertEqual({row[0] for row in rows}, set(self.files))
        for name, digest, size in rows:
            if name.endswith("/RECORD"):
                self.assertEqual((digest, size), ("", ""))
                continue
            data = self.files[name]
            expected = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
            self.assertEqual((digest, int(size)), (f"sha256={expected}", len(data)), name)

    def test_the_tag_is_the_highest_glibc_that_a_binary_needs_or_that_of_pytorch(self):
        highest = max((2, 28), *(ELF(path).highest("GLIBC_") for path in (library(), program(), shim())))
        tag = f"py3-none-manylinux_{highest[0]}_{highest[1]}_x86_64"
        self.assertIn(f"Tag: {tag}\n", self.files[f"{self.info}/WHEEL"].decode())
        self.assertTrue(self.wheel.name.endswith(f"-{tag}.whl"), self.wheel)

    def test_only_binaries_are_executable(self):
        executable = {name for name, mode in self.modes.items() if mode & 0o111}
        self.assertEqual(
            executable,
            {f"ashlar/{name}" for name in (
                "lib/libashlar.so", "lib/ashlar_hooks.so", "bin/ashlar", "shims/pt211-cu13-abi1.so",
            )},
        )  # fmt: skip

    def test_the_same_inputs_give_the_same_bytes(self):
        again = wheel_of(build("--out", str(scratch() / "again"), "--shim", str(scratch() / "pt211-cu13-abi1.so")))
        self.assertEqual(again.read_bytes(), self.wheel.read_bytes())

    def test_pip_installs_it_and_the_command_runs(self):
        place = scratch() / "venv"
        has_pip = importlib.util.find_spec("pip") is not None
        venv.create(place, with_pip=not has_pip)
        environ = {key: value for key, value in Installation().environment().items() if key != "PYTHONPATH"}
        python = str(place / "bin" / "python3")
        pip = [sys.executable, "-m", "pip", "--python", python] if has_pip else [python, "-m", "pip"]
        options = ["-q", "--no-index", "--no-deps", "--no-compile", "--disable-pip-version-check"]
        subprocess.run([*pip, "install", *options, str(self.wheel)], env=environ, check=True, capture_output=True)
        ashlar = str(place / "bin" / "ashlar")
        out = subprocess.run([ashlar, "replay"], env=environ, capture_output=True, text=True, check=True).stdout
        self.assertEqual(out, "go: replay\n")
        code = "import torch, ashlar; torch.cuda.init(); print(ashlar.tier(), ashlar.__file__)"
        environ["PYTHONPATH"] = str(site())
        result = subprocess.run([ashlar, "run", python, "-c", code], env=environ, capture_output=True, text=True)
        self.assertEqual(result.stdout.split()[0], "shim", result.stderr)
        self.assertTrue(result.stdout.split()[1].startswith(str(place)), result.stdout)


class Builder(unittest.TestCase):
    def names(self, wheel: Path) -> list[str]:
        with zipfile.ZipFile(wheel) as archive:
            return [Path(name).name for name in archive.namelist() if "/shims/" in name]

    def test_a_shim_for_the_installed_torch_is_compiled(self):
        # The real sources need the real PyTorch: a copy of the builder with the stub's sources stands for them.
        app = Installation()
        target = app.root / "python"
        target.mkdir()
        for name in ("build_wheel.py", "oldglibc.py"):
            (target / name).write_bytes((PYTHON_DIR / name).read_bytes())
        (app.package.parent / "ashlar").rename(target / "ashlar")
        for path in ("cmd/libashlar/ashlar.h", "docs/pytorch.md", "LICENSE"):
            (app.root / path).parent.mkdir(parents=True, exist_ok=True)
            (app.root / path).write_bytes((PYTHON_DIR.parent / path).read_bytes())
        arguments = ["--library", str(library()), "--command", str(program()), "--out", str(app.root / "out")]
        result = subprocess.run(
            [sys.executable, str(target / "build_wheel.py"), *arguments],
            env=app.environment(PYTHONPATH=str(site())), capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(self.names(wheel_of(result)), ["pt211-cu13-abi1.so"])
        result = subprocess.run(
            [sys.executable, str(target / "build_wheel.py"), *arguments, "--no-shim"],
            env=app.environment(PYTHONPATH=str(site())), capture_output=True, text=True,
        )  # fmt: skip
        self.assertEqual(self.names(wheel_of(result)), [])

    def test_the_name_of_a_shim_is_completed_from_the_file(self):
        runtime = scratch() / "libcudart.so.12"
        subprocess.run(
            ["gcc", "-shared", "-x", "c", "/dev/null", "-Wl,-soname,libcudart.so.12", "-o", str(runtime)], check=True
        )
        short = scratch() / "pt29.so"
        command = ["g++", "-shared", "-fPIC", "-Wl,--no-as-needed", "-o", str(short)]
        subprocess.run([*command, str(PYTHON_DIR / "tests" / "stub" / "c10.cpp"), str(runtime)], check=True)
        wheel = wheel_of(build("--out", str(scratch() / "short"), "--shim", str(short)))
        self.assertEqual(self.names(wheel), ["pt29-cu12-abi1.so"])

    def test_a_shim_that_cannot_be_identified_is_refused(self):
        for name, part in (
            ("shim.so", "must be named for its PyTorch"), ("pt211.so", "does not show its CUDA version"),
        ):  # fmt: skip
            path = scratch() / name
            path.write_bytes(library().read_bytes())
            result = build("--out", str(scratch() / "none"), "--shim", str(path))
            self.assertEqual(result.returncode, 1)
            self.assertIn(part, result.stderr)
        self.assertFalse((scratch() / "none").exists())


class OldGlibc(unittest.TestCase):
    def test_threads_and_dlopen_need_their_first_versions_and_work(self):
        directory = scratch() / "oldglibc"
        directory.mkdir()
        flags = oldglibc.linker_flags(directory).split()
        source, target = directory / "threads.c", directory / "threads"
        source.write_text(
            "#include <dlfcn.h>\n#include <pthread.h>\n#include <stdio.h>\n"
            "void *run(void *p) { return dlsym(dlopen(0, RTLD_NOW), p); }\n"
            "int main() { pthread_t t; void *r = 0; pthread_create(&t, 0, run, \"puts\"); pthread_join(t, &r);\n"
            "  return r == (void *)puts ? 0 : 1; }\n"
        )
        subprocess.run(["gcc", str(source), *flags, "-o", str(target)], check=True)
        symbols = subprocess.run(["objdump", "-T", str(target)], capture_output=True, text=True).stdout
        versions = {
            line.split("(")[1].split(")")[0]
            for line in symbols.splitlines()
            if line.endswith(("pthread_create", "dlopen", "dlsym")) and "(" in line
        }
        self.assertEqual(versions, {"GLIBC_2.2.5"})
        self.assertEqual(subprocess.run([str(target)]).returncode, 0)

    def test_a_shim_needs_no_names_of_new_headers(self):
        directory = scratch() / "headers"
        directory.mkdir()
        source, target = directory / "pointers.cpp", directory / "pointers.so"
        source.write_text(
            "#include <memory>\nvoid f(std::shared_ptr<int> p) { auto q = p; }\n"
            '__asm(".globl _ZSt21ios_base_library_initv");\n'  # as in <iostream> of g++ 13
        )
        command = ["g++", "-shared", "-fPIC", "-Wall", "-Werror", "-O0", str(source), "-o", str(target)]
        subprocess.run([*command, str(oldglibc.cxx_source(directory))], check=True)
        self.assertNotIn("GLIBC_2.32", ELF(target).versions())
        symbols = subprocess.run(["nm", "-D", str(target)], capture_output=True, text=True, check=True).stdout
        self.assertNotIn("ios_base_library_init", symbols)
        self.assertNotIn("single_threaded", symbols)


class Elf(unittest.TestCase):
    def test_it_agrees_with_readelf(self):
        for path in (library(), shim(), program(), Path(sys.executable).resolve()):
            elf = ELF(path)
            environ = {**os.environ, "LC_ALL": "C"}
            dynamic = subprocess.run(["readelf", "-dW", str(path)], env=environ, capture_output=True, text=True).stdout
            needed = [line.split("[")[1].rstrip("]") for line in dynamic.splitlines() if "(NEEDED)" in line]
            self.assertEqual(elf.needed(), needed)
            versions = subprocess.run(["readelf", "-VW", str(path)], env=environ, capture_output=True, text=True).stdout
            names = {line.split("Name: ")[1].split()[0] for line in versions.partition("Version needs")[2].splitlines()
                     if "Name: " in line and "Flags:" in line}  # fmt: skip
            self.assertEqual(elf.versions(), names)

    def test_versions_are_compared_as_numbers(self):
        self.assertGreaterEqual(ELF(library()).highest("GLIBC_"), (2, 2))
        self.assertEqual(ELF(library()).highest("NOTHING_"), ())
        self.assertTrue(ELF(library()).is_x86_64())

    def test_the_abi_is_read_from_the_names(self):
        self.assertIs(ELF(site() / "torch" / "lib" / "libc10.so").cxx11_abi(), True)
        self.assertIsNone(ELF(library()).cxx11_abi())
        old = scratch() / "old-abi.so"
        command = ["g++", "-shared", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=0", "-o", str(old)]
        subprocess.run([*command, str(PYTHON_DIR / "tests" / "stub" / "c10.cpp")], check=True)
        self.assertIs(ELF(old).cxx11_abi(), False)

    def test_other_files_are_errors(self):
        path = scratch() / "other"
        for data in (b"", b"text", b"\x7fELF\x02\x01", library().read_bytes()[:3000]):
            path.write_bytes(data)
            with self.assertRaises(NotELF):
                ELF(path)


if __name__ == "__main__":
    unittest.main()
