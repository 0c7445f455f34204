"""Peers that mean harm. They run in a process of their own, with the lowest priority: what is measured is what a server does to its clients,
not how a machine shares its cores."""

import concurrent.futures
import json
import os
import random
import selectors
import socket
import struct
import subprocess
import sys
import threading
import time

from abusing import lent

# How many of each there are, as a whole phase has them.
COUNTS = {"silent": 1000, "stalled": 100, "garbage": 1000, "dripping": 100, "killed": 200, "tenant": 1}
# User id of the tenant that takes everything.
TENANT = 1001
# What an abuse is compared with, if not with nothing: clients that are killed cost what as many clients that end by themselves cost, and no more.
BESIDE = {"killed": "ended"}
OF = {beside: kind for kind, beside in BESIDE.items()}
# A silent connection that the server ends is made again, but not more often than a client that waits three seconds would.
RENEWED = 3.0
DRIP = 0.1
# Time in which a garbage connection gets an answer before it is closed.
HEARD = 0.5


def connect(address):
    """A connection that is being made; None: the system gives none."""
    try:
        peer = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    except OSError:
        return None
    peer.setblocking(False)
    peer.connect_ex(address)
    return peer


def garbage(draw, request):
    """What somebody says who is no client."""
    noise = draw.randbytes(draw.randint(1, 2000))
    return draw.choice(
        [
            noise,
            b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
            b"\x16\x03\x01\x02\x00\x01\x00" + noise,
            b"RemoraCM" + struct.pack("<HHI", 1, 1, 0xFFFFFFFF) + noise,
            b"RemoraCM" + struct.pack("<HHI", 9, 1, 68) + noise,
            b"RemoraCM" + struct.pack("<HHI", 1, 1, 68) + draw.randbytes(68),
            request[: draw.randint(1, len(request) - 1)],
            request[:16] + draw.randbytes(len(request) - 16),
        ]
    )


class Connections:
    """Connections, of which each does the same."""

    def __init__(self, address, count):
        self.address, self.count = address, count
        self.open = {}
        self.ready = selectors.DefaultSelector()
        self.made = self.ended = 0

    def add(self, events, data):
        peer = connect(self.address)
        if peer is None:
            return False
        self.made += 1
        self.open[peer.fileno()] = peer
        self.ready.register(peer, events, data)
        return True

    def end(self, peer, reset=False):
        self.ended += 1
        self.ready.unregister(peer)
        del self.open[peer.fileno()]
        if reset:
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        peer.close()

    def hung_up(self, peer):
        """Takes what the server says. True: it has ended the connection."""
        try:
            return not peer.recv(4096)
        except BlockingIOError:
            return False
        except OSError:
            return True


def silent(connections, over, says):
    """Connections that say nothing, or nothing after a client's request. Those that the server ends are made again."""
    first = selectors.EVENT_WRITE if says else selectors.EVENT_READ
    for _ in range(connections.count):
        connections.add(first, None)
    say_ready()
    allowed, last = 0.0, time.monotonic()
    while not over():
        for key, events in connections.ready.select(0.02):
            peer = key.fileobj
            if events & selectors.EVENT_WRITE:
                try:
                    peer.send(says)
                except OSError:
                    pass
                connections.ready.modify(peer, selectors.EVENT_READ)
            elif connections.hung_up(peer):
                connections.end(peer)
        now = time.monotonic()
        allowed = min(allowed + (now - last) * connections.count / RENEWED, connections.count)
        last = now
        while len(connections.open) < connections.count and allowed >= 1 and connections.add(first, None):
            allowed -= 1


def dripping(connections, over, request):
    """Connections that send a byte of a request each 100 ms."""
    for _ in range(connections.count):
        connections.add(selectors.EVENT_READ, [0])
    say_ready()
    due = time.monotonic()
    while not over():
        for key, _ in connections.ready.select(0.02):
            if connections.hung_up(key.fileobj):
                connections.end(key.fileobj)
                connections.add(selectors.EVENT_READ, [0])
        if time.monotonic() < due:
            continue
        due += DRIP
        for key in list(connections.ready.get_map().values()):
            sent = key.data[0]
            try:
                key.fileobj.send(request[sent : sent + 1])
                key.data[0] = (sent + 1) % len(request)
            except BlockingIOError:
                pass
            except OSError:
                connections.end(key.fileobj)
                connections.add(selectors.EVENT_READ, [0])


def nonsense(connections, over, request, seconds):
    """Connections that send something else than a request, so many over the phase. Some are reset, some closed, some left to the server."""
    draw = random.Random(7)
    say_ready()
    started = time.monotonic()
    while not over():
        due = min(connections.count, (time.monotonic() - started) / seconds * connections.count)
        while connections.made < due:
            if not connections.add(selectors.EVENT_WRITE, None):
                break
        for key, events in connections.ready.select(0.02):
            peer = key.fileobj
            if key.data is None:
                try:
                    peer.send(garbage(draw, request))
                except OSError:
                    pass
                connections.ready.modify(peer, selectors.EVENT_READ, time.monotonic() + HEARD)
            elif connections.hung_up(peer):
                connections.end(peer)
        now = time.monotonic()
        for key in [key for key in connections.ready.get_map().values() if key.data and key.data < now]:
            connections.end(key.fileobj, reset=draw.random() < 0.5)


def clients(words, count, over, seconds, longest):
    """Clients that are killed 5 ms after their start, or later, up to when they would have been served. `longest` None: they end by themselves."""
    draw, running, begun = random.Random(7), [], 0
    say_ready()
    started = time.monotonic()
    while not over():
        now = time.monotonic()
        if begun < min(count, (now - started) / seconds * count) and len(running) < 8:
            begun += 1
            quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            until = float("inf") if longest is None else now + draw.uniform(0.005, longest)
            running.append((subprocess.Popen(words, **quiet), until))
        for client, until in list(running):
            if client.poll() is not None or now >= until:
                client.kill()
                client.wait()
                running.remove((client, until))
        time.sleep(0.002)
    for client, _ in running:
        client.kill()
        client.wait()
    return begun


def tenant(path, over):
    """A user of the NIC daemon that takes all of everything that it gets: kept names, attachments, memory, queues. Then it asks for more,
    200 times a second. Returns how much it got, and how often it was refused."""
    os.setgroups([])
    os.setgid(TENANT)
    os.setuid(TENANT)
    got, refused = 0, 0
    # A name is kept while it has an object.
    for number in range(1000):
        program, answer = lent.attach(path, f"hog{number}")
        if program is None:
            break
        program.ask(lent.DOMAIN)
        program.end()
        got += 1
    programs = []
    while (program := lent.attach(path, "")[0]) is not None:
        programs.append(program)
    got += len(programs)
    first = programs[0]
    domain = first.ask(lent.DOMAIN)
    queue = first.queue(16)
    takes = [
        lambda: first.region(domain, 16 << 20),
        lambda: first.queue(16),
        lambda: first.pair(domain, queue),
        lambda: first.ask(lent.DOMAIN),
    ]
    for take in takes:
        while take() is not None:
            got += 1
    say_ready()
    while not over():
        for take in takes:
            refused += take() is None
        program, _ = lent.attach(path, "")
        refused += program is None
        time.sleep(0.025)
    for program in programs:
        program.end()
    return got, refused


def say_ready():
    print("ready", flush=True)


def act(kind, address, count, seconds, longest, request, words):
    """What the process does: until its standard input ends."""
    os.nice(19)
    told = threading.Event()

    def wait():
        sys.stdin.read()
        told.set()

    threading.Thread(target=wait, daemon=True).start()
    over = told.is_set
    if kind == "tenant":
        made, ended = tenant(words[0], over)
    elif kind in ("killed", "ended"):
        made = ended = clients(words, count, over, seconds, longest if kind == "killed" else None)
    else:
        connections = Connections(address, count)
        if kind == "garbage":
            nonsense(connections, over, request, seconds)
        elif kind == "dripping":
            dripping(connections, over, request)
        else:
            silent(connections, over, request if kind == "stalled" else b"")
        made, ended = connections.made, connections.ended
    print(json.dumps({"made": made, "ended": ended}), flush=True)


# UDP ports of an address that claim to be clients, and hand-shakes at a time.
PORTS_EACH = 50_000
TOGETHER = 8


def claims(address, request, numbers):
    """Connections of clients that come and go, each with a NIC of another address of this host; how many were taken, and the last refusal."""
    taken, refusal = 0, ""
    ready = b"RemoraCM" + struct.pack("<HHI", 1, 3, 0)
    for number in numbers:
        claimed = bytearray(request)
        host, port = 2 + number // PORTS_EACH, 1024 + number % PORTS_EACH
        claimed[30:32] = struct.pack("<H", port)
        claimed[32:48] = bytes(10) + b"\xff\xff" + bytes([127, 0, host >> 8, host & 0xFF])
        claimed[48:64] = random.randbytes(16)
        with socket.create_connection(address, timeout=10) as peer:
            peer.sendall(claimed)
            answer = peer.recv(4096)
            if answer[10:12] == b"\x02\0":
                peer.sendall(ready)
                # GO: the server has made a peer of the address.
                taken += peer.recv(16) != b""
            else:
                refusal = answer[16:].decode(errors="replace")
            # Without it each connection would keep a port of the system for a minute.
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    return taken, refusal


def claim_all(address, request, count):
    """The same from several threads at once."""
    with concurrent.futures.ThreadPoolExecutor(TOGETHER) as pool:
        parts = list(pool.map(lambda first: claims(address, request, range(first, count, TOGETHER)), range(TOGETHER)))
    return sum(taken for taken, _ in parts), next((refusal for _, refusal in parts if refusal), "")


class Peers:
    """The process."""

    def __init__(self, kind, server, share, seconds, longest):
        count = max(1, round(COUNTS[OF.get(kind, kind)] * share))
        at = f"{server.address[0]}:{server.address[1]}"
        words = [server.lender] if kind == "tenant" else server.newcomer()
        order = [kind, at, count, seconds, max(0.045, longest), server.request.hex(), *words]
        words = [sys.executable, sys.argv[0], "--peers", *map(str, order)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdout.readline()

    def end(self):
        """Ends them; how many there were."""
        try:
            # This closes its standard input.
            said, _ = self.process.communicate(timeout=30)
            return json.loads(said.splitlines()[-1])
        except (subprocess.TimeoutExpired, ValueError, IndexError):
            self.process.kill()
            self.process.wait()
            return {"made": 0, "ended": 0}
