//! The program that the kernel runs on each frame that an interface receives. It redirects frames of our
//! own flows to our sockets, and passes all other frames on to the kernel.
//!
//! The program is so short that it is written here in the kernel's instructions (RFC 9669): Remora builds
//! without a compiler for BPF, and loads no object file. The address and the UDP port are known when the
//! program is loaded, so they are constants in it.

use remora_wire::{ethernet, ipv4, ipv6, udp};
use std::net::IpAddr;

/// An instruction in the kernel's format.
#[repr(C)]
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) struct Instruction {
    opcode: u8,
    /// Destination register in the low half, source register in the high half.
    registers: u8,
    offset: i16,
    immediate: i32,
}

/// Verdicts on a frame (`enum xdp_action`).
pub(super) const PASS: i32 = 2;
#[cfg(test)]
pub(super) const REDIRECT: i32 = 4;

/// The helper `bpf_redirect_map`, which passes the frame to the map's socket for a queue, or returns its
/// flags argument if there is none.
const REDIRECT_MAP: i32 = 51;

// Opcodes: class, source of the operand, size and mode in one byte.
const LOAD_BYTE: u8 = 0x71;
const LOAD_HALF: u8 = 0x69;
const LOAD_WORD: u8 = 0x61;
const LOAD_MAP: u8 = 0x18;
const MOVE: u8 = 0xbf;
const MOVE_IMMEDIATE: u8 = 0xb7;
const ADD_IMMEDIATE: u8 = 0x07;
const AND_IMMEDIATE: u8 = 0x57;
const JUMP_GREATER: u8 = 0x2d;
/// Compares the low 32 bits, so that the sign extension of the immediate does not matter.
const JUMP_NOT_EQUAL: u8 = 0x56;
const CALL: u8 = 0x85;
const EXIT: u8 = 0x95;

/// Value of the source register of `LOAD_MAP` whose immediate is a map's descriptor (`BPF_PSEUDO_MAP_FD`).
const BY_DESCRIPTOR: u8 = 1;

// Offsets in the context that the program is called with (`struct xdp_md`).
const DATA: i16 = 0;
const DATA_END: i16 = 4;
const QUEUE: i16 = 16;

const R0: u8 = 0;
const R1: u8 = 1;
const R2: u8 = 2;
const R3: u8 = 3;
const FRAME: u8 = 4;
const END: u8 = 5;
const VALUE: u8 = 0;

/// Placeholder for the distance of jumps to the end, for frames that are not ours; replaced when the
/// program is complete.
const TO_PASS: i16 = i16::MAX;

fn instruction(opcode: u8, destination: u8, source: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { opcode, registers: destination | source << 4, offset, immediate }
}

/// Emits code that loads from the frame, at an offset from its start, and continues only if the value (in
/// memory order) is the expected one.
struct Check<'a>(&'a mut Vec<Instruction>);

impl Check<'_> {
    fn load(&mut self, opcode: u8, offset: usize) {
        self.0.push(instruction(opcode, VALUE, FRAME, offset as i16, 0));
    }

    fn expect(&mut self, value: i32) {
        self.0.push(instruction(JUMP_NOT_EQUAL, VALUE, 0, TO_PASS, value));
    }

    fn byte(&mut self, offset: usize, expected: u8) {
        self.load(LOAD_BYTE, offset);
        self.expect(expected.into());
    }

    fn half(&mut self, offset: usize, expected: [u8; 2]) {
        self.load(LOAD_HALF, offset);
        self.expect(u16::from_ne_bytes(expected).into());
    }

    fn word(&mut self, offset: usize, expected: [u8; 4]) {
        self.load(LOAD_WORD, offset);
        self.expect(i32::from_ne_bytes(expected));
    }

    fn zero_bits(&mut self, offset: usize, mask: [u8; 2]) {
        self.load(LOAD_HALF, offset);
        let mask = u16::from_ne_bytes(mask).into();
        self.0.push(instruction(AND_IMMEDIATE, VALUE, 0, 0, mask));
        self.expect(0);
    }
}

/// Returns the program. UDP datagrams for this address and port, unfragmented and without IP options or
/// extension headers, go to the map's socket for the queue on which they arrived. Everything else passes to
/// the kernel, also on a queue without a socket.
pub(super) fn steer(address: IpAddr, udp_port: u16, map: i32) -> Vec<Instruction> {
    let ip_len = if address.is_ipv4() { ipv4::LEN } else { ipv6::LEN };
    let udp_at = ethernet::LEN + ip_len;
    let mut code = vec![
        instruction(LOAD_WORD, FRAME, R1, DATA, 0),
        instruction(LOAD_WORD, END, R1, DATA_END, 0),
        instruction(MOVE, R2, FRAME, 0, 0),
        instruction(ADD_IMMEDIATE, R2, 0, 0, (udp_at + udp::LEN) as i32),
        instruction(JUMP_GREATER, R2, END, TO_PASS, 0),
    ];
    let mut check = Check(&mut code);
    match address {
        IpAddr::V4(address) => {
            check.half(12, ethernet::TYPE_IPV4.to_be_bytes());
            // Version 4, and a header of five words.
            check.byte(14, 0x45);
            // "More fragments" and the fragment offset must be 0; "don't fragment" may be set.
            check.zero_bits(14 + 6, [0x3f, 0xff]);
            check.byte(14 + 9, ipv4::PROTOCOL_UDP);
            check.word(14 + 16, address.octets());
        }
        IpAddr::V6(address) => {
            check.half(12, ethernet::TYPE_IPV6.to_be_bytes());
            check.byte(14 + 6, ipv4::PROTOCOL_UDP);
            for (index, word) in address.octets().chunks_exact(4).enumerate() {
                check.word(14 + 24 + 4 * index, [word[0], word[1], word[2], word[3]]);
            }
        }
    }
    check.half(udp_at + 2, udp_port.to_be_bytes());
    code.extend([
        instruction(LOAD_WORD, R2, R1, QUEUE, 0),
        instruction(LOAD_MAP, R1, BY_DESCRIPTOR, 0, map),
        instruction(0, 0, 0, 0, 0),
        instruction(MOVE_IMMEDIATE, R3, 0, 0, PASS),
        instruction(CALL, 0, 0, 0, REDIRECT_MAP),
        instruction(EXIT, 0, 0, 0, 0),
    ]);
    let pass = code.len();
    for (index, jump) in code.iter_mut().enumerate().filter(|(_, jump)| jump.offset == TO_PASS) {
        // Jump distances count from the next instruction.
        jump.offset = (pass - index - 1) as i16;
    }
    code.extend([instruction(MOVE_IMMEDIATE, R0, 0, 0, PASS), instruction(EXIT, 0, 0, 0, 0)]);
    code
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_instructions_are_those_of_the_standard() {
        let code = steer("10.1.2.3".parse().unwrap(), 4791, 9);
        // SAFETY: an instruction is eight bytes of plain numbers without padding.
        let bytes = |one: &Instruction| unsafe { std::mem::transmute::<Instruction, [u8; 8]>(*one) };
        assert_eq!(bytes(&code[0]), [0x61, 0x14, 0, 0, 0, 0, 0, 0], "r4 = *(u32 *)(r1 + 0)");
        assert_eq!(bytes(&code[3]), [0x07, 0x02, 0, 0, 42, 0, 0, 0], "r2 += 42");
        assert_eq!(bytes(&code[5]), [0x69, 0x40, 12, 0, 0, 0, 0, 0], "r0 = *(u16 *)(r4 + 12)");
        assert_eq!(bytes(&code[6])[4..], [0x08, 0, 0, 0], "if w0 != 0x0800 in memory order");
        let call = code.iter().position(|one| one.opcode == CALL).unwrap();
        assert_eq!(bytes(&code[call - 3]), [0x18, 0x11, 0, 0, 9, 0, 0, 0], "r1 = map by descriptor 9");
        assert_eq!(bytes(&code[call]), [0x85, 0, 0, 0, 51, 0, 0, 0]);
    }

    #[test]
    fn every_jump_leads_to_the_last_two_instructions() {
        for address in ["10.1.2.3", "fd00::1"] {
            let code = steer(address.parse().unwrap(), 4791, 3);
            let pass = code.len() - 2;
            assert_eq!(code[pass], instruction(MOVE_IMMEDIATE, R0, 0, 0, PASS));
            let mut jumps = 0;
            for (index, one) in code.iter().enumerate() {
                if one.opcode == JUMP_GREATER || one.opcode == JUMP_NOT_EQUAL {
                    assert_eq!(index + 1 + one.offset as usize, pass);
                    jumps += 1;
                }
            }
            assert_eq!(jumps, if address.contains(':') { 8 } else { 7 });
        }
    }
}
