"""Tests of the installed wheel that run below `pytest --remora`."""

import os
import subprocess
import time

DROP = """
seed = 1
[[rule]]
fault = "drop"
probability = 0.05
"""


def pingpong(server, client, rounds=200):
    """Runs ibv_rc_pingpong between two devices. The client tries until the server listens."""
    words = ["ibv_rc_pingpong", "-g", "0", "-n", str(rounds)]
    waits = server.start(words, stdout=subprocess.DEVNULL)
    for _ in range(50):
        done = client.run([*words, server.address], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=30)
        if done.returncode == 0:
            assert waits.wait(10) == 0
            return
        time.sleep(0.1)
    raise AssertionError(done.stdout)


def test_this_process_and_its_children_see_the_device():
    with open("/sys/class/infiniband/remora0/ports/1/state", encoding="ascii") as state:
        assert state.read() == "4: ACTIVE\n"
    assert "remora0" in subprocess.run(["ibv_devices"], stdout=subprocess.PIPE, text=True, check=True).stdout


def test_two_devices_exchange_packets_that_both_record(remora_pair):
    server, client = remora_pair
    pingpong(server, client)
    assert len(server.packets()) > 400
    assert len(client.packets()) > 400


def test_packets_are_lost_by_rules_and_sent_again(remora_devices, tmp_path):
    server = remora_devices("127.0.0.3", port="udp", fault=DROP)
    client = remora_devices("127.0.0.4", port="udp", capture=tmp_path / "client.pcapng")
    pingpong(server, client)
    assert len(client.packets()) > 400


def test_the_end_of_a_device_ends_its_programs(remora_devices):
    device = remora_devices("127.0.0.5")
    program = device.start(["sleep", "60"])
    device.close()
    assert program.poll() is not None


def test_variables_name_the_libraries(remora_env):
    assert os.path.exists(os.path.join(remora_env["REMORA_LIBRARY_PATH"], "libibverbs.so.1"))


def test_a_device_of_its_own_is_found(remora_device):
    done = remora_device.run(["ibv_devices"], stdout=subprocess.PIPE, text=True, timeout=30)
    assert "remora0" in done.stdout
