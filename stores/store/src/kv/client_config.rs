//! How large a client is, and where things lie in its memory.

use super::lookup::Lookup;
use super::rpc::HEADER;
use super::session::Hello;
use crate::region::Registered;
use crate::send_queue::{QueueNeeds, SendQueue};

/// Bytes from one slot's request to a kernel to the next one's.
pub(crate) const ASK_STRIDE: usize = 64;

/// How large a client is.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Operations in flight at most; 1 to 65535.
    pub window: u32,
    /// Longest key that it will use, in bytes.
    pub max_key: u32,
    /// Longest value that it will use, in bytes.
    pub max_value: u32,
    /// Bytes in a receive buffer: longer responses are written into a slot's buffer.
    pub eager: u32,
    /// Longest message that is handed to the queue inline; 0 for none.
    pub inline: u32,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig { window: 16, max_key: 256, max_value: 4096, eager: 1024, inline: 0 }
    }
}

impl ClientConfig {
    /// What its queue pair must hold.
    pub fn needs(&self) -> QueueNeeds {
        let send = SendQueue::depth_for(self.window);
        QueueNeeds { send, receive: self.window, sges: 1, completions: send + self.window }
    }

    /// Bytes of registered memory that it needs. The region must allow local and remote writes: long
    /// responses come as WRITEs.
    pub fn arena_len<L: Lookup>(&self) -> usize {
        let requests = if L::ASKS { self.window as usize * ASK_STRIDE } else { 0 };
        self.asks_at::<L>() + requests
    }

    /// The client's message to the server, given its memory.
    pub fn hello<L: Lookup>(&self, arena: &Registered) -> Hello {
        Hello {
            design: L::DESIGN,
            window: self.window,
            eager: self.eager,
            replies: arena.remote(),
            reply_stride: self.slot_stride::<L>() as u64,
            reply_len: self.buffer_len::<L>() as u32,
        }
    }

    /// Bytes in a slot's buffer: a request, a response, or what a lookup reads in one round trip.
    pub(crate) fn buffer_len<L: Lookup>(&self) -> usize {
        let (key, value) = (self.max_key as usize, self.max_value as usize);
        (HEADER + key + value).max(L::landing_len(key, value))
    }

    /// Bytes from one slot's buffer to the next one's.
    pub(crate) fn slot_stride<L: Lookup>(&self) -> usize {
        self.buffer_len::<L>().next_multiple_of(64)
    }

    /// Offset of the first receive buffer.
    pub(crate) fn receives_at<L: Lookup>(&self) -> usize {
        self.window as usize * self.slot_stride::<L>()
    }

    /// Offset of the first request to a kernel.
    pub(crate) fn asks_at<L: Lookup>(&self) -> usize {
        self.receives_at::<L>() + self.window as usize * self.receive_stride()
    }

    /// Bytes from one receive buffer to the next one.
    pub(crate) fn receive_stride(&self) -> usize {
        (self.eager as usize).next_multiple_of(64)
    }

    /// Are the numbers possible?
    pub(crate) fn is_sound(&self) -> bool {
        (1..=0xffff).contains(&self.window)
            && self.eager as usize >= HEADER
            && self.max_key as usize <= super::MAX_KEY
            && self.max_value as usize <= super::MAX_VALUE
    }
}
