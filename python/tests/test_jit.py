"""The shim that is compiled for the installed PyTorch, and its cache."""

import os
import stat
import subprocess
import sys
import unittest

from installation import Installation, site

BUILD = "from ashlar import jit, torchbuild; print(jit.cached_shim(torchbuild.of_files()))"


def compiler_that_counts(app: Installation, pause: float = 0) -> str:
    """A g++ that writes a line to a file for each of its compilations."""
    count = f"echo run >>{app.root}/runs; sleep {pause}"
    return compiler(app, f"case $1 in -print*) ;; *) {count} ;; esac\nexec g++ \"$@\"")


def compiler(app: Installation, script: str) -> str:
    """A compiler that is a shell script."""
    path = app.root / "script-g++"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return str(path)


def runs(app: Installation) -> int:
    """How often that compiler ran."""
    path = app.root / "runs"
    return len(path.read_text().splitlines()) if path.exists() else 0


class Jit(unittest.TestCase):
    def test_the_second_process_takes_the_cached_file(self):
        app = Installation(prebuilt=False)
        compiler = compiler_that_counts(app)
        first, second = (app.python(BUILD, CXX=compiler) for _ in range(2))
        self.assertEqual(first, second)
        self.assertTrue(first.startswith(str(app.cache / "2.11.0+cu130-")), first)
        self.assertEqual(runs(app), 1)

    def test_processes_that_start_together_compile_once(self):
        app = Installation(prebuilt=False)
        environ = app.environment(CXX=compiler_that_counts(app, pause=0.3))
        processes = [
            subprocess.Popen(
                [sys.executable, "-c", BUILD], env=environ, cwd=app.root, stdout=subprocess.PIPE, text=True
            )
            for _ in range(5)
        ]
        results = {process.communicate(timeout=120)[0] for process in processes}
        self.assertEqual([process.returncode for process in processes], [0] * 5)
        self.assertEqual(len(results), 1)
        self.assertEqual(runs(app), 1)
        (directory,) = app.cache.iterdir()
        self.assertEqual(sorted(path.name for path in directory.iterdir()), ["lock", "shim.so"])
        self.assertEqual(stat.S_IMODE(directory.stat().st_mode), 0o700)

    def test_other_sources_versions_and_abis_have_places_of_their_own(self):
        app = Installation(prebuilt=False)
        where = "from ashlar import jit, torchbuild; print(jit.shim_path(torchbuild.of_module(__import__('torch'))))"
        paths = [
            app.python(where),
            app.python(where, STUB_TORCH_VERSION="2.12.0+cu130"),
            app.python(where, STUB_TORCH_CUDA="13.1"),
            app.python(where, STUB_TORCH_ABI="0"),
        ]
        with open(app.package / "shim" / "shim.cpp", "a") as file:
            file.write("// changed\n")
        paths.append(app.python(where))
        self.assertEqual(len(set(paths)), 5, paths)

    def test_a_failed_compilation_leaves_nothing_and_shows_the_messages(self):
        app = Installation(prebuilt=False)
        (app.package / "shim" / "shim.cpp").write_text("#error unfinished\n")
        text = app.error(BUILD)
        self.assertIn("the shim for PyTorch 2.11.0+cu130 could not be compiled (exit status 1)", text)
        (directory,) = app.cache.iterdir()
        self.assertEqual([path.name for path in directory.iterdir()], ["lock"])

    def test_the_cxx_library_is_the_shared_one(self):
        app = Installation(prebuilt=False)
        static = 'exec g++ -static-libstdc++ "$@"'
        without_a_shared_one = compiler(app, f"case $1 in -print*) echo libstdc++.so; exit ;; esac\n{static}")
        path = app.python(BUILD, CXX=without_a_shared_one)
        self.assertIn("libstdc++.so.6", app.python(f"from ashlar.elf import ELF; print(ELF({path!r}).needed())"))
        os.unlink(path)
        text = app.error(BUILD, CXX=compiler(app, static))
        self.assertIn("script-g++ does not link to libstdc++.so.6, the C++ library of PyTorch", text)
        (directory,) = app.cache.iterdir()
        self.assertEqual([path.name for path in directory.iterdir()], ["lock"])

    def test_what_is_missing_is_named(self):
        app = Installation(prebuilt=False)
        self.assertIn("no C++ compiler (g++) in PATH", app.error(BUILD, PATH="/nonexistent"))
        text = app.error(
            BUILD.replace("of_files()", "of_module(__import__('torch'))"),
            STUB_TORCH_CUDA="12.8", CUDA_HOME="/nonexistent",
        )  # fmt: skip
        self.assertIn("cuda_runtime_api.h and crt/host_defines.h of CUDA 12 not found", text)
        self.assertIn("/nonexistent/include", text)
        (app.package / "shim" / "shim.cpp").unlink()
        self.assertIn("no sources of the shim", app.error(BUILD))

    def test_headers_are_taken_from_cuda_home_if_there_are_no_wheels(self):
        app = Installation(prebuilt=False)
        home = app.root / "toolkit" / "include"
        (home / "crt").mkdir(parents=True)
        (home / "crt" / "host_defines.h").write_text("")
        code = (
            "from ashlar import cuda, torchbuild; print(*cuda.include_dirs(torchbuild.of_module(__import__('torch'))))"
        )
        (home / "cuda_runtime_api.h").write_text("#define CUDART_VERSION 12080\n")
        out = app.python(code, STUB_TORCH_CUDA="12.8", CUDA_HOME=str(home.parent))
        self.assertEqual(out, str(home))
        (home / "cuda_runtime_api.h").write_text("#define CUDART_VERSION 11080\n")  # of another CUDA: not taken
        self.assertIn("not found", app.error(code, STUB_TORCH_CUDA="12.8", CUDA_HOME=str(home.parent)))

    def test_a_cache_that_cannot_be_made_names_the_variable(self):
        app = Installation(prebuilt=False)
        occupied = app.root / "file"
        occupied.write_text("")
        self.assertIn("set ASHLAR_CACHE_DIR", app.error(BUILD, ASHLAR_CACHE_DIR=str(occupied / "below")))

    def test_the_cache_is_in_the_home_directory_by_default(self):
        code = "from ashlar import jit; print(jit.cache_dir())"
        out = Installation().python(code, HOME="/home/of/a/user", ASHLAR_CACHE_DIR="")
        self.assertEqual(out, os.path.join("/home/of/a/user", ".cache", "ashlar"))

    def test_files_and_module_give_the_same_facts(self):
        out = Installation().python(
            "from ashlar import torchbuild\nfiles = torchbuild.of_files()\nimport torch\n"
            "assert files == torchbuild.of_module(torch), files\nprint(files.shim_name(), files.root)"
        )
        self.assertEqual(out, f"pt211-cu13-abi1.so {site() / 'torch'}")


if __name__ == "__main__":
    unittest.main()
