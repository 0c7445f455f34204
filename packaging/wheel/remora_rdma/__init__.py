r"""RDMA in software for Python programs and for the programs that they start.

    import remora
    remora.activate()                   # before anything loads libibverbs.so.1

    with remora.device(fault='[[rule]]\nfault = "drop"\nprobability = 0.01', capture="run.pcapng") as device:
        device.run(["ib_write_bw", "127.0.0.1"])
"""

from remora_rdma.activation import AlreadyLoaded, activate, reexec
from remora_rdma.capture import Packet, packets
from remora_rdma.devices import Device, device
from remora_rdma.places import command, environment, library_path
from remora_rdma.results import Flow, Measurement, Run, measurements, run, sweep

__version__ = "@VERSION@"

__all__ = [
    "AlreadyLoaded",
    "Device",
    "Flow",
    "Measurement",
    "Packet",
    "Run",
    "activate",
    "command",
    "device",
    "environment",
    "library_path",
    "measurements",
    "packets",
    "reexec",
    "run",
    "sweep",
]
