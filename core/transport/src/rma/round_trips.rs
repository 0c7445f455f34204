//! Timeouts derived from measured round-trip times (`docs/reference/rma.md`).
//!
//! TIMEOUT is five smoothed round trips and DISPATCH_TIMEOUT half of that, with a configured minimum. Each
//! timeout without an answer doubles them, so that a peer that became slow can be measured anew. The table
//! has a fixed size. Peers without an entry use the longer times of the settings.

use remora_wire::frame::Endpoint;

use super::{Settings, Timers};

/// Size of the table of peers, for one side of an engine.
const PLACES: usize = 256;
/// Number of smoothed round trips in a TIMEOUT.
const ROUNDS: u64 = 5;
/// Maximum number of doublings.
const DOUBLINGS: u8 = 6;

#[derive(Copy, Clone, Debug, Default)]
struct Place {
    peer: Endpoint,
    /// Smoothed round trip in nanoseconds; 0 before the first measurement.
    smooth: u64,
    doubled: u8,
}

/// Round-trip times of the peers of one side of an engine, measured on authentic messages only.
#[derive(Debug)]
pub(crate) struct RoundTrips {
    /// The table; empty if the timers are fixed.
    places: Vec<Place>,
    timeout: u64,
    dispatch_timeout: u64,
    least: u64,
    most: u64,
}

impl RoundTrips {
    /// Returns a table without measurements.
    pub(crate) fn new(settings: &Settings) -> RoundTrips {
        let places = if settings.timers == Timers::Measured { PLACES } else { 0 };
        RoundTrips {
            places: vec![Place::default(); places],
            timeout: settings.timeout,
            dispatch_timeout: settings.dispatch_timeout,
            least: settings.least_timeout,
            most: settings.max_server_timeout.max(settings.least_timeout),
        }
    }

    fn index(&self, peer: Endpoint) -> Option<usize> {
        let (words, _) = peer.address.0.as_chunks::<8>();
        let [high, low] = [0, 1].map(|word: usize| u64::from_le_bytes(words[word]));
        let mixed =
            (high ^ low.rotate_left(16) ^ u64::from(peer.udp_port)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        ((mixed >> 32) as usize).checked_rem(self.places.len())
    }

    fn known(&self, peer: Endpoint) -> Option<&Place> {
        let place = &self.places[self.index(peer)?];
        (place.smooth > 0 && place.peer == peer).then_some(place)
    }

    /// Returns the time that an operation with this peer may take once it is in service, in nanoseconds.
    #[inline]
    pub(crate) fn timeout(&self, peer: Endpoint) -> u64 {
        let Some(Place { smooth, doubled, .. }) = self.known(peer) else { return self.timeout };
        smooth.saturating_mul(ROUNDS).max(self.least).saturating_mul(1 << doubled).min(self.most)
    }

    /// Returns the time that an operation with this peer may wait for the window, in nanoseconds.
    #[inline]
    pub(crate) fn dispatch_timeout(&self, peer: Endpoint) -> u64 {
        self.known(peer).map_or(self.dispatch_timeout, |_| self.timeout(peer) / 2)
    }

    /// Adds a measured round trip to an authentic answer of this peer.
    #[inline]
    pub(crate) fn measured(&mut self, peer: Endpoint, round: u64) {
        let Some(index) = self.index(peer) else { return };
        let place = &mut self.places[index];
        let round = round.min(self.most);
        let smooth = match place.smooth {
            known if known > 0 && place.peer == peer => (7 * known + round) / 8,
            _ => round,
        };
        // 0 marks an empty entry.
        *place = Place { peer, smooth: smooth.max(1), doubled: 0 };
    }

    /// Doubles the timeouts of this peer, because no answer arrived in time.
    pub(crate) fn expired(&mut self, peer: Endpoint) {
        let Some(index) = self.index(peer) else { return };
        let place = &mut self.places[index];
        if place.peer == peer {
            place.doubled = (place.doubled + 1).min(DOUBLINGS);
        }
    }

    /// Returns the bytes of the table.
    pub(crate) fn bytes(&self) -> usize {
        self.places.capacity() * size_of::<Place>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const US: u64 = 1_000;

    fn peer(number: u16) -> Endpoint {
        Endpoint { address: std::net::Ipv4Addr::new(10, 0, 0, 1).into(), udp_port: number }
    }

    /// Software engines that poll all the time, each on its own core.
    fn busy_polling() -> Settings {
        Settings { least_timeout: 200_000, ..Settings::software() }
    }

    fn trips(timers: Timers) -> RoundTrips {
        RoundTrips::new(&Settings { timers, ..busy_polling() })
    }

    fn times(trips: &RoundTrips, number: u16) -> (u64, u64) {
        (trips.timeout(peer(number)), trips.dispatch_timeout(peer(number)))
    }

    #[test]
    fn measured_timers_are_five_round_trips_and_half_of_that_with_a_least_and_a_most() {
        let mut trips = trips(Timers::Measured);
        let settings = busy_polling();
        assert_eq!(
            times(&trips, 7),
            (settings.timeout, settings.dispatch_timeout),
            "no round trip was measured yet"
        );
        trips.measured(peer(7), 1_000 * US);
        assert_eq!(times(&trips, 7), (5_000 * US, 2_500 * US));
        for _ in 0..200 {
            trips.measured(peer(7), 3_000 * US);
        }
        let (timeout, _) = times(&trips, 7);
        assert!((14_990 * US..=15_000 * US).contains(&timeout), "{timeout}");
        (0..400).for_each(|_| trips.measured(peer(7), US));
        assert_eq!(times(&trips, 7), (200 * US, 100 * US), "the least");
        (0..400).for_each(|_| trips.measured(peer(7), u64::MAX));
        assert_eq!(trips.timeout(peer(7)), settings.max_server_timeout, "the most");
    }

    #[test]
    fn silence_doubles_them_and_an_answer_ends_that() {
        let mut trips = trips(Timers::Measured);
        trips.measured(peer(7), 100 * US);
        let mut spans = Vec::new();
        for _ in 0..8 {
            trips.expired(peer(7));
            spans.push(trips.timeout(peer(7)) / US);
        }
        assert_eq!(spans, [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 32_000, 32_000]);
        trips.measured(peer(7), 100 * US);
        assert_eq!(trips.timeout(peer(7)), 500 * US);
    }

    #[test]
    fn each_peer_has_its_own_and_whom_the_table_has_no_place_for_is_given_the_settings() {
        let mut trips = trips(Timers::Measured);
        let settings = busy_polling();
        trips.measured(peer(7), 100 * US);
        trips.expired(peer(8));
        assert_eq!((trips.timeout(peer(7)), trips.timeout(peer(8))), (500 * US, settings.timeout));
        let bytes = trips.bytes();
        (0..10_000).for_each(|number| trips.measured(peer(number), 100 * US));
        let known = (0..10_000).filter(|number| trips.timeout(peer(*number)) == 500 * US).count();
        assert!((1..=PLACES).contains(&known), "{known}");
        assert_eq!(trips.bytes(), bytes);
    }

    #[test]
    fn fixed_timers_follow_nothing() {
        let mut trips = trips(Timers::Fixed);
        let settings = busy_polling();
        trips.measured(peer(7), US);
        trips.expired(peer(7));
        assert_eq!(times(&trips, 7), (settings.timeout, settings.dispatch_timeout));
        assert_eq!(trips.bytes(), 0);
    }
}
