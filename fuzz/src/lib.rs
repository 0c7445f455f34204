//! What the fuzzers that need a whole NIC share: a small world, memory with guards, and players that misbehave.
//!
//! An input is a [`play::Play`] or a [`rings::Play`]: what the world is like, and moves. Every input gets a world of its own,
//! so that one input alone always does the same. [`estate`] has the memory and says what may change in it, [`cast`] the
//! queue pairs and what must come out of them, [`place`] and [`crafted`] the addresses and packets that a rude peer makes up.

pub mod cast;
pub mod crafted;
pub mod estate;
pub mod place;
pub mod play;
pub mod rings;
