//! The table of `FaRM`, in which GETs are READs.

use std::path::Path;

use anyhow::Result;
use remora_store::kv::ClientConfig;
use remora_store::ycsb::record::{self, Values};

use super::{Args, Reads, Server, Store};
use remora_options::device::{PortArgs, PortName};
use remora_service::kv::{FarmDesign, KvSession as _, Session};

/// The command `remora serve kv` with its own NIC or with a daemon's.
pub(crate) struct Farm {
    server: Server,
    port: PortName,
    len: u32,
}

impl Farm {
    pub(crate) fn new(args: &Args, keeper: Option<&Path>) -> Result<Farm> {
        let mut words = vec!["serve", "kv", "--child"];
        let (option, value) = match keeper {
            Some(socket) => ("--nicd", socket.display().to_string()),
            None => ("--port", args.port.name().to_owned()),
        };
        if keeper.is_some() {
            words.extend(["--keep", "failure"]);
        }
        Ok(Farm { server: Server::new(args, &words, option, value)?, port: args.port, len: args.value_len })
    }
}

impl Store for Farm {
    fn start(&mut self) -> Result<()> {
        self.server.start()
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn client(&self) -> Reads {
        let port = PortArgs::plain(self.port);
        let address = self.server.address.to_string();
        let len = self.len;
        let mut session: Option<Session<FarmDesign>> = None;
        let mut expected = vec![0; len as usize];
        Box::new(move |record| {
            if session.is_none() {
                let context = port.open().ok();
                session = context
                    .and_then(|context| Session::connect(&context, &address, ClientConfig::default()).ok());
            }
            Values::fixed(len).fill(record, 0, &mut expected);
            let got = session.as_mut().map(|session| session.get(&record::key(record)));
            match got {
                Some(Ok(Some(value))) => value == expected,
                Some(Ok(None)) | None => false,
                Some(Err(_)) => {
                    session = None;
                    false
                }
            }
        })
    }
}
