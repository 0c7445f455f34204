//! The broker's counters.

macro_rules! tally {
    ($($(#[doc = $doc:literal])+ $name:ident,)+) => {
        /// Counters of a broker, which only rise.
        #[derive(Copy, Clone, Debug, Default, PartialEq, Eq)]
        pub struct Tally { $($(#[doc = $doc])+ pub $name: u64,)+ }

        impl Tally {
            /// The name, meaning and value of every counter.
            pub fn each(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
                [$((stringify!($name), concat!($($doc),+), self.$name),)+].into_iter()
            }

            /// All values in the order of [`Tally::each`].
            pub(crate) fn values(&self) -> Vec<u64> {
                vec![$(self.$name),+]
            }

            /// Returns the tally with these values. Missing ones are 0.
            pub(crate) fn of(values: &[u64]) -> Tally {
                let mut values = values.iter().copied();
                Tally { $($name: values.next().unwrap_or(0)),+ }
            }
        }
    };
}

tally! {
    /// QPN ranges lent.
    lent,
    /// QPN ranges taken back.
    taken_back,
    /// Connections refused: another user, another version, no range left, or what makes no sense.
    refused,
    /// Connections that were dropped because nothing was said in time, or a reply was not read.
    dropped,
    /// Frames that reached a program and were for another QPN range.
    strays,
    /// Frames handed over to the program whose QPN range they were for, because they had come to no program
    /// or to another one.
    forwarded,
    /// Frames handed over because the kernel cannot steer.
    relayed,
    /// Frames lost because the program that they were for had no space for more.
    overflowed,
    /// Frames dropped: no program has their QPN range.
    unclaimed,
    /// Frames dropped: they were for queue pair 0, or for queue pair 1 and no intact MADs.
    management,
    /// Messages of 1RMA dropped: nobody on a shared address speaks it.
    rma,
    /// Links made between two programs.
    linked,
    /// Requests for a link that were refused: these programs reach each other by UDP.
    unlinked,
    /// MADs that came in for the communication manager.
    mads,
    /// MADs of the communication manager that the system did not send.
    unsent,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tally_comes_back_from_its_values_and_from_fewer() {
        let tally = Tally { lent: 3, rma: 9, ..Tally::default() };
        assert_eq!(Tally::of(&tally.values()), tally);
        assert_eq!(Tally::of(&[3]), Tally { lent: 3, ..Tally::default() });
        assert!(tally.each().any(|(name, _, value)| (name, value) == ("rma", 9)));
    }
}
