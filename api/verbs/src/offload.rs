//! Chain programs on a device: linked with real memory and queues, and started (RedN, §3.5).
//!
//! A server creates a queue pair for each client ([`ProtectionDomain::create_port`]) and connects it; the
//! client's connection request (a [`Call`]) may name the program. Then the server loads the program onto the
//! queue pair. From then on the client SENDs, and the server's NIC answers:
//!
//! ```
//! use remora_verbs::{Access, Device, EMPTY, Loader, QpOptions, QueuePair, ReceiveRequest, chain, work};
//!
//! // A program that returns the greater of two numbers.
//! let program = chain::assemble(
//!     "data numbers
//!          greater: word 0
//!      queue port managed
//!                   receive -> first.operand, second.operand
//!                   send greater
//!      queue main
//!                   wait port.received 1
//!                   enable work all
//!      queue work managed
//!          first:   max greater, 0
//!          second:  max greater, 0
//!                   enable port all fence",
//! )?;
//! let context = Device::shm().open()?;
//! let domain = context.alloc_pd()?;
//! let port = domain.create_port(&program, "port", &QpOptions::default())?;
//!
//! // The client, here in the same process.
//! let mut cq = context.create_cq(16)?;
//! let client = domain.create_qp(&cq, &cq, &QpOptions::default())?;
//! let (mut client, port) = QueuePair::connect_pair(client, port)?;
//! let offload = Loader::new(&program).connection("port", port).load(&domain)?;
//!
//! let memory = domain.allocate(64, Access::LOCAL_WRITE)?;
//! client.post_recv(&ReceiveRequest { id: 1, sges: &[memory.sge(16, 8)] })?;
//! memory.put(0, &[7_u64, 900])?;
//! client.post_send(&work::send(2, &[memory.sge(0, 16)]))?;
//! let (mut done, mut came) = ([EMPTY; 2], 0);
//! while came < 2 {
//!     came += cq.wait(&mut done[came..], std::time::Duration::from_secs(1))?;
//! }
//! assert_eq!((memory.get::<u64>(16)?, offload.word("greater")), (900, Some(900)));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use remora_chain::{Image, Location, Numbers, Program, Queue, QueueNumbers, Segment, layout, link};
use remora_memory::{Access, Bytes};
use remora_nic::{Fetching, ReceiveRequest};

use crate::code::{Placed, Section, Slots};
use crate::{
    CqOptions, CreateError, Init, MemoryRegion, PostError, ProtectionDomain, QpOptions, QueuePair,
    RemoteMemory,
};

/// A client's first message to its server, in [`QpOptions::private_data`]. It names the program that the
/// client wants and the client's memory for the answers. The client gives the server a key and gets none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// The name of the requested program, up to 200 bytes.
    pub program: String,
    /// The client's memory for the answers.
    pub reply: RemoteMemory,
}

impl Call {
    /// Encodes the message for use as private data.
    pub fn to_bytes(&self) -> Vec<u8> {
        [&self.reply.to_bytes()[..], self.program.as_bytes()].concat()
    }

    /// Parses private data. Returns `None` if it is not such a message.
    pub fn from_bytes(bytes: &[u8]) -> Option<Call> {
        let (reply, program) = bytes.split_at_checked(RemoteMemory::LEN)?;
        Some(Call {
            program: std::str::from_utf8(program).ok()?.into(),
            reply: RemoteMemory::from_bytes(reply)?,
        })
    }
}

/// Depth of a counted completion queue. Nobody polls it, so old completions may be overwritten.
const COMPLETIONS: u32 = 16;

/// The reason why a program cannot be loaded.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// An object could not be created.
    #[error("{0}")]
    Create(CreateError),
    /// A receive work request could not be posted.
    #[error("{0}")]
    Post(PostError),
    /// The program has no queue or region of this name, or the name belongs to another kind of object.
    #[error("the program has no such queue or region: `{0}`")]
    Unknown(String),
    /// No memory was bound to this region of the program.
    #[error("the region `{0}` has no memory: bind it by `Loader::region`")]
    NoRegion(String),
    /// A region is smaller than the program requires: its name, its size in bytes, and the required size.
    #[error("the region `{0}` has {1} bytes, and the program needs {2}")]
    SmallRegion(String, u64, u64),
    /// The queue pair bound to this queue does not have the attributes that the queue needs.
    #[error(
        "the queue pair for `{0}` has other slots, receives or fetching than the program needs: make it \
         by `create_port`"
    )]
    Unfit(String),
}

impl From<CreateError> for LoadError {
    fn from(error: CreateError) -> LoadError {
        LoadError::Create(error)
    }
}

impl From<PostError> for LoadError {
    fn from(error: PostError) -> LoadError {
        LoadError::Post(error)
    }
}

impl ProtectionDomain {
    /// Creates a queue pair for a client of a program, ready to be connected. It has the attributes of the
    /// program's queue `queue`, and counted completion queues of its own. The peer may only SEND: it has no
    /// access to memory.
    ///
    /// # Errors
    /// `Unknown` if the program has no such queue; otherwise the errors of
    /// [`create_qp`](ProtectionDomain::create_qp).
    pub fn create_port(
        &self,
        program: &Program,
        queue: &str,
        options: &QpOptions,
    ) -> Result<QueuePair<Init>, LoadError> {
        let queue = find(program, queue)?;
        let options = QpOptions { access: Access::NONE, ..shaped(queue, options) };
        let counted = CqOptions { depth: COMPLETIONS, counted: true, ..CqOptions::default() };
        let sent = self.context().create_cq_with(&counted)?;
        let received =
            self.context().create_cq_with(&CqOptions { engine: Some(sent.engine()), ..counted })?;
        Ok(self.create_qp(&sent, &received, &options)?)
    }
}

fn find<'p>(program: &'p Program, name: &str) -> Result<&'p Queue, LoadError> {
    let index = program.queue(name).ok_or_else(|| LoadError::Unknown(name.into()))?;
    Ok(&program.queues[index])
}

/// Returns the options of a queue pair that fits a program's queue.
fn shaped(queue: &Queue, options: &QpOptions) -> QpOptions {
    QpOptions {
        max_send_wr: queue.ring_slots(),
        max_recv_wr: queue.receives.len().max(1) as u32,
        max_recv_sge: queue.receive_pieces(),
        fetching: queue.fetching,
        ..options.clone()
    }
}

/// A program to be loaded, with the connections and memory that it is bound to.
#[derive(Debug)]
pub struct Loader<'p> {
    program: &'p Program,
    connections: Vec<(String, QueuePair)>,
    regions: Vec<(String, RemoteMemory)>,
    on_nic: bool,
}

impl<'p> Loader<'p> {
    /// Creates a loader without connections and regions.
    pub fn new(program: &'p Program) -> Loader<'p> {
        Loader { program, connections: Vec::new(), regions: Vec::new(), on_nic: false }
    }

    /// Binds a queue of the program to a connection, made by [`create_port`](ProtectionDomain::create_port).
    /// Every queue that is not bound becomes a loopback queue.
    #[must_use]
    pub fn connection(mut self, queue: &str, pair: QueuePair) -> Loader<'p> {
        self.connections.push((queue.into(), pair));
        self
    }

    /// Binds a region of the program to memory: the server's own, or a client's.
    ///
    /// If the chain reads the region by a local address, a client that can change the chain's work requests
    /// could make the chain write there. A key without `LOCAL_WRITE` prevents that.
    #[must_use]
    pub fn region(mut self, name: &str, memory: RemoteMemory) -> Loader<'p> {
        self.regions.push((name.into(), memory));
        self
    }

    /// Places the program's data in the NIC's own memory.
    #[must_use]
    pub fn data_on_nic(mut self) -> Loader<'p> {
        self.on_nic = true;
        self
    }

    /// Loads the program: creates its queues and its *code region*, links it, posts all work requests and
    /// rings each doorbell once.
    ///
    /// # Errors
    /// [`LoadError`]. Everything that was created is destroyed then, and the connections are dropped.
    pub fn load(mut self, domain: &ProtectionDomain) -> Result<Offload, LoadError> {
        let program = self.program;
        let mut numbers = layout(program);
        let queues = self.queues(domain)?;
        for ((pair, queue), numbers) in queues.iter().zip(&program.queues).zip(&mut numbers.queues) {
            if !fits(pair, queue) {
                return Err(LoadError::Unfit(queue.name.clone()));
            }
            let send_cq = pair.send_cq_number();
            let receive_cq = pair.receive_cq_number();
            *numbers = QueueNumbers { qp: pair.number(), send_cq, receive_cq, code: numbers.code };
        }
        let own = self.places(&mut numbers)?;
        let sections: Vec<Section> = own.iter().flatten().copied().collect();
        let slots: Vec<Slots<'_>> =
            queues.iter().zip(&numbers.queues).map(|(pair, numbers)| (pair, numbers.code)).collect();
        let (region, placed) = domain.create_code(&sections, &slots, self.on_nic)?;
        let mut placed = placed.into_iter();
        let data: Vec<Option<Placed>> = own.iter().map(|own| own.and_then(|_| placed.next())).collect();
        numbers.key = region.lkey().get();
        let image = link(program, &numbers);
        for (placed, content) in data.iter().zip(&image.sections) {
            if let Some((bytes, offset)) = placed {
                bytes
                    .write(*offset, content)
                    .map_err(|_| CreateError::Nic(remora_nic::NicError::TooSmall))?;
            }
        }
        let mut offload = Offload { queues, program: program.clone(), numbers, data, _region: region };
        offload.start(&image)?;
        Ok(offload)
    }

    fn queues(&mut self, domain: &ProtectionDomain) -> Result<Vec<QueuePair>, LoadError> {
        let stranger = |(name, _): &&(String, QueuePair)| self.program.queue(name).is_none();
        if let Some((name, _)) = self.connections.iter().find(stranger) {
            return Err(LoadError::Unknown(name.clone()));
        }
        let engine = self.connections.first().map_or(0, |(_, pair)| pair.engine());
        let counted =
            CqOptions { depth: COMPLETIONS, counted: true, engine: Some(engine), ..CqOptions::default() };
        let mut all = Vec::with_capacity(self.program.queues.len());
        for queue in &self.program.queues {
            if let Some(index) = self.connections.iter().position(|(name, _)| *name == queue.name) {
                all.push(self.connections.swap_remove(index).1);
                continue;
            }
            let sent = domain.context().create_cq_with(&counted)?;
            let received = domain.context().create_cq_with(&counted)?;
            all.push(domain.create_loopback(&sent, &received, &shaped(queue, &QpOptions::default()))?);
        }
        Ok(all)
    }

    /// Returns the program's own sections, in which bound regions are `None`, and enters the addresses and
    /// keys of the bound regions in `numbers`.
    fn places(&self, numbers: &mut Numbers) -> Result<Vec<Option<Section>>, LoadError> {
        let given =
            |name: &str| self.program.sections.iter().any(|section| section.given && section.name == name);
        if let Some((name, _)) = self.regions.iter().find(|(name, _)| !given(name)) {
            return Err(LoadError::Unknown(name.clone()));
        }
        let mut own = Vec::with_capacity(self.program.sections.len());
        for (index, section) in self.program.sections.iter().enumerate() {
            let len = section.bytes.len().max(8);
            if !section.given {
                own.push(Some(Section { len, iova: numbers.sections[index] }));
                continue;
            }
            let known = self.regions.iter().find(|(name, _)| *name == section.name);
            let (name, memory) = known.ok_or_else(|| LoadError::NoRegion(section.name.clone()))?;
            if memory.len < len as u64 {
                return Err(LoadError::SmallRegion(name.clone(), memory.len, len as u64));
            }
            (numbers.sections[index], numbers.regions[index]) = (memory.addr, Some(memory.rkey.get()));
            own.push(None);
        }
        Ok(own)
    }
}

/// Returns whether a queue pair has the attributes that the program's queue needs.
fn fits(pair: &QueuePair, queue: &Queue) -> bool {
    let (slots, receives, pieces) = pair.shape();
    let needed = queue.receives.len() as u64;
    let recycled = queue.fetching == Fetching::Recycled;
    let long_enough = if recycled { slots == u64::from(queue.ring_slots()) } else { slots >= queue.posted() };
    let full = if queue.recycles_receives() { receives == needed } else { receives >= needed };
    pair.fetching() == queue.fetching
        && long_enough
        && full
        && (needed == 0 || pieces >= queue.receive_pieces())
}

/// A loaded program. Dropping it unloads the program and ends its connections.
#[derive(Debug)]
pub struct Offload {
    // Dropped before the region that the work requests name.
    queues: Vec<QueuePair>,
    program: Program,
    numbers: Numbers,
    data: Vec<Option<Placed>>,
    _region: MemoryRegion,
}

impl Offload {
    /// Writes all memory and queues before it rings the first doorbell, and before it posts receives that
    /// messages could consume.
    fn start(&mut self, image: &Image) -> Result<(), LoadError> {
        for ((pair, queue), slots) in self.queues.iter_mut().zip(&self.program.queues).zip(&image.queues) {
            if !pair.put_slots(slots) {
                return Err(LoadError::Unfit(queue.name.clone()));
            }
        }
        for (pair, queue) in self.queues.iter_mut().zip(&self.program.queues) {
            pair.start(queue.enabled)?;
        }
        let receives = self.queues.iter_mut().zip(&self.program.queues).zip(&image.receives);
        for ((pair, queue), receives) in receives {
            for (id, sges) in receives.iter().enumerate() {
                pair.post_recv(&ReceiveRequest { id: id as u64, sges })?;
            }
            if queue.recycles_receives() {
                pair.recycle_receives()?;
            }
        }
        Ok(())
    }

    /// The loaded program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The addresses, keys and queue numbers that the program was linked with.
    pub fn numbers(&self) -> &Numbers {
        &self.numbers
    }

    /// Returns the queue pair of the program's queue `name`, or `None` if there is no such queue.
    pub fn queue(&self, name: &str) -> Option<&QueuePair> {
        Some(&self.queues[self.program.queue(name)?])
    }

    /// Reads `len` bytes of the program's own data or code. `None` beyond the end, or in a bound region.
    pub fn read(&self, location: Location, len: usize) -> Option<Vec<u8>> {
        let (bytes, base) = self.bytes(location)?;
        let mut out = vec![0; len];
        bytes.read(base + location.offset as usize, &mut out).ok()?;
        Some(out)
    }

    /// Writes to the program's own data or code, which may change while the program runs. Returns false if
    /// `location` and the length are not within one section or queue.
    pub fn write(&self, location: Location, content: &[u8]) -> bool {
        self.bytes(location)
            .is_some_and(|(bytes, base)| bytes.write(base + location.offset as usize, content).is_ok())
    }

    fn bytes(&self, location: Location) -> Option<(Bytes, usize)> {
        match location.segment {
            Segment::Section(number) => self.data.get(number)?.clone(),
            Segment::Queue(number) => {
                let code = self.queues.get(number)?.code();
                Some((code.bytes, code.offset))
            }
        }
    }

    /// Returns the word of this name in the program's own data, or `None` if there is none.
    pub fn word(&self, name: &str) -> Option<u64> {
        let (location, _) = self.program.find(name)?;
        self.read(location, 8).and_then(|bytes| Some(u64::from_le_bytes(bytes.try_into().ok()?)))
    }

    /// Sets the word of this name. Returns false if there is none.
    pub fn set_word(&self, name: &str, value: u64) -> bool {
        let location = self.program.find(name);
        location.is_some_and(|(location, _)| self.write(location, &value.to_le_bytes()))
    }
}
