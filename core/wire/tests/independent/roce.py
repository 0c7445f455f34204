"""Reads a capture with scapy's RoCE layer and prints a line for each frame: the fields of its BTH, and the ICRC
that scapy computes. Also, whether the frame that scapy builds with that ICRC is the same, byte for byte."""

import sys

from scapy.compat import raw
from scapy.contrib.roce import BTH
from scapy.layers.l2 import Ether
from scapy.utils import RawPcapReader

FIELDS = (
    "opcode solicited migreq padcount version pkey fecn becn resv6 dqpn ackreq resv7 psn".split()
)

for frame, _ in RawPcapReader(sys.argv[1]):
    packet = Ether(frame)
    bth = packet[BTH]
    fields = [int(bth.getfieldval(name)) for name in FIELDS]
    # Without a value, scapy computes it when the frame is built; raw_packet_cache would return the old bytes.
    bth.icrc = None
    built = raw(packet)
    print(*fields, built[-4:].hex(), "same" if built == frame else "other")
