//! The configuration of a client, and the layout of its memory.

use super::lookup::Lookup;
use super::rpc::HEADER;
use super::session::Hello;
use crate::region::Registered;
use crate::send_queue::{QueueNeeds, SendQueue};

/// Bytes from one slot's kernel request to the next slot's.
pub(crate) const ASK_STRIDE: usize = 64;

/// The configuration of a client.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct ClientConfig {
    /// Maximum number of operations in flight: 1 to 65535.
    pub window: u32,
    /// Maximum key length in bytes.
    pub max_key: u32,
    /// Maximum value length in bytes.
    pub max_value: u32,
    /// Bytes of a receive buffer. Longer responses are written to a slot's buffer.
    pub eager: u32,
    /// Maximum length of a message that is posted inline; 0 for none.
    pub inline: u32,
}

impl Default for ClientConfig {
    fn default() -> ClientConfig {
        ClientConfig { window: 16, max_key: 256, max_value: 4096, eager: 1024, inline: 0 }
    }
}

impl ClientConfig {
    /// Returns the sizes that the client's queue pair needs.
    pub fn needs(&self) -> QueueNeeds {
        let send = SendQueue::depth_for(self.window);
        QueueNeeds { send, receive: self.window, sges: 1, completions: send + self.window }
    }

    /// Returns the bytes of registered memory that the client needs. The region must allow local and remote
    /// writes, because the server WRITEs long responses.
    pub fn arena_len<L: Lookup>(&self) -> usize {
        let requests = if L::ASKS { self.window as usize * ASK_STRIDE } else { 0 };
        self.asks_at::<L>() + requests
    }

    /// Returns the client's first message to the server, for a client with this memory.
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

    /// Returns the bytes of a slot's buffer: a request, a response, or what a lookup reads in one round
    /// trip.
    pub(crate) fn buffer_len<L: Lookup>(&self) -> usize {
        let key = self.max_key as usize;
        let value = self.max_value as usize;
        (HEADER + key + value).max(L::landing_len(key, value))
    }

    /// Returns the bytes from one slot's buffer to the next.
    pub(crate) fn slot_stride<L: Lookup>(&self) -> usize {
        self.buffer_len::<L>().next_multiple_of(64)
    }

    /// Returns the offset of the first receive buffer.
    pub(crate) fn receives_at<L: Lookup>(&self) -> usize {
        self.window as usize * self.slot_stride::<L>()
    }

    /// Returns the offset of the first kernel request.
    pub(crate) fn asks_at<L: Lookup>(&self) -> usize {
        self.receives_at::<L>() + self.window as usize * self.receive_stride()
    }

    /// Returns the bytes from one receive buffer to the next.
    pub(crate) fn receive_stride(&self) -> usize {
        (self.eager as usize).next_multiple_of(64)
    }

    /// Returns true if the configuration is valid.
    pub(crate) fn is_sound(&self) -> bool {
        (1..=0xffff).contains(&self.window)
            && self.eager as usize >= HEADER
            && self.max_key as usize <= super::MAX_KEY
            && self.max_value as usize <= super::MAX_VALUE
    }
}
