//! The users of a daemon: which ones it admits, and the ledger of what each holds, summed over the user's
//! programs and over what they keep.
//!
//! Each kind of resource has a limit for one user. Where all users share a fixed number of places, half of
//! the places are divided evenly among the users that the daemon was started for and are reserved for them.
//! The other half goes to the first that ask.

use remora_port::user::{self, PeerCredentials};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A kind of resource that is counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub enum Resource {
    /// Connections that have not sent a first message.
    Greeting,
    /// Connections that share an address, or ask about it.
    Connection,
    /// QPN ranges of an address.
    Range,
    /// Ids of rdma_cm.
    CmId,
    /// Event channels of rdma_cm.
    EventChannel,
    /// Trees of device paths.
    Tree,
    /// Descriptors of the daemon's process.
    Descriptor,
    /// Programs that are attached to the daemon's NIC.
    Attachment,
    /// Kept tenants, attached or not.
    Name,
    /// Protection domains.
    Domain,
    /// Memory regions.
    Region,
    /// Completion queues.
    Queue,
    /// Completion channels.
    Channel,
    /// Queue pairs.
    Pair,
    /// Kernels on the NIC.
    Kernel,
    /// Free lists of PRISM.
    FreeList,
    /// Bytes of regions, queues and kernels.
    Byte,
    /// Connections being set up.
    Negotiation,
    /// Shared receive queues.
    SharedQueue,
    /// XRC domains.
    XrcDomain,
    /// Address handles.
    AddressHandle,
    /// Memory windows.
    Window,
    /// Queue pairs attached to multicast groups.
    GroupMember,
    /// Users of the port's peers.
    Peer,
    /// Command portals of 1RMA.
    Portal,
    /// Command slots of 1RMA.
    Slot,
    /// Command slots of the latency class.
    LatencySlot,
    /// Regions of 1RMA.
    RmaRegion,
}

const KINDS: usize = Resource::RmaRegion as usize + 1;

/// An amount for each kind of resource.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts([u64; KINDS]);

impl Amounts {
    /// Returns `amount` of one kind, and nothing of the others.
    pub fn of(kind: Resource, amount: u64) -> Amounts {
        Amounts::default().and(kind, amount)
    }

    /// Returns these amounts with the amount of one kind set to `amount`.
    pub fn and(mut self, kind: Resource, amount: u64) -> Amounts {
        self.0[kind as usize] = amount;
        self
    }

    /// Returns the amount of one kind.
    pub fn get(&self, kind: Resource) -> u64 {
        self.0[kind as usize]
    }

    fn is_zero(&self) -> bool {
        *self == Amounts::default()
    }

    fn add(&mut self, more: &Amounts) {
        self.0.iter_mut().zip(more.0).for_each(|(held, more)| *held = held.saturating_add(more));
    }

    fn subtract(&mut self, less: &Amounts) {
        self.0.iter_mut().zip(less.0).for_each(|(held, less)| *held -= less);
    }
}

/// The limits of one kind of resource.
#[derive(Clone, Debug)]
pub struct Bound {
    kind: Resource,
    noun: &'static str,
    remedy: String,
    of_a_user: u64,
    places: u64,
}

impl Bound {
    /// Creates bounds of a kind that neither a user nor the daemon limits yet. `noun` is the kind's name in
    /// refusals, and `remedy` tells what to do about one.
    pub fn new(kind: Resource, noun: &'static str, remedy: impl Into<String>) -> Bound {
        Bound { kind, noun, remedy: remedy.into(), of_a_user: u64::MAX, places: u64::MAX }
    }

    /// Divides the descriptors that the process may open, without `own` of its own, among the users.
    pub fn of_descriptors(remedy: impl Into<String>, own: u64) -> Bound {
        let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        let places = limit.map_or(u64::MAX, |limit| limit.saturating_sub(own));
        Bound::new(Resource::Descriptor, "descriptors of the daemon", remedy).places(places)
    }

    /// Limits the amount that one user may hold.
    pub fn of_a_user(self, amount: u64) -> Bound {
        Bound { of_a_user: amount, ..self }
    }

    /// Divides this amount among the users. A user beside whom no other has or may have any is not refused
    /// here, but where the places are.
    pub fn places(self, places: u64) -> Bound {
        Bound { places, ..self }
    }

    /// The number of places that are reserved for each of `users` users.
    fn share(&self, users: u64) -> u64 {
        if self.places == u64::MAX {
            return 0;
        }
        // Each user has at least one place, provided that there are enough places.
        (self.places / (2 * users)).max((self.places / users).min(1)).min(self.of_a_user)
    }

    /// Returns the text of the refusal if user `uid` may not have `more`, or `None` if it may.
    fn refusal(&self, ledger: &Ledger, uid: u32, more: u64) -> Option<String> {
        let sum = ledger.held(uid).get(self.kind).saturating_add(more);
        let Bound { noun, remedy, of_a_user, places, .. } = self;
        let name = || user::name(uid);
        if sum > *of_a_user {
            return Some(format!("{sum} {noun} are over the {of_a_user} that {} may have: {remedy}", name()));
        }
        if *places == u64::MAX {
            return None;
        }
        let reserved = ledger.of_others(uid, self.kind, self.share(ledger.admitted.len() as u64));
        (reserved > 0 && sum.saturating_add(reserved) > *places).then(|| {
            format!(
                "{sum} {noun} of {}, and {reserved} that other users have or may have, are over the {places} of this daemon: {remedy}",
                name()
            )
        })
    }
}

/// The admitted users, and the amounts that each user holds.
#[derive(Debug)]
struct Ledger {
    admitted: BTreeSet<u32>,
    held: BTreeMap<u32, Amounts>,
}

impl Ledger {
    fn held(&self, uid: u32) -> Amounts {
        self.held.get(&uid).copied().unwrap_or_default()
    }

    /// The sum of what all users but `uid` hold of a kind, or of `share` for each admitted user that holds
    /// less.
    fn of_others(&self, uid: u32, kind: Resource, share: u64) -> u64 {
        let is_other = |other: &&u32| **other != uid;
        let admitted = self.admitted.iter().filter(is_other);
        let reserved = admitted.map(|other| self.held(*other).get(kind).max(share));
        // Root is admitted everywhere, and has no share unless the daemon was started for it.
        let others = self.held.keys().filter(is_other).filter(|other| !self.admitted.contains(other));
        reserved.chain(others.map(|other| self.held(*other).get(kind))).sum()
    }
}

/// The users of a daemon and what they hold.
pub struct Users {
    own: u32,
    bounds: Vec<Bound>,
    ledger: Mutex<Ledger>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").finish_non_exhaustive()
    }
}

impl Users {
    /// Creates a ledger in which nothing is held. `own` is the daemon's user, and `allow` the others that the
    /// daemon is started for.
    pub fn new(own: u32, allow: &[u32], bounds: Vec<Bound>) -> Arc<Users> {
        let admitted = allow.iter().copied().chain([own]).collect();
        let ledger = Mutex::new(Ledger { admitted, held: BTreeMap::new() });
        Arc::new(Users { own, bounds, ledger })
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the user of a process that may use the daemon: a process of the daemon's user, of root, or of
    /// an admitted user. `None` for any other process, and for users without an id in this user namespace.
    pub fn admit(self: &Arc<Users>, peer: &PeerCredentials) -> Option<User> {
        let is_mapped = user::is_mapped(peer.uid);
        let uid = if is_mapped { peer.uid } else { self.own };
        let is_admitted = match is_mapped {
            true => user::is_trusted(uid, &[]) || self.admits(uid),
            false => peer.is_this_process(),
        };
        is_admitted.then(|| self.user(uid))
    }

    /// Returns whether the daemon was started for this user.
    fn admits(&self, uid: u32) -> bool {
        self.ledger().admitted.contains(&uid)
    }

    /// Returns a user by its number, whether or not the daemon admits it.
    pub fn user(self: &Arc<Users>, uid: u32) -> User {
        User { uid, users: Arc::clone(self) }
    }

    /// Refuses this user from now on. What it holds stays until it is given back.
    pub fn refuse(&self, uid: u32) {
        self.ledger().admitted.remove(&uid);
    }

    /// Returns the amounts that a user holds.
    pub fn held(&self, uid: u32) -> Amounts {
        self.ledger().held(uid)
    }
}

/// A user of the daemon.
#[derive(Clone, Debug)]
pub struct User {
    uid: u32,
    users: Arc<Users>,
}

impl User {
    /// The user's id.
    pub fn uid(&self) -> u32 {
        self.uid
    }

    /// Returns whether the daemon belongs to another user.
    pub fn is_guest(&self) -> bool {
        self.uid != self.users.own
    }

    /// Claims these amounts until the claim is dropped.
    ///
    /// # Errors
    /// The text of the limit that the claim would exceed. Nothing is claimed then.
    pub fn claim(&self, more: Amounts) -> Result<Claim, String> {
        let mut ledger = self.users.ledger();
        for bound in &self.users.bounds {
            let amount = more.get(bound.kind);
            if amount > 0
                && let Some(words) = bound.refusal(&ledger, self.uid, amount)
            {
                return Err(words);
            }
        }
        ledger.held.entry(self.uid).or_default().add(&more);
        Ok(Claim { user: self.clone(), held: more })
    }

    /// Records amounts that no limit refuses, until the claim is dropped.
    pub fn hold(&self, more: Amounts) -> Claim {
        self.users.ledger().held.entry(self.uid).or_default().add(&more);
        Claim { user: self.clone(), held: more }
    }
}

/// Amounts that a user holds. Dropping the claim gives them back.
#[derive(Debug)]
pub struct Claim {
    user: User,
    held: Amounts,
}

impl Claim {
    /// The claimed amount of one kind.
    pub fn get(&self, kind: Resource) -> u64 {
        self.held.get(kind)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut ledger = self.user.users.ledger();
        let Some(held) = ledger.held.get_mut(&self.user.uid) else { return };
        held.subtract(&self.held);
        if held.is_zero() {
            ledger.held.remove(&self.user.uid);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 1000;
    const HOG: u32 = 1001;
    const OTHER: u32 = 1002;

    fn users(allow: &[u32], bound: Bound) -> Arc<Users> {
        Users::new(OWN, allow, vec![bound])
    }

    fn pairs() -> Bound {
        Bound::new(Resource::Pair, "queue pairs", "give some back")
    }

    /// Claims one place at a time until a claim is refused. Returns the claims and the text of the refusal.
    fn all(users: &Arc<Users>, uid: u32) -> (Vec<Claim>, String) {
        let user = users.user(uid);
        let mut claims = Vec::new();
        loop {
            match user.claim(Amounts::of(Resource::Pair, 1)) {
                Ok(claim) => claims.push(claim),
                Err(words) => return (claims, words),
            }
        }
    }

    #[test]
    fn a_user_that_takes_all_it_gets_leaves_each_other_user_its_share() {
        for of_all in [12, 64, 127] {
            let users = users(&[HOG, OTHER], pairs().places(of_all));
            let share = of_all as usize / 6;
            let (taken, words) = all(&users, HOG);
            assert_eq!(taken.len(), of_all as usize - 2 * share);
            assert!(words.contains("user 1001") && words.contains("other users have or may have"), "{words}");
            let [others, owns] = [OTHER, OWN].map(|uid| all(&users, uid).0);
            assert_eq!([others.len(), owns.len()], [share; 2]);
            drop(taken);
            let rest = all(&users, OTHER).0.len();
            assert_eq!(rest, of_all as usize - 2 * share - others.len(), "released places are available");
        }
    }

    #[test]
    fn a_limit_of_each_user_does_not_depend_on_other_users() {
        let users = users(&[HOG, OTHER], pairs().of_a_user(7));
        let taken = [HOG, OTHER, OWN].map(|uid| all(&users, uid));
        for (claims, words) in &taken {
            assert_eq!(claims.len(), 7);
            assert!(words.contains("8 queue pairs are over the 7 that user"), "{words}");
        }
    }

    #[test]
    fn a_daemon_of_one_user_gives_it_all_places_and_root_has_no_share() {
        let users = users(&[], pairs().places(4).of_a_user(9));
        assert_eq!(all(&users, OWN).0.len(), 9, "without others, the places themselves are the limit");
        let of_root = all(&users, 0).0;
        assert_eq!(of_root.len(), 2, "half of the places is reserved for the daemon's user");
        assert_eq!(all(&users, OWN).0.len(), 2);
    }

    #[test]
    fn with_fewer_places_than_users_nothing_is_kept_and_with_as_many_each_has_one() {
        let [hog, other] = [HOG, OTHER];
        let few = users(&[hog, other], pairs().places(2));
        let first = few.user(other).claim(Amounts::of(Resource::Pair, 1)).unwrap();
        assert_eq!(all(&few, hog).0.len(), 1);
        drop(first);
        assert_eq!(all(&users(&[HOG, OTHER], pairs().places(3)), HOG).0.len(), 1);
    }

    #[test]
    fn a_refused_claim_takes_nothing_and_a_dropped_one_gives_all_back() {
        let bytes = Bound::new(Resource::Byte, "bytes", "give some back").of_a_user(100);
        let users = Users::new(OWN, &[], vec![pairs().of_a_user(2), bytes]);
        let own = users.user(OWN);
        let claim = |bytes| own.claim(Amounts::of(Resource::Pair, 1).and(Resource::Byte, bytes));
        let first = claim(60).unwrap();
        for bytes in [41, u64::MAX] {
            let words = claim(bytes).unwrap_err();
            assert!(words.contains("over the 100 that user 1000 may have"), "{words}");
        }
        let second = claim(40).unwrap();
        assert!(claim(0).unwrap_err().contains("3 queue pairs are over the 2"));
        drop(own.hold(Amounts::of(Resource::Pair, 5)));
        drop((first, second));
        assert!(users.ledger().held.is_empty());
    }

    #[test]
    fn own_user_root_and_admitted_users_are_admitted_until_refused() {
        let own = user::own_uid();
        let users = Users::new(own, &[HOG], Vec::new());
        let admits = |uid| users.admit(&PeerCredentials { uid, pid: 1 }).map(|user| user.uid());
        assert_eq!([own, 0, HOG, OTHER].map(admits), [Some(own), Some(0), Some(HOG), None]);
        users.refuse(HOG);
        assert_eq!(admits(HOG), None);
    }
}
