"""pytest's plugin: `pytest --remora` runs all tests on an RDMA device in software, and fixtures give further devices."""

import pytest

from remora_rdma.activation import reexec
from remora_rdma.devices import Device
from remora_rdma.places import environment


def pytest_addoption(parser):
    """Adds the option of the command line."""
    parser.getgroup("remora").addoption(
        "--remora", action="store_true", help="run the tests, and all programs that they start, on Remora's RDMA device"
    )


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config):
    """Starts pytest again below `remora run` before it has loaded a test."""
    if early_config.known_args_namespace.remora:
        capture = early_config.pluginmanager.getplugin("capturemanager")
        if capture is not None:
            # The new process inherits the descriptors of the terminal.
            capture.suspend_global_capture(in_=True)
        reexec()


@pytest.fixture
def remora_env():
    """Variables of a program that finds Remora's libraries, for `subprocess.run(…, env=remora_env)`."""
    return environment()


@pytest.fixture
def remora_devices():
    """A function that makes devices: `remora_devices("127.0.0.2", fault=RULES)`. They end with the test."""
    made = []

    def make(address=None, **options):
        made.append(Device(address, **options))
        return made[-1]

    yield make
    for device in made:
        device.close()


@pytest.fixture
def remora_device(remora_devices):
    """A device with all addresses of this host."""
    return remora_devices()


@pytest.fixture
def remora_pair(remora_devices, tmp_path):
    """Two devices, 127.0.0.1 and 127.0.0.2. Each records its packets, which `device.packets()` returns."""
    return tuple(
        remora_devices(address, port="udp", capture=tmp_path / f"{address}.pcapng") for address in ("127.0.0.1", "127.0.0.2")
    )
