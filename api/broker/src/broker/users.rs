//! The users of a broker: what each has, and ending their programs.

use remora_host::users::Resource;
use remora_port::user;

use super::state::State;
use crate::message::UserFacts;

impl State {
    /// The places of user `first_uid`, or of the next higher user that has connections.
    pub(super) fn user_facts(&self, first_uid: u32) -> Option<UserFacts> {
        let uid = self.clients.users().range(first_uid..).next().copied()?;
        let held = self.users.held(uid);
        let count = |kind| held.get(kind) as u32;
        Some(UserFacts {
            uid,
            guest: self.users.user(uid).is_guest(),
            connections: count(Resource::Connection),
            ranges: count(Resource::Range),
            ids: count(Resource::CmId),
            channels: count(Resource::EventChannel),
        })
    }

    /// Ends all connections of a user at the request of the broker's owner, and no longer admits that user.
    pub(super) fn end_user(&mut self, asking: u32, uid: u32) -> Result<u32, String> {
        self.must_own(asking)?;
        self.users.refuse(uid);
        let numbers: Vec<u32> =
            self.clients.of_user(uid).map(|(number, _)| number).filter(|number| *number != asking).collect();
        numbers.iter().for_each(|number| self.hang_up(*number));
        Ok(numbers.len() as u32)
    }

    /// Ends the program that has a QPN range at the request of the broker's owner: all connections of its
    /// process.
    pub(super) fn end_program(&mut self, asking: u32, range: u8) -> Result<u32, String> {
        self.must_own(asking)?;
        let (number, client) =
            self.clients.of_range(range).ok_or_else(|| format!("no program has QPN range {range}"))?;
        let uid = client.user.uid();
        let pid = client.pid;
        let is_its = |other: u32, its: u32| other == number || pid != 0 && its == pid;
        let of_user = self.clients.of_user(uid);
        let numbers: Vec<u32> = of_user
            .filter(|(other, client)| is_its(*other, client.pid) && *other != asking)
            .map(|(other, _)| other)
            .collect();
        numbers.iter().for_each(|number| self.hang_up(*number));
        Ok(numbers.len() as u32)
    }

    /// Refuses a request that only the broker's own user and root may make.
    fn must_own(&self, asking: u32) -> Result<(), String> {
        let client = self.clients.get(asking).ok_or("the connection is gone")?;
        let uid = client.user.uid();
        if !client.user.is_guest() || user::is_trusted(uid, &[]) {
            return Ok(());
        }
        Err(format!(
            "{} may not end programs of this broker: only its own user and root may",
            user::name(uid)
        ))
    }
}
