//! Chooses the port and the address of this process's NIC. docs/guides/drop-in.md describes the variables.

use remora_broker::client::{
    self, ADDRESS, FAULT, Neighbours, Options, PORT, PortEvents, Range, Start, Watch,
};
use remora_broker::environment;
use remora_verbs::raw::{ChannelAdapter, Wanted};
use remora_verbs::{Device, MemoryConfig, OpenError, Rules};
use rustix::rand::{GetRandomFlags, getrandom};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;
use std::sync::Arc;

use crate::attributes;
use crate::faults::{self, Faults};
use crate::port_view::PortView;
use crate::source::Sources;

/// The UDP port of RoCE v2.
pub(crate) const ROCE_PORT: u16 = 4791;
/// Environment variable with the path of the file that records all frames.
const CAPTURE: &str = "REMORA_CAPTURE";
/// Environment variable with the maximum size of that file in bytes.
const CAPTURE_LIMIT: &str = "REMORA_CAPTURE_LIMIT";
/// Environment variable with the path of the file that records the NIC for `remora replay`.
pub(crate) const RECORD: &str = "REMORA_RECORD";
/// Environment variable with the maximum size of that file in bytes.
const RECORD_LIMIT: &str = "REMORA_RECORD_LIMIT";
/// Environment variable with the socket of the daemon that lends the NIC.
const NICD: &str = "REMORA_NICD";
/// Environment variable with the name under which that daemon keeps the NIC's objects when the program ends.
const KEEP: &str = "REMORA_KEEP";
/// Environment variable with the path of the file to which faults of verbs are appended.
const FAULT_LOG: &str = "REMORA_FAULT_LOG";
/// Environment variable that leaves page faults to the program if it is 0.
const GUARD: &str = "REMORA_GUARD";
/// Random loopback addresses that are tried for a forked child whose parent has its address alone.
const TRIES: u32 = 16;

/// The NIC of this process, with its share of the address.
pub(crate) struct Opened {
    pub adapter: Arc<ChannelAdapter>,
    /// Fails the NIC when the broker of a shared address is gone.
    pub watch: Option<Watch>,
    /// The present state of the port.
    pub port: Arc<PortView>,
    /// The addresses that the NIC sends from.
    pub sources: Sources,
    pub faults: Option<Arc<Faults>>,
}

/// Opens the NIC of this process, and its faults. `is_child`: the process was forked from one that has a NIC.
pub(crate) fn open(is_child: bool) -> Result<Opened, OpenError> {
    let faults = verb_faults()?;
    Ok(Opened { faults, ..open_port(is_child)? })
}

fn open_port(is_child: bool) -> Result<Opened, OpenError> {
    if text(GUARD)?.is_none_or(|value| value != "0") {
        // Without the handler, an access to a page that was unmapped ends the program
        // (docs/guides/drop-in.md).
        let _ = remora_verbs::page_fault::install();
    }
    if let Some(daemon) = text(NICD)? {
        return lent(Path::new(&daemon));
    }
    let port = text(PORT)?.unwrap_or_else(|| "auto".to_owned());
    let addresses = text(ADDRESS)?.map(|text| parse(&text)).transpose()?.unwrap_or_default();
    match port.split_once(':') {
        None if ["auto", "udp", "shm"].contains(&port.as_str()) => {}
        Some(("xdp", interface)) if !interface.is_empty() => {
            let own = addresses.first().map(|address| address.ip());
            let adapter = ChannelAdapter::open(&configured(Device::xdp(interface, own))?)?;
            let port = Arc::new(PortView::always(&adapter));
            let sources = Sources::new(&adapter, None);
            return Ok(Opened { adapter, watch: None, port, sources, faults: None });
        }
        _ => {
            let words =
                format!("{PORT}={port}: choose auto, udp, shm, or xdp with an interface, as in xdp:eth0");
            return Err(OpenError::Port(words));
        }
    }
    let options = Options { every_address: addresses.is_empty(), ..Options::from_environment() };
    let links = match port.as_str() {
        "udp" => LinkUse::Never,
        "shm" => LinkUse::Demanded,
        _ => LinkUse::Preferred,
    };
    let alone = is_child && options.start == Start::Alone;
    match &addresses[..] {
        _ if alone => beside(&options, links),
        [] => shared(client::default_address(), &[], &options, links),
        [first, further @ ..] => shared(*first, further, &options, links),
    }
}

/// Attaches to the NIC of the daemon that listens at this path.
fn lent(daemon: &Path) -> Result<Opened, OpenError> {
    let mut attachment = Device::nicd(daemon);
    if let Some(name) = text(KEEP)? {
        attachment = attachment.keep(name);
    }
    let adapter = ChannelAdapter::attach(&attachment)?;
    let udp_port = adapter.facts().endpoint.udp_port;
    if udp_port != ROCE_PORT {
        let words = format!(
            "{NICD}={}: its NIC has UDP port {udp_port}, and verbs programs address only {ROCE_PORT}: start the daemon with --share",
            daemon.display()
        );
        return Err(OpenError::Port(words));
    }
    let port = Arc::new(PortView::always(&adapter));
    let sources = Sources::new(&adapter, None);
    Ok(Opened { adapter, watch: None, port, sources, faults: None })
}

/// The use of shared-memory links for connections to neighbours.
#[derive(Copy, Clone, PartialEq, Eq)]
enum LinkUse {
    /// Connections use UDP.
    Never,
    /// Connections use a link if there is one, else UDP.
    Preferred,
    /// Connections without a link fail on the way to RTR.
    Demanded,
}

/// Opens a NIC on a share of an address, and of further addresses.
fn shared(
    address: SocketAddr,
    further: &[SocketAddr],
    options: &Options,
    links: LinkUse,
) -> Result<Opened, OpenError> {
    let words = |error: client::ClientError| OpenError::Port(error.to_string());
    let range = client::open(address, options).map_err(words)?;
    let device = configured(Device::shared(range.endpoint().clone()))?;
    let wanted = Arc::new(Wanted::new().map_err(std::io::Error::from)?);
    let adapter = ChannelAdapter::open(&device.neighbours(Arc::clone(&wanted)))?;
    let sources = Sources::new(&adapter, Some(range.clone()));
    for address in further {
        sources.add(*address)?;
    }
    let events = PortEvents::open(&range).map_err(words)?;
    if links == LinkUse::Never {
        return watched(sources, &range, None, events, adapter);
    }
    let demanded = links == LinkUse::Demanded;
    let neighbours = match Neighbours::start(&range, &adapter, wanted, demanded) {
        Ok(neighbours) => Some(neighbours),
        Err(error) if demanded => return Err(words(error)),
        // Without introductions, every connection uses UDP.
        Err(_) => None,
    };
    watched(sources, &range, neighbours, events, adapter)
}

/// Starts the thread that watches the broker, and returns the NIC with it.
fn watched(
    sources: Sources,
    range: &Range,
    neighbours: Option<Arc<Neighbours>>,
    events: PortEvents,
    adapter: Arc<ChannelAdapter>,
) -> Result<Opened, OpenError> {
    let counted = Arc::clone(&adapter);
    let failing = Arc::clone(&adapter);
    let port = Arc::new(PortView::new(events.first().clone()));
    adapter.learn_local(&port.addresses());
    let port_view = Arc::clone(&port);
    let learning = Arc::clone(&adapter);
    let events = events.on_change(move |state| {
        port_view.change(state);
        learning.learn_local(&port_view.addresses());
    });
    let watch =
        Watch::of(range, neighbours, Some(events), move || counted.counters(), move || failing.fail())?;
    Ok(Opened { adapter, watch: Some(watch), port, sources, faults: None })
}

/// Opens a NIC at a free loopback address, for a forked child whose parent has its address alone.
fn beside(options: &Options, links: LinkUse) -> Result<Opened, OpenError> {
    let mut opened = Err(OpenError::Port("no loopback address is free".to_owned()));
    let options = Options { every_address: false, ..options.clone() };
    for _ in 0..TRIES {
        let mut bytes = [0u8; 3];
        if getrandom(&mut bytes, GetRandomFlags::empty()) != Ok(bytes.len()) {
            break;
        }
        let [b, c, d] = bytes;
        let address = IpAddr::from(Ipv4Addr::new(127, b, c, d.clamp(2, 254)));
        opened = shared(SocketAddr::new(address, ROCE_PORT), &[], &options, links);
        if !matches!(opened, Err(OpenError::Port(_))) {
            break;
        }
    }
    opened
}

/// Returns the device with the limits in `attributes.rs`, and with the settings of the variables.
fn configured(device: Device) -> Result<Device, OpenError> {
    let memory = MemoryConfig { on_nic_bytes: attributes::DM_BYTES, ..MemoryConfig::default() };
    let mut device = device.nic_limits(attributes::limits()).memory_limits(memory);
    if let Some(file) = text(CAPTURE)? {
        device = device.capture(file);
    }
    if let Some(limit) = size(CAPTURE_LIMIT)? {
        device = device.capture_limit(limit);
    }
    if let Some(file) = text(RECORD)? {
        device = device.record(file);
    }
    if let Some(limit) = size(RECORD_LIMIT)? {
        device = device.record_limit(limit);
    }
    if let Some(rules) = rules()? {
        device = device.fault(faults::shifted(&rules));
    }
    Ok(device)
}

/// Returns the rules of the file that the environment names.
fn rules() -> Result<Option<Rules>, OpenError> {
    let Some(file) = text(FAULT)? else { return Ok(None) };
    let words = |error: &dyn std::fmt::Display| OpenError::Port(format!("{FAULT}={file}: {error}"));
    let rules = std::fs::read_to_string(&file).map_err(|error| words(&error))?;
    Rules::parse(&rules).map(Some).map_err(|error| words(&error))
}

/// Returns the faults of verbs that the environment asks for.
fn verb_faults() -> Result<Option<Arc<Faults>>, OpenError> {
    let Some(rules) = rules()? else { return Ok(None) };
    if faults::is_dead(&rules) {
        return Err(OpenError::Port("the device is dead, as the fault rules say".to_owned()));
    }
    let log = text(FAULT_LOG)?;
    Ok(Faults::of(&rules, log.as_deref())?.map(Arc::new))
}

/// Returns the number of bytes in a variable; `None` if it is unset or empty.
fn size(variable: &str) -> Result<Option<u64>, OpenError> {
    let Some(text) = text(variable)? else { return Ok(None) };
    let bytes = remora_verbs::parse_bytes(&text);
    bytes.map(Some).map_err(|error| OpenError::Port(format!("{variable}={text}: {error}")))
}

/// Returns the text of a variable; `None` if it is unset or empty.
fn text(variable: &str) -> Result<Option<String>, OpenError> {
    let value = environment::variable(variable).map(std::ffi::OsString::into_string).transpose();
    value.map_err(|value| OpenError::Port(format!("{variable}={}: not UTF-8 text", value.display())))
}

/// Parses a list of addresses separated by commas.
fn parse(text: &str) -> Result<Vec<SocketAddr>, OpenError> {
    text.split(',').map(|one| parse_one(one.trim())).collect()
}

/// Parses an address. A link-local address has its interface, as in `fe80::1%eth0`.
fn parse_one(text: &str) -> Result<SocketAddr, OpenError> {
    let (ip, _) = text.split_once('%').unwrap_or((text, ""));
    // Only the interface is looked up: a host name is not an address.
    let address = ip.parse::<IpAddr>().ok().and_then(|_| (text, ROCE_PORT).to_socket_addrs().ok()?.next());
    address.ok_or_else(|| {
        let words = format!("{ADDRESS}={text}: not an address of this machine; choose one such as 127.0.0.2");
        OpenError::Port(words)
    })
}
