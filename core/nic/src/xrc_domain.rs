//! XRC domains: which shared receive queues the targets of extended reliable connections reach (IBTA vol. 1
//! annex A14).

use crate::config::NicError;

/// The domains of an engine, each with how many queue pairs and shared receive queues it has.
pub(crate) struct XrcDomains {
    users: Vec<Option<u32>>,
}

impl XrcDomains {
    pub(crate) fn new(max: u32) -> Self {
        XrcDomains { users: vec![None; max as usize] }
    }

    pub(crate) fn alloc(&mut self) -> Result<u32, NicError> {
        let place = self.users.iter().position(Option::is_none).ok_or(NicError::Full)?;
        self.users[place] = Some(0);
        Ok(place as u32)
    }

    pub(crate) fn free(&mut self, domain: u32) -> Result<(), NicError> {
        match self.users.get_mut(domain as usize) {
            Some(Some(0)) => self.users[domain as usize] = None,
            Some(Some(_)) => return Err(NicError::Busy),
            _ => return Err(NicError::Unknown),
        }
        Ok(())
    }

    pub(crate) fn join(&mut self, domain: u32) -> Result<(), NicError> {
        let users = self.users.get_mut(domain as usize).and_then(Option::as_mut).ok_or(NicError::Unknown)?;
        *users += 1;
        Ok(())
    }

    pub(crate) fn leave(&mut self, domain: u32) {
        if let Some(Some(users)) = self.users.get_mut(domain as usize) {
            *users = users.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn domains_are_bounded_and_come_back() {
        let mut domains = XrcDomains::new(2);
        let both = [domains.alloc().unwrap(), domains.alloc().unwrap()];
        assert_eq!(domains.alloc(), Err(NicError::Full));
        domains.join(both[0]).unwrap();
        assert_eq!(domains.free(both[0]), Err(NicError::Busy));
        domains.leave(both[0]);
        domains.free(both[0]).unwrap();
        assert_eq!([domains.free(both[0]), domains.join(both[0])], [Err(NicError::Unknown); 2]);
        assert_eq!(domains.alloc(), Ok(both[0]));
        assert_eq!((domains.free(2), domains.alloc()), (Err(NicError::Unknown), Err(NicError::Full)));
    }
}
