"""Lets binaries that are built on a new system run with old versions of glibc.

Since glibc 2.34 the functions of libpthread and libdl are in libc, with new versions; a binary that is linked there
does not load on older systems. Linked to stubs of the two libraries, in which the functions have their first version,
it loads on old and new systems: a new libc still has the first versions, and the new libpthread and libdl still exist.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

FIRST_VERSION = "GLIBC_2.2.5"  # of x86-64

FUNCTIONS = {
    "libpthread.so.0": (
        "pthread_attr_getstack", "pthread_attr_getstacksize", "pthread_attr_setstacksize", "pthread_create",
        "pthread_detach", "pthread_getattr_np", "pthread_getspecific", "pthread_join", "pthread_key_create",
        "pthread_key_delete", "pthread_kill", "pthread_mutex_trylock", "pthread_once", "pthread_rwlock_tryrdlock",
        "pthread_rwlock_trywrlock", "pthread_setspecific",
        "pthread_sigmask",
    ),
    "libdl.so.2": ("dladdr", "dlclose", "dlerror", "dlopen", "dlsym"),
}  # fmt: skip

# What the headers of libstdc++ refer to, and old systems lack. Definitions of our own keep the references inside.
CXX_SOURCE = """#pragma GCC visibility push(hidden)
extern "C" {
// A variable of glibc 2.32, by which programs without threads save atomic operations. There are threads.
extern char __libc_single_threaded;
char __libc_single_threaded = 0;

// A function of libstdc++ 13, which exists so that programs with <iostream> need that version. PyTorch's libraries, which
// are loaded before a shim, have set up the streams.
void _ZSt21ios_base_library_initv() {}
}
#pragma GCC visibility pop
"""


def linker_flags(directory: Path, compiler: str = "gcc") -> str:
    """Compile the stubs into a directory. The result has the flags that link a binary to them."""
    versions = directory / "versions"
    versions.write_text(f"{FIRST_VERSION} {{ global: *; }};\n")
    for name, functions in FUNCTIONS.items():
        source = directory / f"{name}.c"
        source.write_text("".join(f"void {function}(void) {{}}\n" for function in functions))
        flags = ["-shared", "-fPIC", "-nostdlib", "-fno-builtin", "-w"]
        link = [f"-Wl,-soname,{name}", f"-Wl,--version-script={versions}", "-o", str(directory / name)]
        subprocess.run([compiler, *flags, "-x", "c", str(source), *link], check=True)
    libraries = " ".join(f"-l:{name}" for name in FUNCTIONS)
    return f"-L{directory} -Wl,--push-state,--no-as-needed {libraries} -Wl,--pop-state"


def cxx_source(directory: Path) -> Path:
    """Write the C++ source that is to be compiled with a shim into a directory."""
    path = directory / "oldglibc.cpp"
    path.write_text(CXX_SOURCE)
    return path
