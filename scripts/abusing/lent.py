"""Programs of the NIC daemon that write their own packets (api/verbs/src/nicd/message.rs)."""

import os
import socket
import struct

from .postcard import number, numbers

MAGIC = b"RemoraNd"
VERSION = 6
# Kinds of requests and replies.
ALLOC_DOMAIN, ATTACH, ALLOCATE, CREATE_CQ, CREATE_QP = 0, 1, 7, 11, 12
REFUSED = 1
# A protection domain.
DOMAIN = bytes([ALLOC_DOMAIN])


def text(value):
    return struct.pack("<H", len(value)) + value


def region(domain, size):
    """A region of so many bytes, with local writes, without a name."""
    return numbers(ALLOCATE, domain, size, 1) + text(b"")


def queue(depth):
    """A completion queue."""
    return numbers(CREATE_CQ, depth, 0, 7, 0)


def pair(domain, cq):
    """A reliable connection with 16 work requests in each queue."""
    sizes = numbers(16, 16, 1, 1, 0, 0, 1, 1024)
    flags = bytes([4, 4, 14, 7, 7, 12, 0, 0, 0])
    private_data, seconds, nanoseconds, lasting, qkey, fetching = 0, 1, 0, 0, 0, 0
    rest = numbers(private_data, seconds, nanoseconds, lasting, qkey, fetching)
    return numbers(CREATE_QP, domain, cq, cq, 0) + sizes + flags + rest


class Program:
    """An attachment. Descriptors of replies are closed: the memory stays the daemon's."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(20)
        self.socket.connect(path)

    def exchange(self, request):
        """The packet of the reply."""
        self.socket.send(request)
        try:
            packet, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 8)
        except ConnectionResetError:
            # A daemon that refuses hangs up: its reply is still there.
            packet, descriptors, _, _ = socket.recv_fds(self.socket, 4096, 8)
        for descriptor in descriptors:
            os.close(descriptor)
        return packet

    def ask(self, request):
        """The number in the reply; None: it was refused."""
        packet = self.exchange(request)
        return None if packet[0] == REFUSED else number(packet, 1)

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
