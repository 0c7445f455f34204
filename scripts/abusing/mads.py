"""A storm of forged MADs at a broker's connection manager, beside a program at work and connections of rdma_cm.

An unprivileged user of a peer's host sends MADs with a right ICRC from the peer's address, each from another UDP port than the peer's own:
requests for connections, rejections (TIMEOUT) and ends of the peer's connections, and random ones. It knows the peer's communication IDs,
its GUID and the queue pairs, and guesses the broker's IDs. The peer's manager is this process, as is the program with the listener: newcomers
connect by rdma_cm, and connections that exist from before must stay."""

import random
import select
import socket
import struct
import time
import zlib

from .postcard import number, numbers, skip

PEER = "127.90.39.2"
ADDRESS, PORT = "127.90.39.1", 4791
# Port of the listener in RDMA_PS_TCP.
LISTENS = 7174
VERSION = 8
# Numbers of the broker's messages (api/broker/src/message.rs), of those of its connection manager, and of a reply.
OPEN_CM, CM = 7, 15
CREATE_CHANNEL, CREATE_ID, BIND, LISTEN, ACCEPT, DESTROY = 0, 1, 2, 3, 5, 10
FAILED = 5
# MADs a second. At several times as many the sender takes a processor from the program at work.
RATE = 5000
BURST = 100
GUID = 0x5EED
REQ, REJ, REP, RTU, DREQ, DREP = 0x10, 0x12, 0x13, 0x14, 0x15, 0x16
# Kinds of events of an ID (api/broker/src/message/id_event.rs).
REQUESTED, ESTABLISHED = 0, 2
# Communication IDs of the peer's connections from before, and how many there are.
# Newcomers count on from the next.
FIRST, KEPT = 0xABC000, 4
# The queue pair of the program: the attacker knows it.
QPN = 0x20005
# An answer that does not come for so long is asked for again, as managers do.
AGAIN = 0.1
TIMEOUT = 4


def gid(address):
    return bytes(10) + b"\xff\xff" + socket.inet_aton(address)


def packet(source, port, attribute, body, transaction, psn=0):
    """A UD SEND to QP 1 with this MAD, as a datagram from this source to the broker; the ICRC masks what routers change."""
    base = struct.pack(">BBHI", 0x64, 0, 0xFFFF, 1) + struct.pack(">I", psn)
    datagram = struct.pack(">II", 0x80010000, 1)
    mad = struct.pack(">4BHHQHHI", 1, 7, 2, 3, 0, 0, transaction, attribute, 0, 0) + body.ljust(232, b"\0")
    length = 8 + len(base) + len(datagram) + len(mad) + 4
    addresses = socket.inet_aton(source) + socket.inet_aton(ADDRESS)
    ip = struct.pack(">BBHHHBBH", 0x45, 0xFF, 20 + length, 0, 0x4000, 0xFF, 17, 0xFFFF) + addresses
    udp = struct.pack(">4H", port, PORT, length, 0xFFFF)
    masked = base[:4] + b"\xff" + base[5:]
    return base + datagram + mad + struct.pack("<I", zlib.crc32(b"\xff" * 8 + ip + udp + masked + datagram + mad))


def request(own, guid=GUID, qpn=None):
    """A REQ of the peer for the listener, with 15 repetitions and timeouts of 4 s. The queue pair has the number of the ID by itself."""
    qpn = own if qpn is None else qpn
    service = 0x01000000 | 6 << 16 | LISTENS
    head = struct.pack(">IIQQII", own, 0, service, guid, 0, 0)
    pair = struct.pack(">4IHBB", qpn << 8 | 1, 1, 20 << 3, 7 << 8 | 20 << 3 | 7, 0xFFFF, 3 << 4 | 7, 15 << 4)
    path = b"\xff" * 4 + gid(PEER) + gid(ADDRESS) + bytes(4) + bytes([0, 64, 0, 20 << 3])
    addresses = bytes([0, 0x40]) + struct.pack(">H", 40000) + bytes(12) + socket.inet_aton(PEER) + bytes(12) + socket.inet_aton(ADDRESS)
    return head + pair + path + bytes(44) + addresses


def rejection(peers_id, guess):
    """A REJ (TIMEOUT) of the peer, with its GUID."""
    return struct.pack(">IIBBHQ", peers_id, guess, 2 << 6, 8 << 1, TIMEOUT, GUID)


def forged(draw, guess):
    """One attribute and body of what the storm has. The guess is an ID of the broker near those of the connections, if it counts."""
    mine = FIRST + draw.randrange(KEPT)
    near = guess ^ draw.randrange(64)
    return draw.choice(
        [
            (REQ, request(draw.getrandbits(32), draw.getrandbits(64), draw.getrandbits(24))),
            (REQ, request(mine)),
            (REJ, rejection(mine, draw.choice([0, near]))),
            (DREQ, struct.pack(">III", mine, near, draw.choice([QPN, mine]) << 8)),
            (draw.choice([REP, RTU, DREP, DREQ, REJ, 0x11, 0x17, 0x19, 0x1A]), draw.randbytes(232)),
            (draw.getrandbits(16), draw.randbytes(232)),
        ]
    )


def storm(learned, over):
    """Sends until that is over, near an ID of the broker that was learned, from 8 sockets; returns how many. They are made beforehand: they cost the sender little."""
    draw, made = random.Random(7), []
    for _ in range(8):
        sender = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        sender.bind((PEER, 0))
        port = sender.getsockname()[1]
        for _ in range(250):
            attribute, body = forged(draw, learned)
            made.append((sender, packet(PEER, port, attribute, body, draw.getrandbits(64))))
    draw.shuffle(made)
    print("ready", flush=True)
    sent, start = 0, time.monotonic()
    while not over():
        for sender, datagram in (made[(sent + at) % len(made)] for at in range(BURST)):
            sender.sendto(datagram, (ADDRESS, PORT))
        sent += BURST
        time.sleep(max(0.0, start + sent / RATE - time.monotonic()))
    return sent


class Program:
    """The program with the listener, at the broker's connection manager."""

    def __init__(self):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(5)
        self.socket.connect(f"\0remora-broker/{ADDRESS}:{PORT}")
        self.ask(struct.pack("<BQH", OPEN_CM, int.from_bytes(b"RemoraBr", "little"), VERSION))
        reply, descriptors = self.ask(bytes([CM, CREATE_CHANNEL]))
        self.channel = socket.socket(fileno=descriptors[0])
        reply, _ = self.ask(numbers(CM, CREATE_ID, number(reply, 2), 6))
        listener = number(reply, 2)
        self.ask(numbers(CM, BIND, listener) + gid(ADDRESS) + numbers(0, LISTENS, 0))
        self.ask(numbers(CM, LISTEN, listener, 0))

    def ask(self, words):
        self.socket.send(words)
        reply, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 4)
        if reply[0] != CM or reply[1] == FAILED:
            raise OSError(f"the broker refuses message {words[:2]!r}: {reply[:80]!r}")
        return reply, descriptors

    def accept(self, cm_id):
        self.ask(numbers(CM, ACCEPT, cm_id, 1, 1, 0, 7, 7, 0, QPN, 1, 0))

    def destroy(self, cm_id):
        self.ask(numbers(CM, DESTROY, cm_id))


class Connections:
    """Connections of rdma_cm between the peer and the program."""

    def __init__(self):
        self.program = Program()
        self.peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.peer.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        self.peer.bind((PEER, PORT))
        self.next, self.psn, self.kept, self.ended = FIRST, 0, set(), []
        for _ in range(KEPT):
            self.kept.add(self.connect()[0])
        # The attacker connects once, and learns one of the broker's IDs.
        number, self.learned = self.connect()
        self.program.destroy(number)

    def send(self, attribute, body):
        self.psn += 1
        self.peer.sendto(packet(PEER, PORT, attribute, body, self.next, self.psn), (ADDRESS, PORT))

    def connect(self, patience=10.0):
        """The program's new ID, and the broker's communication ID."""
        own, self.next = self.next, self.next + 1
        until, again, ask = time.monotonic() + patience, 0.0, (REQ, request(own))
        while (now := time.monotonic()) < until:
            if now >= again:
                self.send(*ask)
                again = now + AGAIN
            ready = select.select([self.peer, self.program.channel], [], [], AGAIN / 4)[0]
            if self.peer in ready:
                data = self.peer.recv(4096)
                if data[36:38] == struct.pack(">H", REP) and data[48:52] == struct.pack(">I", own):
                    brokers, again = data[44:48], 0.0
                    ask = (RTU, struct.pack(">I", own) + brokers)
            if self.program.channel in ready and (number := self.heard()):
                return number, int.from_bytes(brokers, "big")
        raise OSError(f"no connection within {patience:.0f} s")

    def heard(self):
        """Takes one event: accepts each request. An ID that has become established, if it has not been the storm's."""
        data = self.program.channel.recv(4096)
        cm_id, kind = number(data, 0), data[skip(data, 0)]
        if kind == REQUESTED:
            self.program.accept(cm_id)
        elif kind == ESTABLISHED:
            return cm_id
        elif cm_id in self.kept:
            self.ended.append(f"event {kind}")
        return None

    def newcomer(self):
        """Seconds until the next connection is there. It ends at once."""
        start = time.monotonic()
        number, _ = self.connect()
        seconds = time.monotonic() - start
        self.program.destroy(number)
        return seconds

    def drain(self):
        """Takes what else there is."""
        while select.select([self.program.channel], [], [], 0.1)[0]:
            self.heard()

    def end(self):
        self.peer.close()
        self.program.socket.close()
