"""`ashlar doctor` and the console command."""

import os
import subprocess
import sys
import unittest
from pathlib import Path

from installation import Installation, library, scratch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from ashlar import diagnosis  # noqa: E402


def driver() -> str:
    """A directory with a libcuda.so.1 that says what version it is of."""
    path = scratch() / "driver"
    if not path.exists():
        path.mkdir()
        source = path / "libcuda.c"
        source.write_text(
            '#include <stdlib.h>\nint cuDriverGetVersion(int *v) { *v = atoi(getenv("STUB_DRIVER")); return 0; }\n'
        )
        subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(path / "libcuda.so.1")], check=True)
    return str(path)


def doctor(app: Installation, **variables: str) -> "subprocess.CompletedProcess[str]":
    """Run it where nothing is wrong, but for the variables."""
    return app.run("-m", "ashlar", "doctor", **{"LD_LIBRARY_PATH": driver(), "STUB_DRIVER": "13000", **variables})


class Doctor(unittest.TestCase):
    def test_nothing_is_wrong(self):
        result = doctor(Installation())
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertNotIn("broken", result.stdout)
        for part in (
            "library: ", "build stub", "driver: libcuda.so.1 for CUDA 13.0", "PyTorch: 2.11.0+cu130, CUDA 13.0",
            "tier: shim: the prebuilt pt211-cu13-abi1.so", "cache: ", "settings: defaults, name:ashlar",
        ):  # fmt: skip
            self.assertIn(part, result.stdout)

    def test_torch_is_not_imported(self):
        app = Installation()
        out = app.python("import ashlar, sys; ashlar.doctor(sys.stderr); print('torch' in sys.modules)")
        self.assertEqual(out, "False")

    def test_what_is_broken_is_found(self):
        for variables, part in (
            ({"STUB_DRIVER": "11080"}, "driver: libcuda.so.1 for CUDA 11.8"),
            ({"LD_LIBRARY_PATH": ""}, "driver: libcuda.so.1 cannot be loaded"),
            ({"STUB_TORCH_CUDA": ""}, "PyTorch: PyTorch 2.11.0+cu130 has no CUDA"),
            ({"STUB_TORCH_HIP": "6.2"}, "is for ROCm"),
            ({"ASHLAR_ALLOC_CONF": "colour:red"}, "init: unknown setting colour"),
            ({"ASHLAR_ALLOC_CONF": "name:red"}, "settings: ASHLAR_ALLOC_CONF: the setting name can be"),
            ({"ASHLAR_ALLOC_CONF": "tier:shim", "STUB_TORCH_VERSION": "2.9.0"}, "no prebuilt shim pt29-cu13-abi1.so"),
            ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, "selects backend:cudaMallocAsync"),
            ({"PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}, "turns PyTorch's caching off"),
            ({"STUB_TORCH_VERSION": "2.9.0", "PATH": "/nonexistent"}, "it cannot be compiled: no C++ compiler"),
        ):
            with self.subTest(part):
                result = doctor(Installation(), **variables)
                self.assertEqual(result.returncode, 1, result.stdout + result.stderr)
                lines = [line for line in result.stdout.splitlines() if line.startswith("  broken")]
                self.assertTrue(any(part in line for line in lines), result.stdout)

    def test_what_is_missing_and_not_needed_is_no_failure(self):
        for variables, part in (
            ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, "private pools"),
            ({"ASHLAR_ALLOC_CONF": "tier:pluggable"}, "refuses much of PyTorch"),
            ({"ASHLAR_CACHE_DIR": "/dev/null/ashlar"}, "cache: /dev/null/ashlar cannot be written"),
        ):
            with self.subTest(part):
                result = doctor(Installation(), **variables)
                self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
                self.assertIn(part, result.stdout)
        result = doctor(Installation(prebuilt=False))
        self.assertIn("jit: the shim compiled for PyTorch 2.11.0+cu130", result.stdout)

    def test_a_library_that_cannot_be_loaded_is_broken_and_does_no_harm(self):
        for stub, part in (
            (library("-DSTUB_VERSION=0"), "is older than this package"),
            (library("-include", str(crash_header())), "does not end as it should"),
        ):
            with self.subTest(part):
                result = doctor(Installation(stub_library=stub))
                self.assertEqual(result.returncode, 1)
                self.assertIn(part, result.stdout, result.stderr)
        result = doctor(Installation(has_library=False))
        self.assertIn("broken   library: there is no library", result.stdout)

    def test_a_library_for_a_newer_glibc_is_named(self):
        out = Installation().python(
            "from ashlar import diagnosis\ndiagnosis._glibc = lambda: (2, 1)\nprint(*diagnosis._library())"
        )
        self.assertIn("and this system has 2.1", out)

    def test_other_go_runtimes_are_found_by_their_section(self):
        path = scratch() / "go.so"
        source = scratch() / "go.c"
        source.write_text('__attribute__((section(".go.buildinfo"))) char info[32] = "a Go build";\n')
        for target in (path, scratch() / "libashlar_go.so"):
            subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(target)], check=True)
        rows = [
            f"7f00-7f01 r-xp 0000 08:01 1 {name}\n" for name in (path, scratch() / "libashlar_go.so", "/absent.so")
        ]
        rows += [f"7f00-7f01 r--p 0000 08:01 1 {library()}\n", "7f00-7f01 r-xp 0000 00:00 0 [vdso]\n", "\n"]
        self.assertEqual(diagnosis.other_go_libraries(lambda: "".join(rows)), [str(path)])


def crash_header() -> Path:
    """A header that ends the process when the stub library is loaded."""
    path = scratch() / "crash.h"
    path.write_text("#include <stdlib.h>\n__attribute__((constructor)) static void crash(void) { abort(); }\n")
    return path


class Command(unittest.TestCase):
    def test_other_commands_are_those_of_the_go_program(self):
        app = Installation()
        binary = app.package / "bin" / "ashlar"
        binary.parent.mkdir()
        binary.write_text('#!/bin/sh\necho "go: $*"\nexit 5\n')
        os.chmod(binary, 0o755)
        for arguments in (["replay", "x.pickle"], ["doctor", "cuda"], ["bench", "driver"], ["--version"]):
            result = app.run("-m", "ashlar", *arguments)
            self.assertEqual((result.returncode, result.stdout), (5, f"go: {' '.join(arguments)}\n"), result.stderr)
        result = app.run("-m", "ashlar")
        self.assertIn("ashlar run COMMAND", result.stdout)
        self.assertTrue(result.stdout.endswith("go: --help\n"))
        result = doctor(app)
        self.assertEqual(result.returncode, 5)
        self.assertTrue(result.stdout.endswith("go: doctor cuda\n"), result.stdout)

    def test_bench_torch_measures_both_allocators_in_processes_of_their_own(self):
        app = Installation()
        result = app.run("-m", "ashlar", "bench", "torch", "--rounds", "2", "--pairs", "10", "--threads", "2")
        self.assertEqual(result.returncode, 0, result.stderr)
        lines = result.stdout.splitlines()
        self.assertEqual(lines[1].split(), ["bytes", "native", "ashlar"])
        self.assertEqual([line.split()[0] for line in lines[2:]], ["512", "4,096", "1,048,576", "67,108,864"])
        self.assertEqual(app.calls().count("install name:ashlar,graphs:native,ipc:native"), 2)
        self.assertEqual(app.run("-m", "ashlar", "bench", "torch", STUB_DEVICES="0").returncode, 3)

    def test_without_the_go_program_the_error_says_how_to_get_it(self):
        result = Installation().run("-m", "ashlar", "replay")
        self.assertEqual(result.returncode, 3)
        self.assertIn("go build -o python/ashlar/bin/ashlar ./cmd/ashlar", result.stderr)


if __name__ == "__main__":
    unittest.main()
