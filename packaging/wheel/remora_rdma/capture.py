"""Packets of the pcapng files that Remora records."""

import os
import struct
from typing import Iterator, NamedTuple, Union

SECTION = 0x0A0D0D0A
PACKET = 6


class Packet(NamedTuple):
    """A recorded packet."""

    interface: int
    """Number of the interface in the file."""
    frame: bytes
    """Bytes of the packet from its first header, as far as they were recorded."""
    length: int
    """Bytes of the packet on the wire."""


def packets(file: Union[str, "os.PathLike[str]"]) -> Iterator[Packet]:
    """Yields the packets of a pcapng file in order. The file may still grow: a block that is not whole ends it."""
    with open(file, "rb") as stream:
        order = "<"
        while True:
            head = stream.read(8)
            if len(head) < 8:
                return
            kind = struct.unpack("<I", head[:4])[0]
            if kind == SECTION:
                magic = stream.read(4)
                order = "<" if magic == b"\x4d\x3c\x2b\x1a" else ">"
                if magic not in (b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d"):
                    raise ValueError(f"{os.fspath(file)}: no pcapng file")
                stream.seek(-4, os.SEEK_CUR)
            elif stream.tell() == 8:
                raise ValueError(f"{os.fspath(file)}: no pcapng file")
            kind, total = struct.unpack(order + "II", head)
            body = stream.read(total - 8)
            if total < 12 or len(body) < total - 8:
                return
            if kind == PACKET:
                interface, _, _, kept, length = struct.unpack_from(order + "5I", body)
                yield Packet(interface, body[20 : 20 + kept], length)
