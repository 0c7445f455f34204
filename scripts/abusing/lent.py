"""Programs of the NIC daemon that write their own packets (api/verbs/src/nicd/message.rs)."""

import fcntl
import os
import socket
import struct

from .postcard import number, numbers

MAGIC = b"RemoraNd"
VERSION = 8
# Kinds of requests and replies.
HAND_RING, ATTACH, EXECUTE, TABLE = 0, 1, 6, 7
REFUSED, NUMBER, EXECUTED, REFUSED_BY_NIC, AT_LIMIT, REFUSED_BY_TABLE = 1, 3, 8, 9, 10, 11
# Commands of the memory table, and of the NIC.
ALLOC_DOMAIN, REGISTER = 0, 2
CREATE_CQ, CREATE_QP = 0, 5
# A protection domain.
DOMAIN = bytes([TABLE, ALLOC_DOMAIN])
SLOT = 64


def text(value):
    return struct.pack("<H", len(value)) + value


def memory(size):
    """Memory that cannot shrink, as a descriptor."""
    descriptor = os.memfd_create("abuse", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
    return descriptor


class Program:
    """An attachment. Descriptors of replies are closed: they belong to the daemon."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(path)

    def exchange(self, request, descriptors=()):
        """The packet of the reply."""
        socket.send_fds(self.socket, [request], list(descriptors))
        try:
            packet, given, _, _ = socket.recv_fds(self.socket, 4096, 8)
        except ConnectionResetError:
            # A daemon that refuses hangs up: its reply is still there.
            packet, given, _, _ = socket.recv_fds(self.socket, 4096, 8)
        for descriptor in given:
            os.close(descriptor)
        return packet

    def ask(self, request, descriptors=()):
        """The number in the reply; None: it was refused."""
        packet = self.exchange(request, descriptors)
        if packet[0] in (REFUSED, REFUSED_BY_NIC, AT_LIMIT, REFUSED_BY_TABLE):
            return None
        # The reply to a command has a kind of its own before the number.
        return number(packet, 2 if packet[0] == EXECUTED else 1)

    def region(self, domain, size):
        """A region of so many bytes, with local writes. The program keeps no descriptor of its memory."""
        descriptor = memory(size)
        ranges = numbers(1, 0, 0, size, 1 << 40)
        key = self.ask(bytes([TABLE, REGISTER]) + numbers(domain, 1) + ranges + bytes([0]), [descriptor])
        os.close(descriptor)
        return key

    def ring(self, slots):
        """The number of the memory of a queue: one slot of indices, and a power of two of slots."""
        descriptor = memory((1 + slots) * SLOT)
        part = self.ask(bytes([HAND_RING]), [descriptor])
        os.close(descriptor)
        return part

    def queue(self, depth):
        """A completion queue."""
        part = self.ring(depth)
        return None if part is None else self.ask(numbers(EXECUTE, CREATE_CQ, part, 0, 0))

    def pair(self, domain, cq):
        """A reliable connection with 64 slots in each queue."""
        send, receive = self.ring(64), self.ring(64)
        if send is None or receive is None:
            return None
        service, own, max_sge, signal_all, fetching = 0, 0, 1, 0, 0
        receives = numbers(own, receive, max_sge)
        return self.ask(
            numbers(EXECUTE, CREATE_QP, service, domain, send) + receives + numbers(cq, cq, signal_all, fetching)
        )

    def end(self):
        self.socket.close()


def attach(path, name):
    """A program that has attached, kept if it has a name; None and the refusal if the daemon takes none."""
    program = Program(path)
    packet = program.exchange(bytes([ATTACH]) + MAGIC + struct.pack("<H", VERSION) + text(name.encode()) + bytes([bool(name)]))
    if packet[0] == REFUSED:
        program.end()
        return None, packet[3:].decode()
    return program, ""
