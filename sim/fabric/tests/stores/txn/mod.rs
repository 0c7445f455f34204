//! Transactions over several shards, by both designs: histories of clients under all mishaps, and money that
//! is moved.

mod histories;
mod protocol;
mod run;
mod smallbank;
