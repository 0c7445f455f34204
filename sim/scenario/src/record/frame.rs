//! A captured frame.

/// A frame at a captured port.
#[derive(Copy, Clone, Debug)]
pub struct Frame<'a> {
    /// Simulated time in whole nanoseconds: of the first bit for a departure, of the last bit for an arrival.
    pub time_ns: u64,
    /// True if the frame leaves the node, false if it arrives there.
    pub leaves: bool,
    /// Contents of the frame.
    pub bytes: FrameBytes<'a>,
}

/// The contents of a frame.
#[derive(Copy, Clone, Debug)]
pub enum FrameBytes<'a> {
    /// A RoCE v2 packet from its IPv4 header on. The flag is false if the packet has no ICRC; its last four
    /// bytes are then undefined.
    Packet(&'a [u8], bool),
    /// A pause frame from its Ethernet header on, without FCS.
    Pause(&'a [u8]),
}
