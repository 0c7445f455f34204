//! The memory of one node: regions with different rights, guards around each, and a record of the bytes that
//! may change.

use std::ops::Range;

use remora_fabric::{ALL, REMOTE, Region, World};
use remora_memory::{Access, Bytes, Key};
use remora_nic::{Remote, Sge};

/// The number of bytes before and after each region that belong to no region.
const GUARD: usize = 64;
/// The byte in memory that no peer may read. No input contains it, so a frame with a row of them shows a
/// leak.
pub const SECRET: u8 = 0xc5;
/// The byte in other memory.
const PLAIN: u8 = 0x11;
/// The number of secret bytes in a row that prove a leak, because the four bytes of an ICRC can be secret
/// bytes by chance. A run of 15 secret bytes always contains such a row.
const LEAK: usize = 8;

/// The part of the framed region to which the window is bound.
pub const FRAME: Range<usize> = 64..128;
/// The offset of the bytes that honest work requests send, in the program's own region.
pub const SOURCE: usize = 0;
/// The size in bytes of each slot for an honest receive or for the data of an honest READ.
pub const SLOT: usize = 512;
/// The maximum numbers of receives and of READs of a node.
pub const SLOTS: usize = 8;
const RECEIVES: usize = 2048;
const SINKS: usize = RECEIVES + SLOTS * SLOT;
const SPARE: usize = SINKS + SLOTS * SLOT;

/// A region, named by its owner and rights.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Name {
    /// The program's own region, which its work requests use.
    Own,
    /// A region in which peers may do everything.
    Open,
    /// A region that peers may read.
    Readable,
    /// A region that peers may write and not read.
    Writable,
    /// A region without access for peers.
    Private,
    /// A region like [`Name::Open`] in another protection domain.
    Foreign,
    /// A region that peers may access only through a window.
    Framed,
}

const NAMES: [Name; 7] =
    [Name::Own, Name::Open, Name::Readable, Name::Writable, Name::Private, Name::Foreign, Name::Framed];

impl Name {
    fn len(self) -> usize {
        if self == Name::Own { SPARE + SLOT } else { 1024 }
    }

    fn access(self) -> Access {
        match self {
            Name::Own | Name::Private => Access::LOCAL_WRITE,
            Name::Open | Name::Foreign => ALL,
            Name::Readable => Access::REMOTE_READ,
            Name::Writable => Access::LOCAL_WRITE | Access::REMOTE_WRITE,
            Name::Framed => Access::LOCAL_WRITE | Access::MW_BIND,
        }
    }
}

/// A region between two guards.
#[derive(Debug)]
pub struct GuardedRegion {
    name: Name,
    /// The local and remote key of the region.
    pub key: Key,
    /// The address of its first byte.
    pub address: u64,
    bytes: Bytes,
    /// The initial contents, guards included.
    image: Vec<u8>,
    may_change: Vec<Range<usize>>,
}

impl GuardedRegion {
    /// Returns the length of the region in bytes.
    pub fn len(&self) -> u64 {
        self.name.len() as u64
    }
}

/// The regions of one node.
#[derive(Debug)]
pub struct NodeMemory {
    node: usize,
    regions: Vec<GuardedRegion>,
    receives: usize,
    sinks: usize,
}

impl NodeMemory {
    /// Creates the regions of `node`. The `guarded` regions and all guards are filled with secret bytes.
    pub fn new(world: &World, node: usize, guarded: &[Name]) -> NodeMemory {
        let foreign = world.table(node).alloc_pd().expect("a second protection domain");
        let region = |(place, name): (usize, &Name)| {
            let bytes = Bytes::heap(name.len() + 2 * GUARD).expect("memory for a region");
            let fill = if guarded.contains(name) { SECRET } else { PLAIN };
            let mut image = vec![SECRET; bytes.len()];
            image[GUARD..GUARD + name.len()].fill(fill);
            if *name == Name::Framed {
                image[GUARD + FRAME.start..GUARD + FRAME.end].fill(PLAIN);
            }
            bytes.write(0, &image).expect("the whole buffer is accessible");
            let pd = if *name == Name::Foreign { foreign } else { world.pd(node) };
            let address = (place as u64 + 1) << 36;
            let range =
                remora_memory::Range { bytes: bytes.clone(), offset: GUARD, len: name.len(), iova: address };
            let key = world.table(node).register(pd, &[range], name.access()).expect("space for a region");
            GuardedRegion { name: *name, key, address, bytes, image, may_change: Vec::new() }
        };
        NodeMemory { node, regions: NAMES.iter().enumerate().map(region).collect(), receives: 0, sinks: 0 }
    }

    /// Returns the region of the given name.
    pub fn guarded(&self, name: Name) -> &GuardedRegion {
        &self.regions[NAMES.iter().position(|other| *other == name).expect("every name has a region")]
    }

    /// Returns the region that the number selects; every number is valid.
    pub fn any(&self, number: u8) -> &GuardedRegion {
        &self.regions[usize::from(number) % self.regions.len()]
    }

    /// Allows bytes of a region to change from now on.
    pub fn allow(&mut self, name: Name, range: Range<usize>) {
        let region =
            self.regions.iter_mut().find(|region| region.name == name).expect("every name has a region");
        region.may_change.push(range);
    }

    /// Allows the changes that peers can make with the connection's rights.
    pub fn allow_peers(&mut self, rights: Access) {
        let writes = rights.contains(Access::REMOTE_WRITE);
        if writes {
            self.allow(Name::Writable, 0..Name::Writable.len());
        }
        if writes || rights.contains(Access::REMOTE_ATOMIC) {
            self.allow(Name::Open, 0..Name::Open.len());
            self.allow(Name::Framed, FRAME);
        }
    }

    /// Allows the changes that the node's own program can cause by any work request.
    pub fn allow_program(&mut self) {
        for name in NAMES.into_iter().filter(|name| *name != Name::Foreign) {
            if name.access().contains(Access::LOCAL_WRITE) {
                self.allow(name, 0..name.len());
            }
        }
    }

    /// Returns memory for an honest receive of `len` bytes, at most [`SLOT`]. Returns `None` after [`SLOTS`]
    /// calls.
    pub fn receive(&mut self, len: usize) -> Option<Sge> {
        let at = RECEIVES + self.receives * SLOT;
        self.receives += 1;
        (self.receives <= SLOTS).then(|| self.lend(at, len))
    }

    /// Returns memory for the data of an honest READ or atomic, or `None` after [`SLOTS`] calls.
    pub fn sink(&mut self, len: usize) -> Option<Sge> {
        let at = SINKS + self.sinks * SLOT;
        self.sinks += 1;
        (self.sinks <= SLOTS).then(|| self.lend(at, len))
    }

    /// Returns memory for one more receive.
    pub fn spare(&mut self) -> Sge {
        self.lend(SPARE, SLOT)
    }

    fn lend(&mut self, at: usize, len: usize) -> Sge {
        self.allow(Name::Own, at..at + len);
        self.own(at, len)
    }

    /// Returns a list element in the program's own region.
    pub fn own(&self, at: usize, len: usize) -> Sge {
        let region = self.guarded(Name::Own);
        Sge { addr: region.address + at as u64, len: len as u32, lkey: region.key }
    }

    /// Returns an address in the open region, for use by a peer.
    pub fn open(&self, at: usize) -> Remote {
        let region = self.guarded(Name::Open);
        Remote { addr: region.address + at as u64, rkey: region.key }
    }

    /// Changes bytes of a region, as the node's program does.
    pub fn store(&mut self, name: Name, at: usize, bytes: &[u8]) {
        self.guarded(name).bytes.write(GUARD + at, bytes).expect("within the region");
        self.allow(name, at..at + bytes.len());
    }

    /// Reads bytes of a region.
    pub fn load(&self, name: Name, at: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.guarded(name).bytes.read(GUARD + at, &mut bytes).expect("within the region");
        bytes
    }

    /// Returns the region in the fabric's type.
    pub fn region(&self, name: Name) -> Region {
        let GuardedRegion { key, address, bytes, .. } = self.guarded(name);
        Region { node: self.node, key: *key, address: *address, bytes: bytes.clone() }
    }

    /// Checks that the memory which peers may read holds no secret bytes.
    ///
    /// # Panics
    /// Panics if the memory holds a row of secret bytes.
    pub fn check_readable(&self) {
        for name in [Name::Open, Name::Readable] {
            let bytes = self.load(name, 0, name.len());
            assert!(!leaks(&bytes), "{name:?} of node {} contains secret bytes", self.node);
        }
    }

    /// Checks that only allowed bytes have changed.
    ///
    /// # Panics
    /// Panics if another byte has changed.
    pub fn check(&self) {
        for region in &self.regions {
            let mut bytes = vec![0; region.bytes.len()];
            region.bytes.read(0, &mut bytes).expect("the whole buffer is accessible");
            for range in &region.may_change {
                let range = GUARD + range.start..GUARD + range.end;
                bytes[range.clone()].copy_from_slice(&region.image[range]);
            }
            // The first comparison covers the whole region, because the fuzzer instruments every comparison.
            if bytes != region.image {
                let changed = bytes.iter().zip(&region.image).position(|(now, before)| now != before);
                let at = changed.map(|at| at as isize - GUARD as isize);
                panic!("byte {at:?} of {:?} of node {} changed", region.name, self.node);
            }
        }
    }
}

/// Returns the rights of a connection that three bits select.
pub fn rights(bits: u8) -> Access {
    Access::from_bits(u32::from(bits) << 1 & REMOTE.bits()).expect("rights of peers")
}

/// Returns true if the frame contains a row of secret bytes.
pub fn leaks(frame: &[u8]) -> bool {
    frame.chunks_exact(LEAK).any(|chunk| chunk == [SECRET; LEAK])
}

/// Replaces the secret byte in bytes of an input.
pub fn harmless(bytes: &mut [u8]) {
    for byte in bytes.iter_mut().filter(|byte| **byte == SECRET) {
        *byte = !SECRET;
    }
}
