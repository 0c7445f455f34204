"""Integers of more than 8 bits in the control messages of the broker and the NIC daemon (system/host/src/codec.rs)."""


def numbers(*values):
    """Integers in postcard's format: 7 bits in each byte, the low ones first."""
    out = bytearray()
    for value in values:
        while value > 0x7F:
            out.append(value & 0x7F | 0x80)
            value >>= 7
        out.append(value)
    return bytes(out)


def number(packet, at):
    """The integer at this offset."""
    value = shift = 0
    while packet[at] & 0x80:
        value |= (packet[at] & 0x7F) << shift
        shift += 7
        at += 1
    return value | packet[at] << shift


def skip(packet, at):
    """The offset behind the integer at this offset."""
    while packet[at] & 0x80:
        at += 1
    return at + 1
