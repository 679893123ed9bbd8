//! The allocations at one moment, and the search for an address in them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{AccessFault, Allocation, AllocationRange, View};

/// The position of the last hit in [`Ranges`]. Accesses of one instruction usually hit the same
/// allocation again, so the search rarely runs.
#[derive(Debug, Clone, Copy, Default)]
pub struct Hint(usize);

impl Hint {
    /// The position of the allocation of the last hit in [`Ranges::allocations`].
    pub(crate) fn position(self) -> usize {
        self.0
    }
}

/// The allocations of a [`Memory`](super::Memory) at one moment. Later allocations and frees do not
/// change it. The bytes are those of the memory and not a copy: [`resolve`](Self::resolve) and
/// [`resolve_writable`](Self::resolve_writable) give access to them. It is cheap to clone.
#[derive(Debug, Clone)]
pub struct Ranges {
    live: Arc<Vec<Arc<Allocation>>>,
    freed: Arc<BTreeMap<u64, AllocationRange>>,
}

impl Ranges {
    pub(super) fn new(
        live: Arc<Vec<Arc<Allocation>>>,
        freed: Arc<BTreeMap<u64, AllocationRange>>,
    ) -> Self {
        Self { live, freed }
    }

    /// Adds allocations of other memory.
    pub(super) fn with(mut self, others: impl Iterator<Item = Arc<Allocation>>) -> Self {
        let mut others = others.peekable();
        if others.peek().is_some() {
            let live = Arc::make_mut(&mut self.live);
            live.extend(others);
            live.sort_by_key(|allocation| allocation.base());
        }
        self
    }

    /// The live allocations in order of their addresses.
    pub fn allocations(&self) -> impl ExactSizeIterator<Item = &Allocation> {
        self.live.iter().map(|allocation| &**allocation)
    }

    /// The bytes from `address` on, for reading.
    ///
    /// # Errors
    ///
    /// The fault, if the bytes are not within one live allocation.
    #[inline]
    pub fn resolve(
        &self,
        address: u64,
        bytes: u64,
        hint: &mut Hint,
    ) -> Result<View<'_>, AccessFault> {
        if let Some(view) = self.live.get(hint.0).and_then(|hit| View::within(hit, address, bytes))
        {
            return Ok(view);
        }
        self.search(address, bytes, hint)
    }

    /// The bytes from `address` on, for writing.
    ///
    /// # Errors
    ///
    /// The fault, if the bytes are not within one live allocation or are read-only.
    #[inline]
    pub fn resolve_writable(
        &self,
        address: u64,
        bytes: u64,
        hint: &mut Hint,
    ) -> Result<View<'_>, AccessFault> {
        let view = self.resolve(address, bytes, hint)?;
        if view.allocation().kind().is_writable() {
            Ok(view)
        } else {
            Err(AccessFault::ReadOnly { address, bytes, range: view.allocation().range() })
        }
    }

    #[cold]
    fn search(&self, address: u64, bytes: u64, hint: &mut Hint) -> Result<View<'_>, AccessFault> {
        let after = self.live.partition_point(|allocation| allocation.base() <= address);
        if let Some(place) = after.checked_sub(1)
            && let Some(view) = View::within(&self.live[place], address, bytes)
        {
            hint.0 = place;
            return Ok(view);
        }
        Err(self.fault(address, bytes, after))
    }

    /// The reason why an access is not allowed; `after` is the first allocation after `address`.
    fn fault(&self, address: u64, bytes: u64, after: usize) -> AccessFault {
        let end = address.saturating_add(bytes.max(1));
        let freed = self.freed.range(..end).next_back().map(|(_, range)| *range);
        if let Some(freed) = freed.filter(|range| range.end() > address) {
            return AccessFault::Freed { address, bytes, freed };
        }
        let before = after.checked_sub(1).map(|place| self.live[place].range());
        let next = self.live.get(after).map(|allocation| allocation.range());
        let nearest = match (before, next) {
            (Some(before), Some(next)) => {
                let past = address.saturating_sub(before.end());
                Some(if past <= next.base.saturating_sub(end) { before } else { next })
            }
            (before, next) => before.or(next),
        };
        AccessFault::OutOfBounds { address, bytes, nearest }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::memory::{Memory, MemoryOptions};

    fn fault(memory: &Memory, address: u64, bytes: u64) -> String {
        memory.ranges().resolve(address, bytes, &mut Hint::default()).unwrap_err().to_string()
    }

    #[test]
    fn bounds_are_checked_to_the_byte() {
        let memory = Memory::new(MemoryOptions::default());
        let address = memory.allocate(10).unwrap();
        let resolve = |offset: i64, bytes| {
            let address = address.wrapping_add_signed(offset);
            memory.ranges().resolve(address, bytes, &mut Hint::default()).is_ok()
        };
        assert!(resolve(0, 10) && resolve(9, 1) && resolve(10, 0));
        assert!(!resolve(0, 11) && !resolve(10, 1) && !resolve(-1, 1) && !resolve(-1, 2));
    }

    #[test]
    fn a_fault_names_the_nearest_allocation_and_the_distance() {
        let memory = Memory::new(MemoryOptions::default());
        assert!(fault(&memory, 0, 4).ends_with("the device has no allocation"));
        let address = memory.allocate(100).unwrap();
        let named = format!("device allocation 0 (100 bytes at {address:#x})");
        let message = fault(&memory, address + 112, 4);
        assert!(message.ends_with(&format!("12 bytes past the end of {named}")), "{message}");
        let message = fault(&memory, address + 98, 4);
        assert!(message.ends_with(&format!("the last 2 bytes are past the end of {named}")));
        let message = fault(&memory, address - 8, 4);
        assert!(message.ends_with(&format!("8 bytes before {named}")), "{message}");
        let message = fault(&memory, address - 2, 4);
        assert!(message.ends_with(&format!("the first 2 bytes are before {named}")), "{message}");
    }

    #[test]
    fn an_access_of_freed_memory_is_named() {
        let memory = Memory::new(MemoryOptions::default());
        let address = memory.allocate(100).unwrap();
        let before = memory.ranges();
        memory.free(address).unwrap();
        let message = fault(&memory, address + 8, 4);
        assert!(message.contains("were freed: 8 into device allocation 0"), "{message}");
        assert!(before.resolve(address, 100, &mut Hint::default()).is_ok(), "snapshots are stable");
    }

    #[test]
    fn arguments_are_read_only() {
        let memory = Memory::new(MemoryOptions::default());
        let address = memory.allocate_arguments(&[1, 2, 3, 4]).unwrap();
        let (ranges, mut hint) = (memory.ranges(), Hint::default());
        assert_eq!(ranges.resolve(address, 4, &mut hint).unwrap().load_u32(0), 0x0403_0201);
        let fault = ranges.resolve_writable(address, 4, &mut hint).unwrap_err();
        assert!(fault.to_string().contains("read-only: they belong to kernel arguments 0"));
    }

    proptest! {
        #[test]
        fn resolving_agrees_with_a_list_of_bytes(
            sizes in prop::collection::vec(0u64..200, 1..12),
            freed in prop::collection::vec(any::<bool>(), 12),
            accesses in prop::collection::vec((0usize..12, -20i64..220, 0u64..40), 64),
        ) {
            let memory = Memory::new(MemoryOptions::default());
            let bases: Vec<_> = sizes.iter().map(|&bytes| memory.allocate(bytes).unwrap()).collect();
            for (&base, _) in bases.iter().zip(&freed).filter(|(_, freed)| **freed) {
                memory.free(base).unwrap();
            }
            let ranges = memory.ranges();
            let mut hint = Hint::default();
            for (which, offset, bytes) in accesses {
                let which = which % bases.len();
                let address = bases[which].wrapping_add_signed(offset);
                let inside = offset >= 0 && offset as u64 + bytes <= sizes[which];
                let outcome = ranges.resolve(address, bytes, &mut hint);
                prop_assert_eq!(outcome.is_ok(), inside && !freed[which]);
                if let Ok(view) = outcome {
                    prop_assert_eq!(view.offset() as i64, offset);
                }
            }
        }
    }
}
