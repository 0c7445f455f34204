"""The command `remora`: the program of this wheel takes the place of Python."""

import os
import sys

from remora_rdma import command


def main() -> None:
    """Runs the command with the arguments of this program."""
    os.execv(command(), ["remora", *sys.argv[1:]])


if __name__ == "__main__":
    main()
