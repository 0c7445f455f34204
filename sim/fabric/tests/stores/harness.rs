//! Servers and clients of the stores in a simulated world: they post, poll, join, die, crash and restart.

use remora_fabric::{ALL, CompletionQueue, FreeList, QueuePair, Region, Settings, World};
use remora_nic::{Command, PostError, ReceiveRequest, Sge, Status, WorkCompletion, WorkRequest, prism};
use remora_store::heap::{Class, Classes, Keeper, KeeperConfig, Lists, Peer, Reachable};
use remora_store::{Broken, Connections, Post, PostPrism, Registered};
use remora_transport::state::State;

/// A queue pair in the world, as the stores' state machines see it.
pub(crate) struct Endpoint<'a> {
    pub world: &'a mut World,
    pub qp: QueuePair,
}

impl Post for Endpoint<'_> {
    fn post_send(&mut self, request: &WorkRequest<'_>) -> Result<(), PostError> {
        self.world.post(self.qp, request)
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.world.post_receive(self.qp, request)
    }
}

impl PostPrism for Endpoint<'_> {
    fn post_prism(&mut self, request: &prism::WorkRequest<'_>) -> Result<(), PostError> {
        self.world.post_prism(self.qp, request)?;
        self.world.ring(self.qp);
        Ok(())
    }
}

/// The queue pairs of a client, one per server.
pub(crate) struct Endpoints<'a> {
    pub world: &'a mut World,
    pub links: &'a [Link],
}

impl Connections for Endpoints<'_> {
    type Endpoint<'a>
        = Endpoint<'a>
    where
        Self: 'a;

    fn endpoint(&mut self, server: usize) -> Endpoint<'_> {
        Endpoint { world: self.world, qp: self.links[server].qp }
    }
}

/// The client's end of a connection.
#[derive(Copy, Clone, Debug)]
pub(crate) struct Link {
    pub qp: QueuePair,
    pub cq: CompletionQueue,
    /// Queue pair of the server.
    pub far: QueuePair,
}

impl Link {
    /// Returns the next completion.
    pub(crate) fn poll(&self, world: &mut World) -> Option<WorkCompletion> {
        world.poll(self.cq)
    }

    /// Ends the connection because the client is dead or gives it up: its NIC sends nothing more on it.
    pub(crate) fn end(&self, world: &mut World) {
        end(world, self.qp);
        while world.poll(self.cq).is_some() {}
    }
}

/// Ends a queue pair. Posted work requests are flushed, and their completions are not polled.
pub(crate) fn end(world: &mut World, qp: QueuePair) {
    world.bring(qp, State::Err);
    world.ask::<()>(qp.node, Command::DestroyQp(qp.number)).expect("a queue pair that is there");
}

/// The free lists of a server.
struct WorldLists<'a> {
    world: &'a mut World,
    lists: &'a mut [FreeList],
}

impl Lists for WorldLists<'_> {
    fn post_buffer(&mut self, class: &Class, address: u64) -> Result<(), PostError> {
        let list =
            self.lists.iter_mut().find(|list| list.number == class.list).expect("a list of this server");
        self.world.post_buffer(list, address)
    }

    fn out(&mut self, class: &Class, first: u32, bits: &mut [u64]) {
        let list = self.lists.iter().find(|list| list.number == class.list).expect("a list of this server");
        let command = Command::FindBuffers { list: list.number, first, words: bits.len() as u32 };
        bits.copy_from_slice(&self.world.ask::<Vec<u64>>(list.node, command).expect("the free list exists"));
    }
}

/// A connection, as the server sees it.
struct Connection {
    qp: QueuePair,
    cq: CompletionQueue,
    peer: Peer,
}

/// A server: one memory region, whose start is the table and whose rest are the buffers, and a keeper.
pub(crate) struct Host<T> {
    pub node: usize,
    pub table: T,
    pub keeper: Keeper,
    /// Table and buffers, as the stores' state machines see them.
    pub memory: Registered,
    region: Region,
    local: Registered,
    shape: Shape,
    lists: Vec<FreeList>,
    connections: Vec<Connection>,
    /// True if connections are refused and nothing is answered.
    pub down: bool,
    /// Number of restarts. Results of connections before the last restart no longer count.
    pub restarts: u32,
}

/// The size of a server.
#[derive(Clone, Debug)]
pub(crate) struct Shape {
    /// Size of the table, in bytes.
    pub table_len: usize,
    /// Size and number of the buffers of each class.
    pub classes: Vec<(u32, u32)>,
    /// Largest number of clients at the same time.
    pub peers: u32,
}

/// The buffers of a server, all classes together.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Buffers {
    pub capacity: u32,
    /// Free or resting buffers.
    pub free: u32,
    pub bad_posts: u64,
}

pub(crate) fn registered(region: &Region) -> Registered {
    Registered { bytes: region.bytes.clone(), addr: region.address, key: region.key }
}

/// The work of a server's program for its clients, in addition to keeping buffers.
pub(crate) trait Serves: Reachable {
    /// True if clients use RPC and there is no work for a keeper.
    const CALLED: bool = false;

    /// Handles a completion of a client's queue pair, if clients use RPC.
    ///
    /// # Errors
    /// Fails if the client is gone, or has sent a message that no correct client sends.
    fn call(&mut self, qp: QueuePair, call: &WorkCompletion, nic: &mut Endpoint<'_>) -> Result<(), Broken> {
        let _ = (qp, call, nic);
        Err(Broken::Protocol)
    }
}

impl Serves for remora_store::kv::prism::PrismTable {}
impl Serves for remora_store::txn::Shard {}
impl Serves for remora_store::block::prism_rs::Table {}
impl Serves for remora_store::block::abdlock::Table {}

/// Registers memory of a client.
pub(crate) fn arena(world: &mut World, node: usize, len: usize) -> Registered {
    registered(&world.register(node, len, ALL))
}

impl<T: Serves> Host<T> {
    /// Opens a server on a node and posts all buffers. `make` creates the table from the memory, which starts
    /// with the table.
    pub(crate) fn open(
        world: &mut World,
        node: usize,
        shape: Shape,
        make: impl FnOnce(&Registered) -> T,
    ) -> Host<T> {
        let bytes: usize = shape.classes.iter().map(|(size, count)| (size * count) as usize).sum();
        let region = world.register(node, shape.table_len.next_multiple_of(64) + bytes, ALL);
        let config = KeeperConfig { peers: shape.peers };
        let local = registered(&world.register(node, config.local_len(), ALL));
        let memory = registered(&region);
        let table = make(&memory);
        let (lists, keeper) = lists(world, &region, &shape, &local);
        let host = Host {
            node,
            table,
            keeper,
            memory,
            region,
            local,
            shape,
            lists,
            connections: Vec::new(),
            down: false,
            restarts: 0,
        };
        host.posted(world)
    }

    /// Posts every buffer that the table does not point to.
    fn posted(mut self, world: &mut World) -> Host<T> {
        self.post_all(world);
        self
    }

    fn post_all(&mut self, world: &mut World) {
        let mut kept = std::collections::BTreeSet::new();
        (0..self.table.entries()).for_each(|entry| {
            self.table.buffers(entry, &mut |address| {
                kept.insert(address);
            })
        });
        let mut lists = WorldLists { world, lists: &mut self.lists };
        self.keeper.post_all(&mut lists, |address| kept.contains(&address)).expect("space for every buffer");
    }

    /// Connects a client. Returns `None` if the server is down or has its maximum of clients.
    pub(crate) fn accept(&mut self, world: &mut World, client: usize, settings: &Settings) -> Option<Link> {
        if self.down {
            return None;
        }
        let [(qp, cq), (far, far_cq)] = world.pair(client, self.node, settings);
        let peer = self.keeper.accept(&mut Endpoint { world, qp: far })?;
        self.connections.push(Connection { qp: far, cq: far_cq, peer });
        Some(Link { qp, cq, far })
    }

    /// Gives the server's program a turn.
    pub(crate) fn turn(&mut self, world: &mut World) {
        if self.down {
            return;
        }
        for index in (0..self.connections.len()).rev() {
            let Connection { qp, cq, peer } = self.connections[index];
            let mut broken = false;
            while let (false, Some(completion)) = (broken, world.poll(cq)) {
                broken = self.handle(world, qp, peer, &completion).is_err();
            }
            broken |= !T::CALLED && self.keeper.notify(peer, &mut Endpoint { world, qp }).is_err();
            if broken {
                self.disconnect(world, index);
            }
        }
        let mut lists = WorldLists { world, lists: &mut self.lists };
        while self.keeper.work(&self.table, &mut lists) {}
    }

    fn handle(
        &mut self,
        world: &mut World,
        qp: QueuePair,
        peer: Peer,
        completion: &WorkCompletion,
    ) -> Result<(), Broken> {
        if T::CALLED {
            return self.table.call(qp, completion, &mut Endpoint { world, qp });
        }
        // Both need the world, but the queue pair is used for receive requests only, which are therefore
        // deferred.
        let mut posts = Deferred::default();
        let mut lists = WorldLists { world, lists: &mut self.lists };
        self.keeper.handle(peer, completion, &mut posts, &mut lists)?;
        posts
            .0
            .iter()
            .try_for_each(|(id, sge)| Ok(world.post_receive(qp, &ReceiveRequest { id: *id, sges: &[*sge] })?))
    }

    fn disconnect(&mut self, world: &mut World, index: usize) {
        let connection = self.connections.remove(index);
        end(world, connection.qp);
        self.keeper.disconnect(connection.peer);
    }

    /// Tells the server that a client is dead, or lets it decide so.
    pub(crate) fn lose(&mut self, world: &mut World, link: &Link) {
        if let Some(index) = self.connections.iter().position(|connection| connection.qp == link.far) {
            self.disconnect(world, index);
        }
    }

    /// Treats clients that hold up a sweep as dead.
    pub(crate) fn lose_late(&mut self, world: &mut World) {
        let late: Vec<Peer> = self.keeper.late().collect();
        for index in (0..self.connections.len()).rev() {
            if late.contains(&self.connections[index].peer) {
                self.disconnect(world, index);
            }
        }
    }

    /// Crashes the server: every connection ends, without a message to the clients.
    pub(crate) fn crash(&mut self, world: &mut World) {
        self.down = true;
        for connection in std::mem::take(&mut self.connections) {
            end(world, connection.qp);
        }
    }

    /// Restarts the server with its memory unchanged; `make` opens the table in it.
    pub(crate) fn restart(&mut self, world: &mut World, make: impl FnOnce(&Registered) -> T) {
        for list in self.lists.drain(..) {
            world
                .ask::<()>(self.node, Command::DestroyFreeList { list: list.number })
                .expect("the free list exists");
        }
        self.table = make(&self.memory);
        (self.lists, self.keeper) = lists(world, &self.region, &self.shape, &self.local);
        self.post_all(world);
        self.down = false;
        self.restarts += 1;
    }

    /// Restarts the server with an empty memory.
    pub(crate) fn restart_empty(&mut self, world: &mut World, make: impl FnOnce(&Registered) -> T) {
        self.region.store(0, &vec![0; self.region.bytes.len()]);
        self.restart(world, make);
    }

    /// Returns the state of the server's buffers.
    pub(crate) fn buffers(&self, world: &mut World) -> Buffers {
        let facts = self.lists.iter().map(|list| world.free_list_facts(list));
        facts.fold(Buffers::default(), |all, facts| Buffers {
            capacity: all.capacity + facts.capacity,
            free: all.free + facts.free + facts.resting,
            bad_posts: all.bad_posts + facts.bad_posts,
        })
    }

    /// Returns the number of buffers that the table points to.
    pub(crate) fn live(&self) -> u32 {
        let mut live = 0;
        (0..self.table.entries())
            .for_each(|entry| self.table.buffers(entry, &mut |address| live += u32::from(address != 0)));
        live
    }
}

/// Creates the free lists of a server, and a keeper for them.
fn lists(world: &mut World, region: &Region, shape: &Shape, local: &Registered) -> (Vec<FreeList>, Keeper) {
    let mut offset = shape.table_len.next_multiple_of(64);
    let mut lists = Vec::new();
    let mut classes = Vec::new();
    for &(size, count) in &shape.classes {
        let list = world.create_free_list(region, offset, size, count).expect("a free list");
        classes.push(Class { list: list.number, base: region.remote(offset).addr, size, count });
        lists.push(list);
        offset += (size * count) as usize;
    }
    let config = KeeperConfig { peers: shape.peers };
    let classes = Classes::new(classes).expect("classes of different sizes");
    (lists, Keeper::new(config, classes, local.clone()).expect("memory for the keeper"))
}

/// Receive requests that are posted a moment later.
#[derive(Default)]
struct Deferred(Vec<(u64, Sge)>);

impl Post for Deferred {
    fn post_send(&mut self, _: &WorkRequest<'_>) -> Result<(), PostError> {
        Err(PostError::BadState)
    }

    fn post_receive(&mut self, request: &ReceiveRequest<'_>) -> Result<(), PostError> {
        self.0.push((request.id, request.sges[0]));
        Ok(())
    }
}

/// Returns true if the completion shows the end of a queue pair.
pub(crate) fn failed(completion: &WorkCompletion) -> bool {
    completion.status != Status::Success
}
