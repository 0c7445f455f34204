"""A guest of a broker that means harm, beside the work of another user.

The guest's user is admitted by --allow-uid. It takes all QPN ranges that it gets, replaces and detaches the kernel's steering by each socket
that it gets, gives ranges back, keeps their descriptors, and reads from all of them. The worker is a program of the broker's own user, or
another guest: it sends frames to its QPN range and waits for each. All speak the broker's own messages (api/broker/src/message.rs).

A user of a peer's host sends a storm of forged MADs beside the same worker (mads.py); there the newcomers connect by rdma_cm."""

import ctypes
import json
import os
import select
import socket
import struct
import subprocess
import sys
import threading
import time

from . import mads
from .judge import Case, Phase
from .servers import Failed

ADDRESS = "127.90.39.1"
PORT = 4791
VERSION = 8
# The users of the guest that means harm, and of one at work.
HARMS, WORKS = 61001, 61002
KINDS = {"steals-from-owner": None, "steals-from-guest": WORKS, "forged-mads": None}
# Before the frames of a packet of the relay, and of a frame.
RELAY_HEADER, FRAME = 36, 60
# Rounds of the guest a second: a program that spins takes a processor, whatever it does.
ROUNDS = 100
SO_ATTACH_REUSEPORT_CBPF, SO_DETACH_REUSEPORT_BPF = 51, 68


def borrow():
    """A connection to the broker, the QPN range that it lent, and the descriptors: socket, relay, page."""
    broker = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    broker.settimeout(5)
    broker.connect(f"\0remora-broker/{ADDRESS}:{PORT}")
    ip = b"\0" * 10 + b"\xff\xff" + socket.inet_aton(ADDRESS) + bytes(1)
    broker.send(struct.pack("<BQH", 1, int.from_bytes(b"RemoraBr", "little"), VERSION) + ip + bytes(2))
    reply, descriptors, _, _ = socket.recv_fds(broker, 2048, 8)
    if reply[0] != 2:
        raise Failed(reply[3:].decode(errors="replace"))
    return broker, reply[1], descriptors


def frame(qpn_range):
    """A frame to a QP number of this range."""
    return bytes([0x0A, 0, 0xFF, 0xFF, 0, qpn_range << 1]).ljust(FRAME, b"\x55")


def work(every):
    """Prints a line for each period: one frame after the other, sent and received."""
    connection, qpn_range, (own, relay, _) = borrow()
    # The range is given back with the connection.
    connection.setblocking(False)
    sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sender.bind((ADDRESS, 0))
    poll = select.poll()
    poll.register(own, select.POLLIN)
    poll.register(relay, select.POLLIN)
    sent = frame(qpn_range)
    while True:
        begin, times, lost = time.monotonic(), [], 0
        while (start := time.monotonic()) < begin + every:
            sender.sendto(sent, (ADDRESS, PORT))
            ready = poll.poll(1000)
            came = os.read(ready[0][0], 4096) if ready else b""
            lost += came[-FRAME:] != sent
            times.append(int((time.monotonic() - start) * 1e6))
        counts = [[micros, 1] for micros in times]
        line = {"clock": time.monotonic(), "operations": len(times) - lost, "times_us": counts, "max_us": max(times), "waiting_us": 0, "lost": lost}
        print(json.dumps(line), flush=True)


def steer(descriptor):
    """Has the kernel bring every datagram of the group to the first socket, and then steer by no filter."""
    code = struct.pack("<HBBI", 0x06, 0, 0, 0)
    kept = ctypes.create_string_buffer(code)
    program = struct.pack("HxxxxxxQ", 1, ctypes.addressof(kept))
    borrowed = socket.socket(fileno=os.dup(descriptor))
    for option, value in [(SO_ATTACH_REUSEPORT_CBPF, program), (SO_DETACH_REUSEPORT_BPF, 0)]:
        try:
            borrowed.setsockopt(socket.SOL_SOCKET, option, value)
        except OSError:
            pass
    borrowed.close()


def steal():
    """Does all of it until its input ends; then prints how many frames it has read."""
    held, kept, read, rounds = [], [], 0, 0
    for _ in range(200):
        try:
            held.append(borrow())
        except (Failed, OSError):
            break
    for _, _, descriptors in held:
        kept += descriptors[:2]
    while not select.select([sys.stdin], [], [], 1 / ROUNDS)[0]:
        rounds += 1
        for descriptor in (kept[-2], kept[0]):
            steer(descriptor)
        poll = select.poll()
        for descriptor in kept:
            poll.register(descriptor, select.POLLIN)
        for descriptor, event in poll.poll(0):
            if event & select.POLLIN:
                try:
                    read += len(socket.socket(fileno=os.dup(descriptor)).recv(4096, socket.MSG_PEEK | socket.MSG_DONTWAIT)) > 0
                except OSError:
                    pass
        if held and rounds % 2:
            # Its place is given back, and its descriptors stay.
            broker, _, _ = held.pop(0)
            broker.close()
            try:
                held.append(borrow())
                kept = (kept + held[-1][2][:2])[-400:]
            except (Failed, OSError):
                pass
    print(json.dumps({"read": read, "rounds": rounds, "ranges": len(held)}), flush=True)


def act(role, uid, value):
    """Plays a role as this user. The interpreter itself may lie where other users cannot start it."""
    if int(uid) != os.geteuid():
        os.setgroups([])
        os.setgid(int(uid))
        os.setuid(int(uid))
    if role == "storm":
        sent = mads.storm(int(value), lambda: bool(select.select([sys.stdin], [], [], 0)[0]))
        print(json.dumps({"sent": sent}), flush=True)
        return
    work(float(value)) if role == "work" else steal()


class Process:
    """A role in a process of its own, as this user."""

    def __init__(self, role, uid, value):
        words = [sys.executable, sys.argv[0], "--guest", role, str(os.geteuid() if uid is None else uid), str(value)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def end(self):
        self.process.kill()
        self.process.wait()


class Worker(Process):
    def __init__(self, uid, every):
        super().__init__("work", uid, every)
        self.periods = []
        threading.Thread(target=self.read, daemon=True).start()

    def read(self):
        for line in self.process.stdout:
            self.periods.append(json.loads(line))

    def wait(self):
        until = time.monotonic() + 10
        while not self.periods:
            if self.process.poll() is not None or time.monotonic() > until:
                raise Failed("the worker on the broker's address does nothing")
            time.sleep(0.005)


def newcomer():
    """Seconds until another program has a range."""
    start = time.monotonic()
    broker, _, descriptors = borrow()
    for descriptor in descriptors:
        os.close(descriptor)
    broker.close()
    return time.monotonic() - start


def facts(process):
    """Resident KiB, descriptors and threads of a process."""
    at = f"/proc/{process.pid}"
    lines = dict(line.split(":", 1) for line in open(f"{at}/status") if ":" in line)
    return int(lines["VmRSS"].split()[0]), len(os.listdir(f"{at}/fd")), int(lines["Threads"])


class Broker:
    """A broker of this user that admits both guests."""

    def __init__(self, binary):
        words = [binary, "broker", "--json", "--address", ADDRESS, "--linger", "3600"]
        words += ["--allow-uid", str(HARMS), "--allow-uid", str(WORKS)]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        if not self.process.stdout.readline():
            raise Failed("the broker does not start")

    def end(self):
        self.process.kill()
        self.process.wait()


def phase(worker, every, seconds, strict, come=newcomer):
    """The worker for so long, with a newcomer each 200 ms."""
    start, times = time.monotonic(), []
    while time.monotonic() < start + seconds:
        times.append(come())
        time.sleep(0.2)
    end = time.monotonic()
    periods = [period for period in list(worker.periods) if start + every <= period["clock"] <= end]
    return Phase.of(periods, every, end - start, times, strict), sum(period["lost"] for period in periods)


def measure_guest(result, parts, every, before, during, strict):
    """The guest takes, keeps and reads."""
    broker, worker = parts
    result.before, _ = phase(worker, every, before, strict)
    result.facts_before = facts(broker.process)
    guest = Process("steal", HARMS, every)
    parts.append(guest)
    time.sleep(0.3)
    result.during, lost = phase(worker, every, during, strict)
    said = json.loads(guest.process.communicate("", timeout=10)[0])
    result.peers = said
    if said["read"]:
        result.faults.append(f"the guest read {said['read']} frames")
    if not 0 < said["ranges"] <= 127 - 2 * (127 // 6):
        result.faults.append(f"the guest had {said['ranges']} of 127 QPN ranges")
    if lost:
        result.faults.append(f"{lost} frames did not reach the worker")


def measure_mads(result, parts, every, before, during, strict):
    """Forged MADs come. The connections from before stay."""
    broker, worker = parts
    connections = mads.Connections()
    parts.append(connections)
    result.before, _ = phase(worker, every, before, strict, connections.newcomer)
    result.facts_before = facts(broker.process)
    sender = Process("storm", HARMS, connections.learned)
    parts.append(sender)
    sender.process.stdout.readline()
    result.during, lost = phase(worker, every, during, strict, connections.newcomer)
    result.peers = json.loads(sender.process.communicate("\n", timeout=10)[0])
    connections.drain()
    if result.peers["sent"] < during * mads.RATE / 4:
        result.faults.append(f"the storm had only {result.peers['sent']} MADs")
    if connections.ended:
        result.faults.append(f"connections got {', '.join(connections.ended)}")
    if lost:
        result.faults.append(f"{lost} frames did not reach the worker")


def case(binary, kind, every, before, during, strict):
    """One case, with a broker and a worker of its own."""
    if os.geteuid() != 0:
        raise Failed("guests of a broker are other users: run this as root")
    result, parts = Case("broker", "udp", kind), []
    try:
        parts.append(Broker(binary))
        parts.append(Worker(KINDS[kind], every))
        parts[-1].wait()
        measure = measure_mads if kind == "forged-mads" else measure_guest
        measure(result, parts, every, before, during, strict)
        time.sleep(0.3)
        result.facts_after = facts(parts[0].process)
        result.judge(strict)
    except (OSError, ValueError) as error:
        result.faults.append(str(error))
    finally:
        for part in reversed(parts):
            part.end()
    return result
