"""Paths of the command and the libraries of this wheel, and the variables by which programs find them."""

import os
from pathlib import Path
from typing import Dict, Mapping, Optional

TREE = Path(__file__).resolve().parent / "tree"

# Variables of options. docs/reference/environment.md explains them.
OPTIONS = ("address", "port", "fault", "capture", "capture_limit", "alone", "explain", "guard", "allow_uid")


def command() -> str:
    """Returns the path of the command `remora`."""
    return str(TREE / "bin" / "remora")


def library_path() -> str:
    """Returns the folder of libibverbs.so.1, librdmacm.so.1 and libremora-paths.so."""
    return str(TREE / "lib" / "remora")


def environment(base: Optional[Mapping[str, str]] = None, **options: object) -> Dict[str, str]:
    """Returns the variables of a program that finds Remora's libraries without `remora run`.

    `base` has the other variables, by default those of this process. The options are those of `remora run`:
    `address`, `port`, `fault`, `capture`, `capture_limit`, `alone`, and the variables `explain`, `guard` and
    `allow_uid`. An option that is `None` is left as it is in `base`. Paths in /sys stay those of the system.
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise TypeError(f"no option {', '.join(unknown)}; there are {', '.join(OPTIONS)}")
    variables = dict(os.environ if base is None else base)
    variables["REMORA_COMMAND"] = command()
    variables["REMORA_LIBRARY_PATH"] = library_path()
    others = [folder for folder in variables.get("LD_LIBRARY_PATH", "").split(":") if folder not in ("", library_path())]
    variables["LD_LIBRARY_PATH"] = ":".join([library_path(), *others])
    for name, value in options.items():
        if value is not None:
            variables[f"REMORA_{name.upper()}"] = str(int(value) if isinstance(value, bool) else value)
    return variables
