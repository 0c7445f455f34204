//! Memory regions: registered memory of this process, and the description of one that a peer needs.

use remora_memory::{Access, AccessError, Bytes, Key, MemoryCommand, Range};
use remora_nic::{Device, DeviceError, Remote, Sge};
use std::sync::atomic::AtomicU64;
use zerocopy::{FromBytes, Immutable, IntoBytes};

use crate::nicd::message::Request;
use crate::{CreateError, ProtectionDomain};

/// Registered memory. The program reads and writes it by copying: peers may change it at any moment, so
/// there is never a reference to its bytes. Dropping the region deregisters it. After that no peer and no
/// work request accesses the memory, and work that still names its key ends in error.
#[derive(Debug)]
pub struct MemoryRegion {
    domain: ProtectionDomain,
    key: Key,
    /// The block that contains the region; `None` for memory that the caller owns.
    bytes: Option<Bytes>,
    /// Offset of the region in the block, in bytes.
    offset: usize,
    len: usize,
    iova: u64,
    /// True if the key is deregistered already, so that dropping the region must not do it.
    ended: bool,
}

/// The description of a region that is sent to peers: 20 bytes, which fit into the private data of a
/// connection.
#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub struct RemoteMemory {
    /// Address of the region's first byte, for work requests.
    pub addr: u64,
    /// Length of the region in bytes.
    pub len: u64,
    /// The key of remote accesses (R_Key).
    pub rkey: Key,
}

impl RemoteMemory {
    /// Length of the encoded description in bytes.
    pub const LEN: usize = 20;

    /// Returns the remote address `offset` bytes into the region. The owner's NIC checks that accesses lie
    /// inside.
    pub fn at(&self, offset: u64) -> Remote {
        Remote { addr: self.addr.wrapping_add(offset), rkey: self.rkey }
    }

    /// Encodes address, length and key, little-endian.
    pub fn to_bytes(&self) -> [u8; RemoteMemory::LEN] {
        let mut bytes = [0; RemoteMemory::LEN];
        bytes[..8].copy_from_slice(&self.addr.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.len.to_le_bytes());
        bytes[16..].copy_from_slice(&self.rkey.get().to_le_bytes());
        bytes
    }

    /// Decodes a description from the front of `bytes`. Returns `None` if there are fewer than 20 bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<RemoteMemory> {
        let (addr, rest) = bytes.split_first_chunk::<8>()?;
        let (len, rest) = rest.split_first_chunk::<8>()?;
        let (key, _) = rest.split_first_chunk::<4>()?;
        Some(RemoteMemory {
            addr: u64::from_le_bytes(*addr),
            len: u64::from_le_bytes(*len),
            rkey: Key::new(u32::from_le_bytes(*key)),
        })
    }
}

impl MemoryRegion {
    pub(crate) fn new(
        domain: &ProtectionDomain,
        ranges: &[Range],
        access: Access,
    ) -> Result<Self, CreateError> {
        let key = domain.key_of(MemoryCommand::Register { pd: domain.pd(), ranges, access })?;
        let lowest = ranges.iter().map(|range| range.iova).min().unwrap_or(0);
        let base = if access.contains(Access::ZERO_BASED) { lowest } else { 0 };
        let first = ranges.first();
        Ok(MemoryRegion {
            domain: domain.clone(),
            key,
            bytes: first.map(|range| range.bytes.clone()),
            offset: first.map_or(0, |range| range.offset),
            len: first.map_or(0, |range| range.len),
            iova: first.map_or(0, |range| range.iova - base),
            ended: false,
        })
    }

    /// Takes over a region that an earlier program of the tenant has left with the daemon.
    pub(crate) fn take_over(domain: &ProtectionDomain, key: Key, range: Range) -> MemoryRegion {
        let Range { bytes, offset, len, iova } = range;
        MemoryRegion { domain: domain.clone(), key, bytes: Some(bytes), offset, len, iova, ended: false }
    }

    /// Gives the region a name, by which a later program of the tenant recognises it. No effect if the NIC
    /// belongs to this process.
    pub(crate) fn set_name(&self, name: &str) -> Result<(), CreateError> {
        match self.domain.device().daemon().filter(|daemon| daemon.keeps()) {
            Some(daemon) if !name.is_empty() => {
                daemon.done(&Request::NameRegion { key: self.key.get(), name: name.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// Registers the caller's `len` bytes from `start` on.
    ///
    /// # Safety
    /// The conditions of [`ProtectionDomain::register_raw`].
    pub(crate) unsafe fn raw(
        domain: &ProtectionDomain,
        start: *mut u8,
        len: usize,
        access: Access,
    ) -> Result<MemoryRegion, CreateError> {
        let iova = if access.contains(Access::ZERO_BASED) { 0 } else { start as u64 };
        if len == 0 {
            return Err(remora_memory::Error::Invalid.into());
        }
        // SAFETY: the caller's promise.
        let key =
            unsafe { domain.device().engine()?.table().register_raw(domain.pd(), start, len, iova, access)? };
        Ok(MemoryRegion { domain: domain.clone(), key, bytes: None, offset: 0, len, iova, ended: false })
    }

    /// Deregisters the region, unless memory windows are bound to it.
    ///
    /// # Errors
    /// `Busy` (EBUSY) with the region, which stays registered.
    pub fn deregister(mut self) -> Result<(), (MemoryRegion, remora_memory::Error)> {
        let context = self.domain.context();
        if !context.fork().is_child()
            && let Err(error) = self.domain.device().memory(MemoryCommand::Deregister(self.key))
        {
            let error = match error {
                DeviceError::Memory(error) => error,
                _ => remora_memory::Error::Busy,
            };
            return Err((self, error));
        }
        self.ended = true;
        Ok(())
    }

    pub(crate) fn domain(&self) -> &ProtectionDomain {
        &self.domain
    }

    /// The local key (L_Key), for scatter/gather lists.
    pub fn lkey(&self) -> Key {
        self.key
    }

    /// The remote key (R_Key). A peer that knows it has all rights of the region.
    pub fn rkey(&self) -> Key {
        self.key
    }

    /// Address of the region's first byte, for work requests.
    #[inline]
    pub fn address(&self) -> u64 {
        self.iova
    }

    /// Length of the region's first range in bytes.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// The block that contains the region; `None` for memory that the caller owns.
    pub fn bytes(&self) -> Option<&Bytes> {
        self.bytes.as_ref()
    }

    /// Returns a scatter/gather list element for `len` bytes at `offset`. The NIC checks that they lie inside
    /// the region.
    #[inline]
    pub fn sge(&self, offset: usize, len: usize) -> Sge {
        Sge {
            addr: self.iova.wrapping_add(offset as u64),
            len: len.min(u32::MAX as usize) as u32,
            lkey: self.key,
        }
    }

    /// Returns the remote address `offset` bytes into the region, for a peer's work request.
    #[inline]
    pub fn remote(&self, offset: u64) -> Remote {
        Remote { addr: self.iova.wrapping_add(offset), rkey: self.key }
    }

    /// Returns the description of the whole region, to be sent to a peer.
    pub fn remote_memory(&self) -> RemoteMemory {
        RemoteMemory { addr: self.iova, len: self.len as u64, rkey: self.key }
    }

    /// Copies `out.len()` bytes of the region, from `offset` on, to `out`.
    ///
    /// # Errors
    /// `OutOfBounds`, also for memory that the caller owns. Nothing is copied then.
    #[inline]
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), AccessError> {
        let (bytes, start) = self.place(offset, out.len())?;
        bytes.read(start, out)
    }

    /// Copies `data` to the region at `offset`. The last byte becomes visible last.
    ///
    /// # Errors
    /// `OutOfBounds`, also for memory that the caller owns. Nothing is copied then.
    #[inline]
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), AccessError> {
        let (bytes, start) = self.place(offset, data.len())?;
        bytes.write(start, data)
    }

    /// Reads a plain value. The value may be a mix of old and new bytes if a peer writes it at the same time.
    ///
    /// # Errors
    /// The errors of [`read`](MemoryRegion::read).
    #[inline]
    pub fn get<T: FromBytes + IntoBytes>(&self, offset: usize) -> Result<T, AccessError> {
        let mut value = T::new_zeroed();
        self.read(offset, value.as_mut_bytes())?;
        Ok(value)
    }

    /// Writes a plain value.
    ///
    /// # Errors
    /// The errors of [`write`](MemoryRegion::write).
    #[inline]
    pub fn put<T: IntoBytes + Immutable>(&self, offset: usize, value: &T) -> Result<(), AccessError> {
        self.write(offset, value.as_bytes())
    }

    /// Returns the 64-bit word at `offset` as an atomic, on which compare-and-swap and fetch-and-add of peers
    /// work. `None` outside the region, for memory that the caller owns, or if the word is not aligned.
    #[inline]
    pub fn word(&self, offset: usize) -> Option<&AtomicU64> {
        let (bytes, start) = self.place(offset, 8).ok()?;
        bytes.word(start)
    }

    #[inline]
    fn place(&self, offset: usize, len: usize) -> Result<(&Bytes, usize), AccessError> {
        let bytes = self.bytes.as_ref().ok_or(AccessError::OutOfBounds)?;
        let end = offset.checked_add(len).ok_or(AccessError::OutOfBounds)?;
        if end > self.len { Err(AccessError::OutOfBounds) } else { Ok((bytes, self.offset + offset)) }
    }
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        let context = self.domain.context();
        if !self.ended && !context.fork().is_child() {
            // `revoke` also unbinds the windows of the region. A program that must know of them calls
            // `deregister`.
            self.domain.device().end_memory(MemoryCommand::Revoke(self.key));
        }
    }
}
