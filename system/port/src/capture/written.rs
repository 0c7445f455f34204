//! A capture file for frames whose owner knows their times, such as a simulation: without a thread and
//! without loss.

use std::io::{self, Write};

use remora_wire::ethernet;
use remora_wire::frame::Start;

use super::ethernet::MAX_HEADERS;
use super::pcapng::{self, PacketDirection};
use super::wrapper::with_pieces;

/// A pcapng file of one Ethernet interface, written block by block.
#[derive(Debug)]
pub struct FrameFile<W: Write> {
    file: W,
    block: Vec<u8>,
    bytes: u64,
    seen: u64,
    last_ns: u64,
}

impl<W: Write> FrameFile<W> {
    /// Begins a file for an interface of this name.
    ///
    /// # Errors
    /// The error of writing the file's first bytes.
    pub fn new(mut file: W, interface: &str) -> io::Result<FrameFile<W>> {
        let opening = pcapng::opening(interface, "");
        file.write_all(&opening)?;
        Ok(FrameFile { file, block: Vec::new(), bytes: opening.len() as u64, seen: 0, last_ns: 0 })
    }

    /// Adds a packet that begins at its IP header, with a timestamp in nanoseconds. If `sealed` is true,
    /// the packet contains its ICRC; otherwise its last four bytes are replaced by the ICRC.
    ///
    /// # Errors
    /// The error of writing to the file.
    pub fn packet(
        &mut self,
        time_ns: u64,
        direction: PacketDirection,
        sealed: bool,
        packet: &[u8],
    ) -> io::Result<()> {
        let mut headers = [0; MAX_HEADERS];
        with_pieces(Start::Ip, sealed, None, packet, &mut headers, |pieces| {
            self.block.clear();
            pcapng::packet(&mut self.block, time_ns, direction, pieces);
        });
        self.append(time_ns)
    }

    /// Adds an Ethernet frame, which is given without its frame check sequence.
    ///
    /// # Errors
    /// The error of writing to the file.
    pub fn frame(&mut self, time_ns: u64, direction: PacketDirection, frame: &[u8]) -> io::Result<()> {
        self.block.clear();
        pcapng::packet(&mut self.block, time_ns, direction, &[frame]);
        self.append(time_ns)
    }

    fn append(&mut self, time_ns: u64) -> io::Result<()> {
        self.file.write_all(&self.block)?;
        self.bytes += self.block.len() as u64;
        self.seen += 1;
        self.last_ns = time_ns;
        Ok(())
    }

    /// Returns the size in bytes that the file would have after adding a packet of `packet` bytes, counted
    /// from its IP header.
    pub fn bytes_with(&self, packet: usize) -> u64 {
        self.bytes + pcapng::packet_len(ethernet::LEN + packet) as u64
    }

    /// Returns the number of frames in the file.
    pub fn frames(&self) -> u64 {
        self.seen
    }

    /// Flushes the file.
    ///
    /// # Errors
    /// The error of writing to the file.
    pub fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }

    /// Writes the last block, which records that `missing` frames are not in the file.
    ///
    /// # Errors
    /// The error of writing to the file.
    pub fn finish(mut self, missing: u64) -> io::Result<()> {
        self.file.write_all(&pcapng::closing(self.last_ns, self.seen + missing, missing))?;
        self.file.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_of_two_frames_says_how_many_bytes_it_has_and_how_many_frames_it_lacks() {
        let mut bytes = Vec::new();
        let mut file = FrameFile::new(&mut bytes, "130:1").unwrap();
        let more = file.bytes_with(60 - ethernet::LEN) - file.bytes;
        file.frame(7, PacketDirection::In, &[0xaa; 60]).unwrap();
        file.frame(9, PacketDirection::Out, &[0xbb; 60]).unwrap();
        let written = file.bytes;
        assert_eq!(file.frames(), 2);
        file.finish(3).unwrap();
        assert_eq!(written, pcapng::opening("130:1", "").len() as u64 + 2 * more);
        assert_eq!(bytes[written as usize..], pcapng::closing(9, 5, 3));
    }
}
