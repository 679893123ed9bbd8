//! LDS: the memory that the waves of a workgroup share.

use std::ops::Range;

use super::atomic;
use super::wave::{LANE_BITS, LANES, is_set, per_lane};
use crate::check::Checks;
use crate::check::race::{Accessor, LdsShadow};
use crate::fault::{FaultKind, Problem};
use crate::isa::op::AtomicOp;

/// The aligned dwords that the lanes of an instruction access.
#[derive(Debug)]
pub(crate) struct LdsSpread {
    /// The first dword of each lane; inactive lanes repeat an active one.
    first: [u32; LANES],
    exec: u32,
    /// True if all lanes access the same.
    is_uniform: bool,
}

impl LdsSpread {
    /// `None` if no lane is active, or one is outside LDS or not aligned.
    pub(crate) fn of(
        addresses: &[u32; LANES],
        offset: u32,
        exec: u32,
        size: usize,
        bytes: usize,
    ) -> Option<Self> {
        if exec == 0 {
            return None;
        }
        let leader = addresses[exec.trailing_zeros() as usize].wrapping_add(offset);
        let address = per_lane(|lane| {
            let address = addresses[lane].wrapping_add(offset);
            if exec & LANE_BITS[lane] == 0 { leader } else { address }
        });
        let (last, all, different) =
            address.iter().fold((0, 0, 0), |(last, all, different), &address| {
                (address.max(last), all | address, different | (address ^ leader))
            });
        let fits = last as usize + bytes <= size && all.is_multiple_of(4);
        let first = per_lane(|lane| address[lane] / 4);
        fits.then_some(Self { first, exec, is_uniform: different == 0 })
    }
}

/// The LDS of a workgroup.
#[derive(Debug, Default)]
pub(crate) struct Lds {
    bytes: Vec<u8>,
    /// A bit per byte that was written, 32 to an element.
    written: Vec<u32>,
    shadow: Option<LdsShadow>,
    checks_alignment: bool,
    /// False if nobody asks which bytes were written.
    tracks_written: bool,
}

impl Lds {
    pub(crate) fn new(shadow: Option<LdsShadow>, checks: Checks) -> Self {
        let (checks_alignment, tracks_written) = (checks.alignment, checks.uninitialised);
        Self { shadow, checks_alignment, tracks_written, ..Self::default() }
    }

    /// Prepares for another workgroup.
    pub(crate) fn reset(&mut self, size: usize) {
        self.bytes.clear();
        self.bytes.resize(size, 0);
        self.written.clear();
        self.written.resize(size / 32 + 1, 0);
        if let Some(shadow) = &mut self.shadow {
            shadow.reset(size);
        }
    }

    fn range(&self, address: u32, bytes: u32) -> Result<Range<usize>, FaultKind> {
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

    /// The bits of 64 bytes.
    fn element(&self, element: usize) -> u64 {
        let high = self.written.get(element + 1).copied().unwrap_or(0);
        u64::from(self.written[element]) | u64::from(high) << 32
    }

    /// Records that bytes are written.
    fn mark(&mut self, range: &Range<usize>) {
        let (element, mask) = bits(range);
        self.written[element] |= mask as u32;
        if let Some(next) = self.written.get_mut(element + 1) {
            *next |= (mask >> 32) as u32;
        }
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
        let (element, mask) = bits(&range);
        let written = self.element(element) & mask == mask;
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
        self.mark(&range);
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Loads the dwords of all lanes and returns the lanes in which they were written. `None` if
    /// there is a race, or if bytes of the dwords were accessed apart.
    pub(crate) fn load_lanes(
        &mut self,
        accessor: Accessor,
        spread: &LdsSpread,
        out: &mut [[u32; LANES]],
    ) -> Option<u32> {
        // RDNA 3 holds operands of matrices twice, so both halves of a wave read the same.
        let (low, high) = spread.first.split_at(LANES / 2);
        let first = match (spread.is_uniform, low == high) {
            (true, _) => &low[..1],
            (false, true) => low,
            (false, false) => &spread.first,
        };
        if let Some(shadow) = &mut self.shadow {
            let mut is_fine = true;
            let mut last = None;
            for &first in first {
                // Neighbours often read the same.
                if last != Some(first) {
                    is_fine &= shadow.read_words(accessor, first as usize, out.len());
                }
                last = Some(first);
            }
            if !is_fine {
                return None;
            }
        }
        let mut unwritten = 0;
        if self.tracks_written {
            for (lane, &first) in first.iter().enumerate() {
                let range = first as usize * 4..(first as usize + out.len()) * 4;
                let (element, mask) = bits(&range);
                let is_written = self.element(element) & mask == mask;
                unwritten |= u32::from(!is_written) << lane;
            }
        }
        for (lane, &first) in first.iter().enumerate() {
            let bytes = self.bytes.get(first as usize * 4..).unwrap_or_default();
            for (out, &word) in out.iter_mut().zip(bytes.as_chunks().0) {
                out[lane] = u32::from_le_bytes(word);
            }
        }
        // The other lanes repeat these.
        let lanes = first.len();
        for out in out {
            match lanes {
                1 => *out = [out[0]; LANES],
                LANES => {}
                _ => out.copy_within(..lanes, lanes),
            }
        }
        Some(!match lanes {
            1 if unwritten != 0 => u32::MAX,
            1 | LANES => unwritten,
            _ => unwritten | unwritten << lanes,
        })
    }

    /// Stores the dwords of all lanes. `None` if there is a race, or if bytes of the dwords were
    /// accessed apart; some lanes may then have stored theirs.
    pub(crate) fn store_lanes(
        &mut self,
        accessor: Accessor,
        spread: &LdsSpread,
        data: &[[u32; LANES]],
    ) -> Option<()> {
        for lane in (0..LANES).filter(|&lane| is_set(spread.exec, lane)) {
            let first = spread.first[lane] as usize;
            if let Some(shadow) = &mut self.shadow
                && !shadow.write_words(accessor, first, data.len())
            {
                return None;
            }
            self.mark(&(first * 4..(first + data.len()) * 4));
            let bytes = self.bytes.get_mut(first * 4..).unwrap_or_default();
            for (word, data) in bytes.as_chunks_mut().0.iter_mut().zip(data) {
                *word = data[lane].to_le_bytes();
            }
        }
        Some(())
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
        self.mark(&range);
        Ok(old)
    }
}

/// The first element of the bits for a range of at most 16 bytes, and its bits from there on.
fn bits(range: &Range<usize>) -> (usize, u64) {
    (range.start / 32, ((1 << range.len()) - 1) << (range.start % 32))
}
