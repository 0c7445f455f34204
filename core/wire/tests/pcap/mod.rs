//! Captures of Ethernet frames. Reads files of tcpdump (pcap) and dumpcap (pcapng) from little-endian
//! machines, and writes pcap. Panics on any other input, because the tests supply the files.

const PCAP: u32 = 0xa1b2_c3d4;
const PCAPNG: u32 = 0x0a0d_0d0a;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const ETHERNET: u32 = 1;

fn word(bytes: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap())
}

/// Returns the frame whose captured and original lengths are at `offset`, followed by its bytes.
fn whole_frame(record: &[u8], offset: usize) -> Vec<u8> {
    let captured = word(record, offset);
    let original = word(record, offset + 4);
    assert_eq!(captured, original, "no frame was cut when it was recorded");
    record[offset + 8..offset + 8 + captured as usize].to_vec()
}

/// Returns the frames of a capture.
#[allow(dead_code, reason = "of the two tests that have this module, one only writes")]
pub(crate) fn read(file: &[u8]) -> Vec<Vec<u8>> {
    match word(file, 0) {
        PCAP => read_pcap(file),
        PCAPNG => read_pcapng(file),
        magic => panic!("neither pcap nor pcapng: {magic:#x}"),
    }
}

/// Parses a header of 24 bytes and records of 16 bytes, each followed by a frame.
fn read_pcap(file: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(word(file, 20), ETHERNET, "frames begin at Ethernet");
    let mut frames = Vec::new();
    let mut rest = &file[24..];
    while !rest.is_empty() {
        let frame = whole_frame(rest, 8);
        rest = &rest[16 + frame.len()..];
        frames.push(frame);
    }
    frames
}

/// Parses blocks of type, length, body and repeated length.
fn read_pcapng(file: &[u8]) -> Vec<Vec<u8>> {
    assert_eq!(word(file, 8), BYTE_ORDER, "written by a little-endian machine");
    let mut frames = Vec::new();
    let mut rest = file;
    while !rest.is_empty() {
        let block = word(rest, 0);
        let len = word(rest, 4) as usize;
        match block {
            INTERFACE => assert_eq!(word(rest, 8) & 0xffff, ETHERNET, "frames begin at Ethernet"),
            ENHANCED_PACKET => frames.push(whole_frame(rest, 20)),
            _ => {}
        }
        rest = &rest[len..];
    }
    frames
}

/// Returns a pcap file of these frames at intervals of one microsecond.
#[allow(dead_code, reason = "of the two tests that have this module, one only reads")]
pub(crate) fn write(frames: &[Vec<u8>]) -> Vec<u8> {
    let mut file = Vec::new();
    for header in [PCAP, 4 << 16 | 2, 0, 0, 262_144, ETHERNET] {
        file.extend_from_slice(&header.to_le_bytes());
    }
    for (index, frame) in frames.iter().enumerate() {
        for field in [0, index as u32, frame.len() as u32, frame.len() as u32] {
            file.extend_from_slice(&field.to_le_bytes());
        }
        file.extend_from_slice(frame);
    }
    file
}
