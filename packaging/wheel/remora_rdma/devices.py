"""RDMA devices for the programs that a Python program starts."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Dict, List, Optional, Sequence, Union

from remora_rdma.capture import Packet, packets
from remora_rdma.places import command

# Seconds that a program has to end before it is killed.
GRACE = 5


class Device:
    """An RDMA device with an address of its own. At the end of its `with` block the programs that still run are ended.

    address: IP address of the device, by default all addresses of this host
    port: auto, udp, shm or xdp:INTERFACE
    fault: rules by which frames are lost, delayed, doubled or broken: a file, or the text of one
    capture: pcapng file in which all packets are recorded
    alone: no other program can use the address at the same time
    """

    name = "remora0"

    def __init__(
        self,
        address: Optional[str] = None,
        *,
        port: Optional[str] = None,
        fault: Union[str, "os.PathLike[str]", None] = None,
        capture: Union[str, "os.PathLike[str]", None] = None,
        alone: bool = False,
    ) -> None:
        self.address = address
        self.port = port
        self.capture = None if capture is None else Path(capture).absolute()
        self.alone = alone
        self._fault = fault
        self._folder: Optional[str] = None
        self._programs: List[subprocess.Popen] = []

    def __enter__(self) -> "Device":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the programs that still run."""
        for program in self._programs:
            if program.poll() is None:
                program.terminate()
        for program in self._programs:
            try:
                program.wait(GRACE)
            except subprocess.TimeoutExpired:
                program.kill()
                program.wait()
        self._programs.clear()
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None

    def arguments(self, program: Sequence[str]) -> List[str]:
        """Returns the command line that runs the program on this device."""
        words = [command(), "run"]
        options: Dict[str, Optional[object]] = {
            "--address": self.address,
            "--port": self.port,
            "--fault": self._fault_file(),
            "--capture": self.capture,
        }
        for option, value in options.items():
            if value is not None:
                words += [option, str(value)]
        if self.alone:
            words.append("--alone")
        return [*words, "--", *map(str, program)]

    def run(self, program: Sequence[str], **options: object) -> subprocess.CompletedProcess:
        """Runs a program on this device like `subprocess.run`, and waits for its end."""
        return subprocess.run(self.arguments(program), **options)

    def start(self, program: Sequence[str], **options: object) -> subprocess.Popen:
        """Starts a program on this device like `subprocess.Popen`. It is ended with the device."""
        started = subprocess.Popen(self.arguments(program), **options)
        self._programs.append(started)
        return started

    def packets(self) -> List[Packet]:
        """Returns the packets that have been recorded."""
        if self.capture is None:
            raise ValueError("this device records nothing: pass capture=FILE")
        return list(packets(self.capture))

    def _fault_file(self) -> Union[str, "os.PathLike[str]", None]:
        if not isinstance(self._fault, str) or "[[rule]]" not in self._fault:
            return self._fault
        if self._folder is None:
            self._folder = tempfile.mkdtemp(prefix="remora-")
        file = Path(self._folder, "fault.toml")
        file.write_text(self._fault, encoding="utf-8")
        return file


def device(address: Optional[str] = None, **options: object) -> Device:
    """Returns a device for a `with` block: `with remora.device("127.0.0.2") as device: device.run([…])`."""
    return Device(address, **options)
