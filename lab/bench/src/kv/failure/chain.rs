//! A table whose GETs a chain answers. The chain belongs to the NIC daemon, and the server only sets it up
//! (RedN, §5.6).

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use remora_chain::offload::ask;
use remora_store::ycsb::record::Values;
use remora_verbs::{
    Access, Call, CompletionKind, CompletionQueue, Device, EMPTY, Listener, MemoryRegion, QpOptions,
    QueuePair, ReceiveRequest, RemoteMemory, Status, work,
};

use super::{Args, Reads, Server, Store};
use remora_options::device::{LOOPBACK, PortName};
use remora_options::print;
use remora_store_cli::chains::loading::Loading;
use remora_store_cli::chains::table::{Table, telling};

/// The maximum time of an answer.
const LONG: Duration = Duration::from_secs(2);

fn table(args: &Args) -> Table {
    Table::new(args.records as usize, args.value_len as usize)
}

/// Runs the server. It adopts the resources of its predecessor or builds a table, and then loads a chain for
/// each client. It ends with its parent.
pub(crate) fn serve(args: &Args, socket: &Path, listen: SocketAddr) -> Result<()> {
    remora_options::ending::end_with_parent()?;
    let context = Device::nicd(socket).keep("chains").open()?;
    let mut kept = context.kept()?;
    let domain = match kept.domains.pop() {
        Some(domain) => domain,
        None => context.alloc_pd()?,
    };
    let memory = match kept.region("table") {
        Some(memory) => memory,
        None => {
            let table = table(args);
            let memory = domain.allocate_named("table", table.bytes(), Access::REMOTE_READ)?;
            let values = Values::fixed(args.value_len);
            table.fill(&memory, |record, value| {
                values.fill(record as u64, 0, value);
            })?;
            memory
        }
    };
    let listener = Listener::bind(listen)?;
    print::line("ready");
    let mut loading = Loading::new(&domain, &memory)?;
    let options = telling(&memory);
    loop {
        remora_host::wait_any(&[listener.as_fd(), loading.as_fd()], Duration::from_secs(1))?;
        loading.turn(&listener, &options)?;
    }
}

/// The chain under test. Its server is this program, started with other arguments.
pub(crate) struct Chain {
    server: Server,
    port: PortName,
    table: Arc<Table>,
    len: u32,
}

impl Chain {
    pub(crate) fn new(args: &Args, socket: &Path) -> Result<Chain> {
        let server = Server::new(args, &["bench", "failure"], "--serve", socket.display().to_string())?;
        Ok(Chain { server, port: args.port, table: Arc::new(table(args)), len: args.value_len })
    }
}

impl Store for Chain {
    fn start(&mut self) -> Result<()> {
        self.server.start()
    }

    fn kill(&mut self) {
        self.server.kill();
    }

    fn client(&self) -> Reads {
        let port = self.port;
        let address = self.server.address;
        let len = self.len;
        let table = Arc::clone(&self.table);
        let mut client: Option<Client> = None;
        let mut expected = vec![0; len as usize];
        Box::new(move |record| {
            if client.is_none() {
                client = Client::connect(port, address, len as usize).ok();
            }
            Values::fixed(len).fill(record, 0, &mut expected);
            match client.as_mut().map(|client| client.get(&table, record, &expected)) {
                Some(Ok(is_it)) => is_it,
                Some(Err(_)) => {
                    client = None;
                    false
                }
                None => false,
            }
        })
    }
}

/// A client that sends a key in a SEND; the chain WRITEs the value and a completion to it.
struct Client {
    pair: QueuePair,
    cq: CompletionQueue,
    /// Memory to which the chain writes the value.
    reply: MemoryRegion,
    there: RemoteMemory,
    value: Vec<u8>,
}

impl Client {
    fn connect(port: PortName, address: SocketAddr, len: usize) -> Result<Client> {
        let context = port.device_on(LOOPBACK, "")?.open()?;
        let domain = context.alloc_pd()?;
        let cq = context.create_cq(64)?;
        // The program's text allows values of up to 64 KiB.
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let reply = domain.allocate(1 << 16, access)?;
        let call = Call { program: "get".to_owned(), reply: reply.remote_memory() };
        let options = QpOptions { private_data: call.to_bytes(), ..QpOptions::default() };
        let pair = domain.create_qp(&cq, &cq, &options)?.connect(address)?;
        let there = RemoteMemory::from_bytes(pair.peer_private_data()).context("the table")?;
        Ok(Client { pair, cq, reply, there, value: vec![0; len] })
    }

    /// Looks up a record and returns whether the value is the expected one.
    fn get(&mut self, table: &Table, record: u64, expected: &[u8]) -> Result<bool> {
        let key = table.key(record as usize);
        self.reply.write(0, &[0; 8])?;
        self.pair.post_recv(&ReceiveRequest { id: 1, sges: &[] })?;
        let message = ask(self.there.addr + table.place(key) as u64, key);
        self.pair.post_send(&work::send_inline(2, &message))?;
        let mut done = [EMPTY; 1];
        while done[0].kind != CompletionKind::ReceiveWriteImm {
            self.cq.wait(&mut done, LONG)?;
            let status = done[0].status;
            ensure!(status == Status::Success, "a GET ended: {}", status.explain());
        }
        self.reply.read(0, &mut self.value)?;
        Ok(done[0].byte_len as usize == expected.len() && self.value == expected)
    }
}
