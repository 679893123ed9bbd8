//! The memory of a device: allocations, checked addresses, initialised bytes.
//!
//! [`Memory`] owns the table of allocations. A launch takes a snapshot of it, [`Ranges`], and
//! resolves addresses to [`View`]s without a lock.

mod allocation;
mod fault;
mod ranges;
mod view;

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, Weak};

pub use self::allocation::{Allocation, AllocationKind, AllocationRange};
pub use self::fault::AccessFault;
pub use self::ranges::{Hint, Ranges};
pub use self::view::View;
use crate::Error;

/// Allocations start at multiples of this, as on ROCm.
const ALIGNMENT: u64 = 4096;
/// The unused range after each allocation. An access beyond the end of an allocation is in no other
/// one unless it is further away than this.
const GAP: u64 = 64 << 10;
/// The number of freed ranges that are remembered.
const REMEMBERED: usize = 1 << 16;

/// The properties of a [`Memory`].
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub struct MemoryOptions {
    /// The size of the device's memory in bytes.
    pub capacity_bytes: u64,
    /// The first address of device memory. Host memory keeps its own addresses, which are higher
    /// than the default on every supported system. Devices of one process differ in this.
    pub first_address: u64,
    /// True if to record which bytes were written. It costs a quarter more memory.
    pub track_initialised: bool,
}

impl Default for MemoryOptions {
    /// 24 GiB, without a record of written bytes.
    fn default() -> Self {
        Self { capacity_bytes: 24 << 30, first_address: 0x1000_0000_0000, track_initialised: false }
    }
}

impl MemoryOptions {
    /// Sets [`capacity_bytes`](Self::capacity_bytes).
    #[must_use]
    pub fn with_capacity_bytes(mut self, capacity_bytes: u64) -> Self {
        self.capacity_bytes = capacity_bytes;
        self
    }

    /// Sets [`first_address`](Self::first_address).
    #[must_use]
    pub fn with_first_address(mut self, first_address: u64) -> Self {
        self.first_address = first_address;
        self
    }

    /// Sets [`track_initialised`](Self::track_initialised).
    #[must_use]
    pub fn with_track_initialised(mut self, track_initialised: bool) -> Self {
        self.track_initialised = track_initialised;
        self
    }
}

/// The address space of one device.
///
/// Host memory that the device can access is part of it; see [`Memory::allocate_host`].
#[derive(Debug)]
pub struct Memory {
    options: MemoryOptions,
    table: RwLock<Table>,
}

#[derive(Debug)]
struct Table {
    /// Live allocations in order of their addresses; shared with snapshots.
    live: Arc<Vec<Arc<Allocation>>>,
    /// Freed ranges by address; shared with snapshots.
    freed: Arc<BTreeMap<u64, AllocationRange>>,
    /// The memory of other devices that kernels of this one access.
    peers: Vec<Weak<Memory>>,
    next_address: u64,
    next_id: u32,
    used_bytes: u64,
}

/// One part of a code object in memory.
#[derive(Debug)]
pub(crate) struct Segment<'a> {
    /// The distance from the start of the image.
    pub(crate) offset: u64,
    /// The size in memory.
    pub(crate) bytes: u64,
    /// True if the kernels may write it.
    pub(crate) writable: bool,
    /// The first bytes; the rest is zero.
    pub(crate) contents: &'a [u8],
}

impl Memory {
    /// An empty address space.
    pub fn new(options: MemoryOptions) -> Self {
        let table = Table {
            live: Arc::default(),
            freed: Arc::default(),
            peers: Vec::new(),
            next_address: options.first_address,
            next_id: 0,
            used_bytes: 0,
        };
        Self { options, table: RwLock::new(table) }
    }

    /// The properties.
    pub fn options(&self) -> MemoryOptions {
        self.options
    }

    /// The size of all device allocations in bytes.
    pub fn used_bytes(&self) -> u64 {
        self.read_table().used_bytes
    }

    /// Allocates device memory. The contents are zero but count as not initialised.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the device or the host has too little memory.
    pub fn allocate(&self, bytes: u64) -> Result<u64, Error> {
        let mut table = self.write_table();
        let base = table.next_address;
        table.insert(&self.options, AllocationKind::Device, base, bytes)?;
        Ok(base)
    }

    /// Allocates host memory that the device can access. Its address is the address of the bytes
    /// in this process, so the host uses it as a pointer.
    ///
    /// The host's own accesses are not seen by this crate, so all bytes count as initialised.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the host has too little memory.
    pub fn allocate_host(&self, bytes: u64) -> Result<u64, Error> {
        let mut table = self.write_table();
        table.insert(&self.options, AllocationKind::Host, 0, bytes)
    }

    /// Makes host memory of another device accessible to this one.
    ///
    /// # Errors
    ///
    /// [`Error::NotAllocated`] if no host memory of `other` starts at the address.
    pub fn share_host(&self, other: &Self, address: u64) -> Result<(), Error> {
        let allocation = other.read_table().find(address)?;
        if allocation.kind() != AllocationKind::Host {
            return Err(Error::NotAllocated { address, freed: false });
        }
        self.write_table().add(allocation);
        Ok(())
    }

    /// Makes the device memory of another device accessible to kernels of this one, also what is
    /// allocated later. Returns false if it is accessible already.
    pub fn add_peer(&self, other: &Arc<Self>) -> bool {
        let mut table = self.write_table();
        let other = Arc::downgrade(other);
        let is_new = !table.peers.iter().any(|peer| peer.ptr_eq(&other));
        if is_new {
            table.peers.push(other);
        }
        is_new
    }

    /// Ends what [`add_peer`](Self::add_peer) began. Returns false if the memory is not accessible.
    pub fn remove_peer(&self, other: &Arc<Self>) -> bool {
        let mut table = self.write_table();
        let (before, other) = (table.peers.len(), Arc::downgrade(other));
        table.peers.retain(|peer| !peer.ptr_eq(&other));
        table.peers.len() < before
    }

    /// Allocates memory that kernels only read, such as the arguments of a launch.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfMemory`] if the host has too little memory.
    pub fn allocate_arguments(&self, contents: &[u8]) -> Result<u64, Error> {
        let mut table = self.write_table();
        let base = table.next_address;
        let bytes = contents.len() as u64;
        table.insert(&self.options, AllocationKind::Arguments, base, bytes)?;
        table.initialise(base, contents);
        Ok(base)
    }

    /// Reserves addresses for a code object of this size and returns the first one.
    pub(crate) fn reserve_image(&self, bytes: u64) -> u64 {
        let mut table = self.write_table();
        let base = table.next_address;
        table.next_address = (base + bytes + GAP).next_multiple_of(ALIGNMENT);
        base
    }

    /// Allocates the segments of a code object at reserved addresses.
    pub(crate) fn allocate_image(&self, start: u64, segments: &[Segment<'_>]) -> Result<(), Error> {
        let mut table = self.write_table();
        for (position, segment) in segments.iter().enumerate() {
            let kind =
                if segment.writable { AllocationKind::Variables } else { AllocationKind::Code };
            let base = start + segment.offset;
            if let Err(error) = table.insert(&self.options, kind, base, segment.bytes) {
                for segment in &segments[..position] {
                    table.remove(start + segment.offset)?;
                }
                return Err(error);
            }
            table.initialise(base, segment.contents);
        }
        Ok(())
    }

    /// Frees an allocation. Snapshots that exist keep its bytes until they are dropped.
    ///
    /// # Errors
    ///
    /// [`Error::NotAllocated`] if no allocation starts at the address.
    pub fn free(&self, address: u64) -> Result<(), Error> {
        self.write_table().remove(address).map(drop)
    }

    /// The allocations at this moment.
    pub fn ranges(&self) -> Ranges {
        let table = self.read_table();
        Ranges::new(Arc::clone(&table.live), Arc::clone(&table.freed))
    }

    /// The allocations at this moment that kernels access: also those of peers.
    pub(crate) fn accessible(&self) -> Ranges {
        let peers: Vec<_> = self.read_table().peers.iter().filter_map(Weak::upgrade).collect();
        let of_peers: Vec<_> =
            peers.iter().map(|peer| Arc::clone(&peer.read_table().live)).collect();
        let of_peers = of_peers.iter().flat_map(|live| live.iter());
        let of_peers = of_peers.filter(|allocation| allocation.kind() == AllocationKind::Device);
        self.ranges().with(of_peers.cloned())
    }

    fn read_table(&self) -> RwLockReadGuard<'_, Table> {
        // No code panics while it holds the lock half-way through a change.
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_table(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// Adds an allocation at `base`, or for host memory at the address of its bytes, and returns
    /// its address.
    fn insert(
        &mut self,
        options: &MemoryOptions,
        kind: AllocationKind,
        base: u64,
        bytes: u64,
    ) -> Result<u64, Error> {
        let free_bytes = options.capacity_bytes.saturating_sub(self.used_bytes);
        let error = Error::OutOfMemory { requested_bytes: bytes, free_bytes };
        let end = base.checked_add(bytes).and_then(|end| end.checked_add(GAP + ALIGNMENT));
        let Some(end) = end else { return Err(error) };
        if kind.is_device_memory() && bytes > free_bytes {
            return Err(error);
        }
        let tracked = options.track_initialised && kind != AllocationKind::Host;
        let id = self.next_id;
        let Some(allocation) = Allocation::new(id, kind, base, bytes, tracked) else {
            return Err(error);
        };
        self.next_id += 1;
        let base = allocation.base();
        if kind != AllocationKind::Host {
            self.next_address = self.next_address.max(end / ALIGNMENT * ALIGNMENT);
        }
        self.add(Arc::new(allocation));
        Ok(base)
    }

    fn add(&mut self, allocation: Arc<Allocation>) {
        let range = allocation.range();
        match range.kind {
            // The host's allocator reuses addresses.
            AllocationKind::Host => self.forget_freed(range),
            kind if kind.is_device_memory() => self.used_bytes += range.bytes,
            _ => {}
        }
        let place = self.live.partition_point(|other| other.base() < range.base);
        Arc::make_mut(&mut self.live).insert(place, allocation);
    }

    /// Forgets the freed ranges that overlap a range. Freed ranges do not overlap each other, so
    /// the search from the last one ends at the first that lies before the range.
    fn forget_freed(&mut self, range: AllocationRange) {
        let freed = Arc::make_mut(&mut self.freed);
        while let Some((&base, last)) = freed.range(..range.end()).next_back() {
            if last.end() <= range.base {
                break;
            }
            freed.remove(&base);
        }
    }

    /// Writes the first bytes of an allocation; the rest counts as zeros that were written.
    fn initialise(&self, base: u64, contents: &[u8]) {
        if let Ok(allocation) = self.find(base) {
            let view = View::whole(&allocation);
            view.write(0, contents);
            view.mark_all();
        }
    }

    fn find(&self, address: u64) -> Result<Arc<Allocation>, Error> {
        Ok(Arc::clone(&self.live[self.place(address)?]))
    }

    /// The position of the allocation that starts at the address.
    fn place(&self, address: u64) -> Result<usize, Error> {
        self.live
            .binary_search_by_key(&address, |allocation| allocation.base())
            .map_err(|_| Error::NotAllocated { address, freed: self.freed.contains_key(&address) })
    }

    fn remove(&mut self, address: u64) -> Result<Arc<Allocation>, Error> {
        let place = self.place(address)?;
        let allocation = Arc::make_mut(&mut self.live).remove(place);
        if allocation.kind().is_device_memory() {
            self.used_bytes -= allocation.bytes();
        }
        let freed = Arc::make_mut(&mut self.freed);
        if freed.len() == REMEMBERED {
            freed.pop_first();
        }
        freed.insert(address, allocation.range());
        Ok(allocation)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn memory(capacity_bytes: u64) -> Memory {
        Memory::new(MemoryOptions { capacity_bytes, track_initialised: true, ..Default::default() })
    }

    #[test]
    fn an_address_is_never_given_out_twice() {
        let memory = memory(1000);
        let mut seen = Vec::new();
        for _ in 0..100 {
            let address = memory.allocate(900).unwrap();
            assert!(!seen.contains(&address));
            seen.push(address);
            memory.free(address).unwrap();
        }
        assert_eq!(memory.used_bytes(), 0);
    }

    #[test]
    fn addresses_that_the_host_uses_again_are_no_longer_freed() {
        let memory = memory(0);
        let mut table = memory.write_table();
        let range =
            |base, bytes| AllocationRange { id: 0, kind: AllocationKind::Host, base, bytes };
        for base in [0, 10, 20, 30, 40] {
            Arc::make_mut(&mut table.freed).insert(base, range(base, 8));
        }
        // It touches two ranges.
        table.forget_freed(range(8, 2));
        assert_eq!(table.freed.len(), 5);
        // It overlaps the end of one, another one, and the start of a third.
        table.forget_freed(range(17, 14));
        assert!(table.freed.keys().eq(&[0, 40]));
    }

    #[test]
    fn capacity_counts_what_is_allocated_and_not_freed() {
        let memory = memory(1000);
        let first = memory.allocate(600).unwrap();
        let error = memory.allocate(401).unwrap_err();
        assert_eq!(error.to_string(), "out of device memory: 401 bytes requested, 400 free");
        memory.allocate_host(5000).unwrap();
        memory.free(first).unwrap();
        memory.allocate(1000).unwrap();
    }

    #[test]
    fn a_second_free_is_named() {
        let memory = memory(1000);
        let address = memory.allocate(10).unwrap();
        memory.free(address).unwrap();
        let error = memory.free(address).unwrap_err().to_string();
        assert!(error.ends_with("it was freed already"), "{error}");
        let error = memory.free(address + 1).unwrap_err().to_string();
        assert!(
            error.starts_with("no allocation starts at") && !error.contains("freed"),
            "{error}"
        );
    }

    #[test]
    fn host_memory_has_the_address_of_its_bytes() {
        let memory = memory(0);
        let address = memory.allocate_host(6000).unwrap();
        assert_eq!(address % 4096, 0);
        let ranges = memory.ranges();
        let view = ranges.resolve(address, 6000, &mut Hint::default()).unwrap();
        view.write(5996, &[1, 2, 3, 4]);
        assert_eq!(view.allocation().host_address() as u64, address);
        assert!(view.is_initialised(0, 6000));
    }

    #[test]
    fn devices_share_host_memory() {
        let (first, second) = (memory(0), memory(0));
        let address = first.allocate_host(8).unwrap();
        second.share_host(&first, address).unwrap();
        let (of_first, of_second) = (first.ranges(), second.ranges());
        let view = of_first.resolve(address, 8, &mut Hint::default()).unwrap();
        view.store_u32(4, 77);
        let view = of_second.resolve(address, 8, &mut Hint::default()).unwrap();
        assert_eq!(view.load_u32(4), 77);
        first.free(address).unwrap();
        assert!(second.share_host(&first, address).is_err());
    }

    #[test]
    fn kernels_access_the_device_memory_of_peers() {
        let (first, second) = (Arc::new(memory(8)), MemoryOptions::default());
        let second = Memory::new(second.with_first_address(1 << 50).with_capacity_bytes(8));
        let can_read =
            |address| second.accessible().resolve(address, 8, &mut Hint::default()).is_ok();
        let (of_first, arguments) = (first.allocate(8).unwrap(), first.allocate_arguments(&[0; 8]));
        assert!(!can_read(of_first));
        assert!(second.add_peer(&first) && !second.add_peer(&first));
        assert!(can_read(of_first) && !can_read(arguments.unwrap()));
        assert!(can_read(second.allocate(8).unwrap()), "own memory stays accessible");
        assert_eq!(second.ranges().allocations().len(), 1, "peers keep their memory");
        assert!(second.remove_peer(&first) && !second.remove_peer(&first));
        assert!(!can_read(of_first));
    }

    #[test]
    fn an_impossible_size_is_out_of_memory() {
        let memory = memory(u64::MAX);
        for bytes in [u64::MAX, u64::MAX / 2, 1 << 60] {
            assert!(matches!(memory.allocate(bytes), Err(Error::OutOfMemory { .. })));
            assert!(matches!(memory.allocate_host(bytes), Err(Error::OutOfMemory { .. })));
        }
    }
}
