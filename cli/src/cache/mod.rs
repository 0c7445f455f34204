//! `remora serve cache`: memcached's text protocol over TCP.

mod connection;
pub mod serve;
