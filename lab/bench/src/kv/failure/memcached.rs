//! A memcached server as one of the stores.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use remora_store::ycsb::record::{self, Values};

use super::super::rival::Rival;
use super::{Args, PATIENCE, Reads, Store, free_address};
use crate::testbed::process::Process;

/// A memcached server, which this type fills anew after each start.
pub(crate) struct Memcached {
    address: SocketAddr,
    records: u64,
    len: u32,
    running: Option<Process>,
}

impl Memcached {
    pub(crate) fn new(args: &Args) -> Result<Memcached> {
        let records = args.records;
        let len = args.value_len;
        Ok(Memcached { address: free_address()?, records, len, running: None })
    }
}

impl Store for Memcached {
    fn start(&mut self) -> Result<()> {
        let megabytes = self.records * (u64::from(self.len) + 200) / 1_000_000 + 64;
        let started = Process::start(&mut Rival::Memcached.command(self.address.port(), megabytes));
        self.running = Some(started.context("memcached is not installed: `make setup-bench` installs it")?);
        let began = Instant::now();
        let mut stream = loop {
            match TcpStream::connect(self.address) {
                Ok(stream) => break stream,
                Err(error) if began.elapsed() > PATIENCE => return Err(error).context("memcached"),
                Err(_) => sleep(Duration::from_millis(1)),
            }
        };
        let mut value = vec![0; self.len as usize];
        let mut command = Vec::new();
        for record in 0..self.records {
            Values::fixed(self.len).fill(record, 0, &mut value);
            let key = record::key(record);
            command.extend_from_slice(b"set ");
            command.extend_from_slice(&key);
            command.extend_from_slice(format!(" 0 0 {} noreply\r\n", value.len()).as_bytes());
            command.extend_from_slice(&value);
            command.extend_from_slice(b"\r\n");
            if command.len() > 1 << 16 {
                stream.write_all(&command)?;
                command.clear();
            }
        }
        // The answer to this command shows that all commands before it are done.
        command.extend_from_slice(b"version\r\n");
        stream.write_all(&command)?;
        stream.read_exact(&mut [0])?;
        Ok(())
    }

    fn kill(&mut self) {
        self.running = None;
    }

    fn client(&self) -> Reads {
        let address = self.address;
        let len = self.len;
        let mut stream: Option<TcpStream> = None;
        let mut expected = vec![0; len as usize];
        Box::new(move |record| {
            if stream.is_none() {
                stream = TcpStream::connect(address).ok();
            }
            Values::fixed(len).fill(record, 0, &mut expected);
            let got = stream.as_mut().map(|stream| fetch(stream, &record::key(record)));
            match got {
                Some(Ok(value)) => value == expected,
                Some(Err(_)) => {
                    stream = None;
                    false
                }
                None => false,
            }
        })
    }
}

/// Sends one GET and returns the value; the value is empty if the key does not exist.
fn fetch(stream: &mut TcpStream, key: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut command = Vec::new();
    Rival::Memcached.get(key, &mut command);
    Rival::Memcached.close(&mut command);
    stream.set_nodelay(true)?;
    stream.write_all(&command)?;
    let mut answer = Vec::new();
    let mut piece = [0; 4096];
    while !answer.ends_with(b"END\r\n") {
        match stream.read(&mut piece)? {
            0 => return Err(std::io::ErrorKind::UnexpectedEof.into()),
            got => answer.extend_from_slice(&piece[..got]),
        }
    }
    let line = answer.iter().position(|byte| *byte == b'\n').map_or(0, |index| index + 1);
    let value = answer.get(line..answer.len().saturating_sub(7)).unwrap_or_default();
    Ok(value.to_vec())
}
