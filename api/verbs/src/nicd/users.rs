//! The daemon's accounts: what each user holds, summed over the user's programs and kept tenants.
//!
//! Each kind of resource has a limit for one user. If the daemon or its NIC has a fixed number of places for
//! all users, half of the places are divided evenly among the users that may attach and are reserved for
//! them. The other half goes to the first that ask.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::options::Options;

/// A kind of resource that is counted.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(super) enum Resource {
    /// Connections that have not sent a first message.
    Greeting,
    /// Programs that are attached.
    Attachment,
    /// Kept tenants, attached or not.
    Name,
    Domain,
    Region,
    Queue,
    Channel,
    Pair,
    Kernel,
    FreeList,
    /// Bytes of regions, queues and kernels.
    Byte,
    Negotiation,
    Portal,
    Slot,
    LatencySlot,
    RmaRegion,
}

const KINDS: usize = Resource::RmaRegion as usize + 1;

/// An amount for each kind of resource.
#[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts([u64; KINDS]);

impl Amounts {
    /// Returns `amount` of one kind, and nothing of the others.
    pub(crate) fn of(kind: Resource, amount: u64) -> Amounts {
        Amounts::default().and(kind, amount)
    }

    /// Returns these amounts with the amount of one kind set to `amount`.
    pub(crate) fn and(mut self, kind: Resource, amount: u64) -> Amounts {
        self.0[kind as usize] = amount;
        self
    }

    /// Returns the amount of one kind.
    pub(crate) fn get(&self, kind: Resource) -> u64 {
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

/// The places of one kind that all users share.
#[derive(Copy, Clone, Debug)]
enum Places {
    /// Any number of places.
    Unbounded,
    /// Places of the daemon, which it must count.
    Daemon(u64),
    /// Places of the NIC, which itself refuses a claim beyond them.
    Nic(u64),
}

/// The limits of one kind of resource.
#[derive(Clone, Debug)]
struct Bound {
    kind: Resource,
    /// The name of the kind in messages.
    noun: &'static str,
    /// The option of `remora nicd` that sets the user's limit, and the places of all users.
    option: &'static str,
    of_a_user: u64,
    of_all: Places,
}

/// The limits of all kinds. `option` is empty for a kind without an option of its own.
fn bounds(options: &Options, nic: &remora_host::Config) -> Vec<Bound> {
    let limits = &options.limits;
    let all = usize::MAX;
    let bound = |kind, noun, option, of_a_user: usize, of_all| Bound {
        kind,
        noun,
        option,
        of_a_user: of_a_user as u64,
        of_all,
    };
    let daemon = |places: usize| Places::Daemon(places as u64);
    let of_nic = |places: u32| Places::Nic(places.into());
    let attachments = options.attachments;
    let slots = of_nic(options.rma.slots.into());
    vec![
        bound(
            Resource::Greeting,
            "programs that attach at the moment",
            "attachments",
            all,
            daemon(attachments),
        ),
        bound(Resource::Attachment, "programs attached", "attachments", all, daemon(attachments)),
        bound(Resource::Name, "kept tenants", "tenants", all, daemon(options.tenants)),
        bound(Resource::Domain, "protection domains", "domains", limits.domains, Places::Unbounded),
        bound(
            Resource::Region,
            "regions",
            "regions",
            limits.regions,
            Places::Nic(nic.memory.max_regions as u64),
        ),
        bound(Resource::Queue, "completion queues", "queues", limits.queues, of_nic(nic.nic.max_cqs)),
        bound(Resource::Channel, "completion channels", "channels", limits.channels, Places::Unbounded),
        bound(Resource::Pair, "queue pairs", "pairs", limits.pairs, of_nic(nic.nic.max_qps)),
        bound(Resource::Kernel, "kernels", "kernels", limits.kernels, of_nic(nic.nic.max_kernels)),
        bound(
            Resource::FreeList,
            "free lists",
            "free-lists",
            limits.free_lists,
            of_nic(nic.nic.max_free_lists),
        ),
        Bound {
            of_a_user: limits.bytes,
            ..bound(Resource::Byte, "bytes of regions and queues", "memory", all, Places::Unbounded)
        },
        bound(Resource::Negotiation, "connections being set up", "", limits.negotiations, Places::Unbounded),
        bound(Resource::Portal, "command portals", "rma-portals", limits.rma_portals, slots),
        bound(Resource::Slot, "command slots", "rma-slots", limits.rma_slots, slots),
        bound(
            Resource::LatencySlot,
            "slots of the latency class",
            "rma-latency-slots",
            limits.rma_latency_slots,
            Places::Unbounded,
        ),
        bound(
            Resource::RmaRegion,
            "regions of 1RMA",
            "rma-regions",
            limits.rma_regions,
            of_nic(options.rma_regions),
        ),
    ]
}

impl Bound {
    /// The number of places that are reserved for each of `users` users.
    fn share(&self, users: u64) -> u64 {
        let places = match self.of_all {
            Places::Unbounded => return 0,
            Places::Daemon(places) | Places::Nic(places) => places,
        };
        // Each user has at least one place, provided that there are enough places.
        (places / (2 * users)).max((places / users).min(1)).min(self.of_a_user)
    }

    /// Returns the text of the refusal if user `uid` may not have `more`, or `None` if it may.
    fn refusal(&self, ledger: &Ledger, uid: u32, more: u64) -> Option<String> {
        let sum = ledger.held(uid).get(self.kind).saturating_add(more);
        let Bound { noun, option, .. } = *self;
        if sum > self.of_a_user {
            let most = self.of_a_user;
            return Some(match option {
                "" => format!("{sum} {noun} are over the {most} that user {uid} may have: wait for one"),
                option => format!(
                    "{sum} {noun} are over the {most} that user {uid} may have: give some back, or start `remora nicd` with a larger --{option}"
                ),
            });
        }
        let (places, is_of_nic) = match self.of_all {
            Places::Unbounded => return None,
            Places::Daemon(places) => (places, false),
            Places::Nic(places) => (places, true),
        };
        let share = self.share(ledger.admitted.len() as u64);
        let others = ledger.admitted.iter().filter(|other| **other != uid);
        let kept: u64 = others.map(|other| ledger.held(*other).get(self.kind).max(share)).sum();
        if is_of_nic && kept == 0 {
            return None;
        }
        (sum.saturating_add(kept) > places).then(|| {
            format!(
                "{sum} {noun} of user {uid}, and {kept} that other users have or may have, are over the {places} of this daemon: give some back, end kept tenants by `remora nic end`, or start `remora nicd` with a larger --{option}"
            )
        })
    }
}

/// The amounts that each user holds.
#[derive(Debug)]
struct Ledger {
    admitted: BTreeSet<u32>,
    held: BTreeMap<u32, Amounts>,
}

impl Ledger {
    fn held(&self, uid: u32) -> Amounts {
        self.held.get(&uid).copied().unwrap_or_default()
    }
}

/// The users that may attach, and the amounts that they hold.
pub(super) struct Users {
    bounds: Vec<Bound>,
    ledger: Mutex<Ledger>,
}

impl fmt::Debug for Users {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Users").finish_non_exhaustive()
    }
}

impl Users {
    /// Creates accounts in which nothing is held. `own` is the daemon's user.
    pub(crate) fn new(options: &Options, nic: &remora_host::Config, own: u32) -> Users {
        let admitted = options.allow.iter().copied().chain([own]).collect();
        let ledger = Mutex::new(Ledger { admitted, held: BTreeMap::new() });
        Users { bounds: bounds(options, nic), ledger }
    }

    fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether this user may attach.
    pub(crate) fn admits(&self, uid: u32) -> bool {
        self.ledger().admitted.contains(&uid)
    }
}

/// A user of the daemon.
#[derive(Clone, Debug)]
pub(super) struct User {
    uid: u32,
    users: Arc<Users>,
}

impl User {
    pub(crate) fn new(users: &Arc<Users>, uid: u32) -> User {
        User { uid, users: Arc::clone(users) }
    }

    /// Claims these amounts until the claim is dropped.
    ///
    /// # Errors
    /// The text of the limit that the claim would exceed. Nothing is claimed then.
    pub(crate) fn claim(&self, more: Amounts) -> Result<Claim, String> {
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
}

/// Amounts that a user holds. Dropping the claim gives them back.
#[derive(Debug)]
pub(super) struct Claim {
    user: User,
    held: Amounts,
}

impl Claim {
    /// The claimed amount of one kind.
    pub(crate) fn get(&self, kind: Resource) -> u64 {
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
    use crate::Device;
    use crate::nicd::Limits;

    const OWN: u32 = 1000;
    const HOG: u32 = 1001;
    const OTHER: u32 = 1002;

    fn users(options: &Options) -> Arc<Users> {
        Arc::new(Users::new(options, &Device::shm().of_daemon(), OWN))
    }

    /// Claims one place at a time until a claim is refused. Returns the claims and the text of the refusal.
    fn all(user: &User, kind: Resource) -> (Vec<Claim>, String) {
        let mut claims = Vec::new();
        loop {
            match user.claim(Amounts::of(kind, 1)) {
                Ok(claim) => claims.push(claim),
                Err(words) => return (claims, words),
            }
        }
    }

    #[test]
    fn a_user_that_takes_all_it_gets_leaves_each_other_user_its_share() {
        let options = Options { allow: vec![HOG, OTHER], attachments: 64, tenants: 12, ..Options::default() };
        let users = users(&options);
        let [own, hog, other] = [OWN, HOG, OTHER].map(|uid| User::new(&users, uid));
        let nic = Device::shm().of_daemon().nic;
        for (kind, of_all, option) in [
            (Resource::Greeting, 64, "--attachments"),
            (Resource::Attachment, 64, "--attachments"),
            (Resource::Name, 12, "--tenants"),
        ] {
            let share = of_all / 6;
            let (taken, words) = all(&hog, kind);
            assert_eq!(taken.len(), of_all - 2 * share, "{kind:?}");
            assert!(words.contains("user 1001") && words.contains(option), "{words}");
            let [others, owns] = [&other, &own].map(|user| all(user, kind).0);
            assert_eq!((others.len(), owns.len()), (share, share), "{kind:?}");
            drop(taken);
            assert_eq!(
                all(&other, kind).0.len(),
                of_all - 2 * share - others.len(),
                "released places are available: {kind:?}"
            );
        }
        let kernels = nic.max_kernels as usize;
        let limits = Limits { kernels, ..Limits::default() };
        let users = self::users(&Options { limits, ..options });
        let (taken, words) = all(&User::new(&users, HOG), Resource::Kernel);
        assert_eq!(taken.len(), kernels - 2 * (kernels / 6), "places of the NIC are kept as well");
        assert!(words.contains("that other users have or may have"), "{words}");
    }

    #[test]
    fn a_daemon_of_one_user_gives_it_all_places() {
        let users = users(&Options { attachments: 4, tenants: 1, ..Options::default() });
        let own = User::new(&users, OWN);
        assert_eq!(all(&own, Resource::Attachment).0.len(), 4);
        assert_eq!(all(&own, Resource::Name).0.len(), 1);
    }

    #[test]
    fn with_fewer_places_than_users_nothing_is_kept_and_with_as_many_each_has_one() {
        let options = Options { allow: vec![HOG, OTHER], attachments: 2, tenants: 3, ..Options::default() };
        let users = users(&options);
        let hog = User::new(&users, HOG);
        assert_eq!(all(&hog, Resource::Attachment).0.len(), 2);
        assert_eq!(all(&hog, Resource::Name).0.len(), 1);
    }

    #[test]
    fn a_refused_claim_takes_nothing_and_a_dropped_one_gives_all_back() {
        let limits = Limits { regions: 2, bytes: 100, ..Limits::default() };
        let users = users(&Options { limits, ..Options::default() });
        let own = User::new(&users, OWN);
        let claim = |bytes| own.claim(Amounts::of(Resource::Region, 1).and(Resource::Byte, bytes));
        let first = claim(60).unwrap();
        for bytes in [41, u64::MAX] {
            let words = claim(bytes).unwrap_err();
            assert!(words.contains("that user 1000 may have") && words.contains("--memory"), "{words}");
        }
        let second = claim(40).unwrap();
        assert!(claim(0).unwrap_err().contains("3 regions are over the 2"));
        drop((first, second));
        assert!(users.ledger().held.is_empty());
    }
}
