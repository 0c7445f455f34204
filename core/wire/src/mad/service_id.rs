//! Service ids, which a REQ or SIDR_REQ requests. Those of the RDMA IP CM service contain a port space and a
//! port (IBTA volume 1, annex A11), as in Linux' `rdma_cm`.
//!
//! ```text
//! 0000 0000 01 ss pppp    ss: protocol of the port space, pppp: port
//! 0000 0000 01 3f pppp    the port space IB
//! ```

use core::fmt;

/// Upper five bytes of the service ids of the RDMA IP CM service.
const RDMA_IP: u64 = 0x01 << 24;
const RDMA_IP_MASK: u64 = !0x00ff_ffff;
const SPACE_SHIFT: u32 = 16;

/// Port space, by the number in a service id.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum PortSpace {
    /// IP over InfiniBand's datagrams (`RDMA_PS_IPOIB`).
    Ipoib = 0x02,
    /// Connections (`RDMA_PS_TCP`): protocol 6.
    Tcp = 0x06,
    /// Datagrams (`RDMA_PS_UDP`): protocol 17.
    Udp = 0x11,
    /// Connections and datagrams of programs that use InfiniBand service ids (`RDMA_PS_IB`).
    Ib = 0x3f,
}

impl PortSpace {
    /// Returns the port space with this number, or `None`.
    const fn of(number: u8) -> Option<PortSpace> {
        Some(match number {
            0x02 => PortSpace::Ipoib,
            0x06 => PortSpace::Tcp,
            0x11 => PortSpace::Udp,
            0x3f => PortSpace::Ib,
            _ => return None,
        })
    }

    /// Returns true if services of this port space use connections.
    pub const fn has_connections(self) -> bool {
        matches!(self, PortSpace::Tcp | PortSpace::Ib)
    }

    /// Returns true if services of this port space use datagrams, so that SIDR finds their queue pairs.
    pub const fn has_datagrams(self) -> bool {
        !matches!(self, PortSpace::Tcp)
    }
}

/// Service that a REQ or SIDR_REQ requests, any 64 bits.
#[derive(Copy, Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct ServiceId(pub u64);

super::fields::numbers! {
    ServiceId: number => ServiceId(number), value => value.0;
}

impl ServiceId {
    /// Returns the service id of a port.
    pub const fn rdma_ip(space: PortSpace, port: u16) -> ServiceId {
        ServiceId(RDMA_IP | (space as u64) << SPACE_SHIFT | port as u64)
    }

    /// Returns true for service ids of the RDMA IP CM service, whose private data starts with
    /// [`ip_cm`](super::ip_cm).
    pub const fn is_rdma_ip(self) -> bool {
        self.0 & RDMA_IP_MASK == RDMA_IP
    }

    /// Returns the port space, or `None` if `rdma_cm` does not define it.
    pub const fn port_space(self) -> Option<PortSpace> {
        if self.is_rdma_ip() { PortSpace::of((self.0 >> SPACE_SHIFT) as u8) } else { None }
    }

    /// Returns the port. Valid only for service ids of the RDMA IP CM service.
    pub const fn port(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Display for ServiceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#018x}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ports_have_the_service_ids_of_rdma_cm() {
        for (space, id) in [
            (PortSpace::Tcp, 0x0106_1c06),
            (PortSpace::Udp, 0x0111_1c06),
            (PortSpace::Ib, 0x013f_1c06),
            (PortSpace::Ipoib, 0x0102_1c06),
        ] {
            assert_eq!(ServiceId::rdma_ip(space, 7174), ServiceId(id));
            assert_eq!((ServiceId(id).port_space(), ServiceId(id).port()), (Some(space), 7174));
        }
        assert_eq!(ServiceId(0x0106_1c06).to_string(), "0x0000000001061c06");
    }

    #[test]
    fn other_service_ids_have_no_port_space() {
        assert!(ServiceId(0x0107_0001).is_rdma_ip());
        for id in [0, 0x0006_1c06, 0x0206_1c06, 0x1_0106_1c06, u64::MAX, 0x0107_0001] {
            assert_eq!(ServiceId(id).port_space(), None, "{id:#x}");
        }
    }

    #[test]
    fn a_port_space_has_connections_or_datagrams() {
        let kinds = |space: PortSpace| (space.has_connections(), space.has_datagrams());
        assert_eq!(kinds(PortSpace::Tcp), (true, false));
        assert_eq!(kinds(PortSpace::Udp), (false, true));
        assert_eq!(kinds(PortSpace::Ipoib), (false, true));
        assert_eq!(kinds(PortSpace::Ib), (true, true));
    }
}
