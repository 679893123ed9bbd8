//! LDS: the memory that the waves of a workgroup share.

use super::atomic;
use crate::{
    check::race::{Accessor, LdsShadow},
    fault::{FaultKind, Problem},
    isa::op::AtomicOp,
};

/// The LDS of a workgroup.
#[derive(Debug, Default)]
pub(crate) struct Lds {
    bytes: Vec<u8>,
    /// True if each byte was written.
    written: Vec<bool>,
    shadow: Option<LdsShadow>,
    checks_alignment: bool,
}

impl Lds {
    pub(crate) fn new(shadow: Option<LdsShadow>, checks_alignment: bool) -> Self {
        Self { shadow, checks_alignment, ..Self::default() }
    }

    /// Prepares for another workgroup.
    pub(crate) fn reset(&mut self, size: usize) {
        self.bytes.clear();
        self.bytes.resize(size, 0);
        self.written.clear();
        self.written.resize(size, false);
        if let Some(shadow) = &mut self.shadow {
            shadow.reset(size);
        }
    }

    fn range(&self, address: u32, bytes: u32) -> Result<std::ops::Range<usize>, FaultKind> {
        let start = address as usize;
        let end = start + bytes as usize;
        if end > self.bytes.len() {
            let size = self.bytes.len() as u32;
            return Err(FaultKind::LdsBounds { address, bytes, size });
        }
        // Larger accesses need no more than the alignment of their dwords.
        let alignment = bytes.min(4);
        if self.checks_alignment && alignment.is_power_of_two() && address & (alignment - 1) != 0 {
            return Err(FaultKind::Misaligned { address: address.into(), alignment });
        }
        Ok(start..end)
    }

    /// Loads up to 16 bytes, and whether all of them were written.
    pub(crate) fn load(
        &mut self,
        accessor: Accessor,
        address: u32,
        bytes: u32,
    ) -> Result<([u32; 4], bool), FaultKind> {
        let range = self.range(address, bytes)?;
        if let Some(shadow) = &mut self.shadow {
            shadow.read(accessor, range.clone())?;
        }
        let mut words = [[0; 4]; 4];
        words.as_flattened_mut()[..range.len()].copy_from_slice(&self.bytes[range.clone()]);
        let written = self.written[range].iter().all(|&written| written);
        Ok((words.map(u32::from_le_bytes), written))
    }

    /// Stores up to 16 bytes.
    pub(crate) fn store(
        &mut self,
        accessor: Accessor,
        address: u32,
        bytes: u32,
        words: [u32; 4],
    ) -> Result<(), FaultKind> {
        let range = self.range(address, bytes)?;
        if let Some(shadow) = &mut self.shadow {
            shadow.write(accessor, range.clone())?;
        }
        let words = words.map(u32::to_le_bytes);
        self.bytes[range.clone()].copy_from_slice(&words.as_flattened()[..range.len()]);
        self.written[range].fill(true);
        Ok(())
    }

    /// Updates a value and returns the old one.
    pub(crate) fn update(
        &mut self,
        accessor: Accessor,
        address: u32,
        (op, wide): (AtomicOp, bool),
        data: u64,
        compare: u64,
    ) -> Result<u64, Problem> {
        let bytes = if wide { 8 } else { 4 };
        let range = self.range(address, bytes)?;
        if address & (bytes - 1) != 0 {
            let alignment = bytes;
            return Err(FaultKind::Misaligned { address: address.into(), alignment }.into());
        }
        if let Some(shadow) = &mut self.shadow {
            shadow.update(accessor, range.clone())?;
        }
        let mut old = [0; 8];
        old[..range.len()].copy_from_slice(&self.bytes[range.clone()]);
        let old = u64::from_le_bytes(old);
        let new = atomic::apply(op, wide, old, data, compare).to_le_bytes();
        self.bytes[range.clone()].copy_from_slice(&new[..range.len()]);
        self.written[range].fill(true);
        Ok(old)
    }
}
