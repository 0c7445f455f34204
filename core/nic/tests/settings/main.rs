//! Settings of a NIC that experiments need and of which no default shows.
#![cfg(not(miri))]

mod bed;
mod classes;
mod marks;
mod recovery;
mod turns;
