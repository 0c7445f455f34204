//! Transactions over several shards, by both designs: histories of clients while everything goes wrong, and money that is moved.

mod histories;
mod protocol;
mod run;
mod smallbank;
