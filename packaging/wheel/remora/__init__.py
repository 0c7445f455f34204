"""RDMA in software: `remora.activate()` gives this program an RDMA device. The code is in `remora_rdma`."""

from remora_rdma import *  # noqa: F403
from remora_rdma import __all__, __version__  # noqa: F401
