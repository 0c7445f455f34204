"""An RDMA device for this process."""

import ctypes
import os
import sys
from pathlib import Path
from typing import List, Optional

from remora_rdma.places import command, environment, library_path

# Some programs ask for the names without a version, which are libraries of their own here.
SONAMES = ("libibverbs.so.1", "librdmacm.so.1", "libibverbs.so", "librdmacm.so")


class AlreadyLoaded(RuntimeError):
    """Another libibverbs or librdmacm is loaded in this process, and cannot be replaced."""


def loaded_files() -> List[str]:
    """Returns the files that are mapped into this process, each once."""
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        lines = [line.rstrip("\n").split(maxsplit=5) for line in maps]
    return list(dict.fromkeys(fields[5] for fields in lines if len(fields) == 6 and fields[5].startswith("/")))


def other_library(files: List[str], own: str) -> Optional[str]:
    """Returns the first of the files that is a libibverbs or librdmacm and not one of the folder `own`.

    Wheels rename the copies that they carry: libibverbs-1de1263b.so.1.14.48.0.
    """
    for file in files:
        name = os.path.basename(file)
        is_verbs = name.startswith(("libibverbs.so", "libibverbs-", "librdmacm.so", "librdmacm-"))
        if is_verbs and Path(file).resolve().parent != Path(own).resolve():
            return file
    return None


def activate(**options: object) -> None:
    """Gives this process and the programs that it starts an RDMA device.

    It must be called before anything loads a libibverbs: the dynamic linker knows libraries by their names, so all that
    ask for libibverbs.so.1 afterwards get Remora's. The options are those of `environment()`. Paths in /sys stay those
    of the system; `reexec()` replaces them, too.

    Raises `AlreadyLoaded` if another libibverbs or librdmacm is loaded. Nothing has changed in that case.
    """
    other = other_library(loaded_files(), library_path())
    if other is not None:
        raise AlreadyLoaded(
            f"cannot activate Remora: {other} is loaded already; call remora.activate() before the import that loads it"
        )
    variables = environment(**options)
    for soname in SONAMES:
        # A library stays loaded for as long as the process runs.
        ctypes.CDLL(os.path.join(library_path(), soname), mode=ctypes.RTLD_GLOBAL)
    os.environ.update(variables)


def reexec(*options: str) -> None:
    """Starts this Python program again below `remora run` with these options, unless it runs there already.

    Does not return if the program is started again. Python 3.10 is the oldest version that knows its own arguments.
    """
    if "REMORA_PATHS" in os.environ:
        return
    if not hasattr(sys, "orig_argv"):
        raise RuntimeError("cannot start this program again: Python 3.10 or newer is needed; use `remora run -- python3 …`")
    sys.stdout.flush()
    sys.stderr.flush()
    os.execv(command(), [command(), "run", *options, "--", sys.executable, *sys.orig_argv[1:]])
