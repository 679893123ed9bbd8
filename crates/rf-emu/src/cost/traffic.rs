//! The traffic of memory instructions: lines of caches, banks of LDS.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use crate::execute::wave::{LANES, PRIVATE_BASE, SHARED_BASE, Wave, is_set};
use crate::isa::instruction::{Encoding, Operand, register};
use crate::isa::op::{Access, DsOp, Op, VmemOp};
use crate::isa::{Instruction, OperandType};

/// The bytes of a line of the vector caches and of L2 (white papers of RDNA, RDNA 2, RDNA 3).
pub(super) const LINE_BYTES: u64 = 128;
/// The bytes that the vector cache of a compute unit delivers per cycle.
const CACHE_BYTES_PER_CYCLE: u64 = 64;
/// The banks of LDS, of a dword each, that a compute unit reads in a cycle.
const BANKS: u32 = 32;

/// The accesses of the executions of a memory instruction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub struct Accesses {
    /// Lanes that were active.
    pub lanes: u64,
    /// Bytes that these lanes asked for.
    pub bytes: u64,
    /// Global memory: lines of 128 bytes, counted anew by each execution.
    pub lines: u64,
    /// Global memory: the cycles of the vector cache.
    pub cache_cycles: u64,
    /// LDS: cycles that lanes wait for others of the same bank.
    pub conflict_cycles: u64,
}

impl Accesses {
    pub(crate) fn add(&mut self, other: &Self) {
        self.lanes += other.lanes;
        self.bytes += other.bytes;
        self.lines += other.lines;
        self.cache_cycles += other.cache_cycles;
        self.conflict_cycles += other.conflict_cycles;
    }
}

/// The accesses of a launch, or of the workgroups that one thread runs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Traffic {
    /// Accesses of each slot.
    pub(crate) accesses: Vec<Accesses>,
    /// The lines of global memory that the launch touched.
    lines: LineSet,
    /// The lines that the current workgroup touched.
    group_lines: LineSet,
    /// The sum of the lines of the workgroups before it.
    group_line_count: u64,
}

impl Traffic {
    pub(crate) fn new(slots: usize) -> Self {
        Self { accesses: vec![Accesses::default(); slots], ..Self::default() }
    }

    /// Begins another workgroup.
    pub(crate) fn next_workgroup(&mut self) {
        self.group_line_count += self.group_lines.count;
        self.group_lines.clear();
    }

    /// Adds the accesses of other workgroups.
    pub(crate) fn add(&mut self, other: &Self) {
        self.accesses.resize(self.accesses.len().max(other.accesses.len()), Accesses::default());
        self.accesses.iter_mut().zip(&other.accesses).for_each(|(mine, theirs)| mine.add(theirs));
        self.lines.add(&other.lines);
        self.group_line_count += other.group_line_count + other.group_lines.count;
    }

    /// The bytes of the lines that the launch touched.
    pub(crate) fn memory_bytes(&self) -> u64 {
        self.lines.count * LINE_BYTES
    }

    /// The sum over workgroups of the bytes of the lines that each touched.
    pub(crate) fn group_bytes(&self) -> u64 {
        (self.group_line_count + self.group_lines.count) * LINE_BYTES
    }

    /// Looks at the addresses of a memory instruction before it executes.
    pub(crate) fn record(&mut self, slot: u32, wave: &Wave, instruction: &Instruction) {
        let Some(accesses) = self.accesses.get_mut(slot as usize) else { return };
        let exec = wave.exec();
        let lanes = u64::from(exec.count_ones());
        let mut one = Accesses { lanes, ..Accesses::default() };
        match instruction.op {
            Op::Vmem(op) => {
                let bytes = match op {
                    VmemOp::Load(access) | VmemOp::Store(access) => access.bytes(),
                    VmemOp::Atomic { wide, .. } => {
                        if wide {
                            8
                        } else {
                            4
                        }
                    }
                    VmemOp::Invalidate | VmemOp::WriteBack | VmemOp::WriteBackInvalidate => return,
                };
                one.bytes = lanes * u64::from(bytes);
                let mut touched = Touched::default();
                if instruction.encoding != Encoding::Scratch {
                    touched.global(wave, instruction, bytes);
                }
                for &line in touched.lines() {
                    self.lines.insert(line);
                    self.group_lines.insert(line);
                }
                one.lines = touched.count as u64;
                one.cache_cycles = one.bytes.div_ceil(CACHE_BYTES_PER_CYCLE).max(one.lines).max(1);
            }
            Op::ScalarLoad(_) | Op::ScalarLoadSmall(_) => {
                one.lanes = 1;
                let (address, bytes) = scalar_span(wave, instruction);
                one.bytes = bytes;
                let first = address / LINE_BYTES;
                for line in first..=address.saturating_add(bytes.saturating_sub(1)) / LINE_BYTES {
                    one.lines += 1;
                    self.lines.insert(line);
                    self.group_lines.insert(line);
                }
            }
            Op::Ds(op) => {
                let (bytes, conflicts) = share(wave, instruction, op);
                one.bytes = lanes * bytes;
                one.conflict_cycles = conflicts;
            }
            _ => return,
        }
        accesses.add(&one);
    }
}

/// The address of a scalar load and its bytes.
fn scalar_span(wave: &Wave, instruction: &Instruction) -> (u64, u64) {
    let bytes = match instruction.op {
        Op::ScalarLoad(registers) => u64::from(registers) * 4,
        Op::ScalarLoadSmall(access) => access.bytes().into(),
        _ => 0,
    };
    let offset = match instruction.src[1].operand {
        Operand::Sgpr(register::NULL) => 0,
        operand => wave.scalar(operand),
    };
    let address = wave.scalar_wide(instruction.src[0].operand).wrapping_add(offset.into());
    (address.wrapping_add_signed(i64::from(instruction.immediate)), bytes)
}

/// The lines that one execution touches.
struct Touched {
    lines: [u64; 2 * LANES],
    count: usize,
}

impl Default for Touched {
    fn default() -> Self {
        Self { lines: [0; 2 * LANES], count: 0 }
    }
}

impl Touched {
    fn lines(&self) -> &[u64] {
        &self.lines[..self.count]
    }

    fn global(&mut self, wave: &Wave, instruction: &Instruction, bytes: u32) {
        let address = &instruction.src[0];
        let addresses: [u64; LANES] = if address.kind == OperandType::B64 {
            wave.wide_source(address)
        } else {
            let base = wave.scalar_wide(instruction.src[2].operand);
            let mut buffer = None;
            wave.lanes(address.operand, &mut buffer).map(|lane| base.wrapping_add(lane.into()))
        };
        let exec = wave.exec();
        for lane in (0..LANES).filter(|&lane| is_set(exec, lane)) {
            let address = addresses[lane].wrapping_add_signed(i64::from(instruction.immediate));
            let is_local = matches!((address >> 32) as u32, SHARED_BASE | PRIVATE_BASE);
            if is_local && instruction.encoding == Encoding::Flat {
                continue;
            }
            self.insert(address / LINE_BYTES);
            self.insert(address.wrapping_add(u64::from(bytes.max(1) - 1)) / LINE_BYTES);
        }
    }

    fn insert(&mut self, line: u64) {
        // Neighbouring lanes mostly share a line: search from the newest.
        if !self.lines().iter().rev().any(|&known| known == line) {
            self.lines[self.count] = line;
            self.count += 1;
        }
    }
}

/// The bytes of a lane of an LDS instruction, and the extra cycles of its conflicts.
fn share(wave: &Wave, instruction: &Instruction, op: DsOp) -> (u64, u64) {
    let offset = u32::from(instruction.immediate as u16);
    let (access, offsets) = match op {
        DsOp::Load(access) | DsOp::Store(access) => (access, [Some(offset), None]),
        DsOp::Load2 { wide, stride64 } | DsOp::Store2 { wide, stride64 } => {
            let bytes = if wide { 8 } else { 4 };
            let unit = bytes * if stride64 { 64 } else { 1 };
            let offsets = [Some((offset & 255) * unit), Some((offset >> 8) * unit)];
            (Access::Bytes(bytes as u8), offsets)
        }
        DsOp::Atomic { wide, .. } => {
            (Access::Bytes(if wide { 8 } else { 4 }), [Some(offset), None])
        }
        // Values pass between lanes, not through the banks.
        DsOp::Permute | DsOp::Bpermute | DsOp::Swizzle | DsOp::Nop => return (4, 0),
    };
    let Operand::Vgpr(_) = instruction.src[0].operand else { return (0, 0) };
    let mut buffer = None;
    let addresses = wave.lanes(instruction.src[0].operand, &mut buffer);
    let mut bytes = 0;
    let mut extra = 0;
    for offset in offsets.into_iter().flatten() {
        bytes += u64::from(access.bytes());
        extra += conflicts(addresses, offset, wave.exec(), access.bytes().div_ceil(4));
    }
    (bytes, extra)
}

/// The extra cycles of an access of `dwords` per lane. As many lanes go together as fill the banks:
/// 32 with a dword, 16 with two, 8 with more. Lanes that read the same dword do not conflict.
fn conflicts(addresses: &[u32; LANES], offset: u32, exec: u32, dwords: u32) -> u64 {
    let together = match dwords {
        0 | 1 => 32,
        2 => 16,
        _ => 8,
    };
    let mut extra = 0;
    for first in (0..LANES).step_by(together) {
        let mut words = [0; LANES];
        let mut count = 0;
        for lane in (first..first + together).filter(|&lane| is_set(exec, lane)) {
            let word = addresses[lane].wrapping_add(offset) / 4;
            for at in 0..dwords.max(1) {
                words[count] = word.wrapping_add(at);
                count += 1;
            }
        }
        let words = &mut words[..count];
        words.sort_unstable();
        let mut per_bank = [0u8; BANKS as usize];
        let mut last = None;
        for &word in &*words {
            if last != Some(word) {
                per_bank[(word % BANKS) as usize] += 1;
                last = Some(word);
            }
        }
        let cycles = per_bank.into_iter().max().unwrap_or(0);
        extra += u64::from(cycles.saturating_sub(1));
    }
    extra
}

/// A set of lines: a bit each, in pages of 512 KiB of memory.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct LineSet {
    pages: HashMap<u64, [u64; 64]>,
    count: u64,
}

impl LineSet {
    fn insert(&mut self, line: u64) {
        let page = self.pages.entry(line >> 12).or_insert([0; 64]);
        let (word, bit) = ((line >> 6 & 63) as usize, 1 << (line & 63));
        self.count += u64::from(page[word] & bit == 0);
        page[word] |= bit;
    }

    fn clear(&mut self) {
        self.pages.clear();
        self.count = 0;
    }

    fn add(&mut self, other: &Self) {
        for (&number, theirs) in &other.pages {
            let mine = self.pages.entry(number).or_insert([0; 64]);
            for (mine, theirs) in mine.iter_mut().zip(theirs) {
                self.count += u64::from((theirs & !*mine).count_ones());
                *mine |= theirs;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lanes(address: impl Fn(u32) -> u32) -> [u32; LANES] {
        std::array::from_fn(|lane| address(lane as u32))
    }

    #[test]
    fn conflicts_count_the_busiest_bank() {
        let all = u32::MAX;
        assert_eq!(conflicts(&lanes(|lane| lane * 4), 0, all, 1), 0, "a row of dwords");
        assert_eq!(conflicts(&lanes(|_| 64), 0, all, 1), 0, "all lanes read one dword");
        assert_eq!(conflicts(&lanes(|lane| lane * 8), 0, all, 1), 1, "every second dword");
        assert_eq!(conflicts(&lanes(|lane| lane * 128), 0, all, 1), 31, "a column");
        assert_eq!(conflicts(&lanes(|lane| lane * 132), 0, all, 1), 0, "a padded column");
        assert_eq!(conflicts(&lanes(|lane| lane * 128), 0, 0b11, 1), 1, "two active lanes");
        assert_eq!(conflicts(&lanes(|lane| lane * 8), 0, all, 2), 0, "a row of pairs");
        assert_eq!(conflicts(&lanes(|lane| lane * 16), 4, all, 4), 0, "a row of quads");
        assert_eq!(conflicts(&lanes(|lane| lane * 128), 0, all, 4), 28, "a column of quads");
    }

    #[test]
    fn sets_of_lines_count_each_once() {
        let mut set = LineSet::default();
        for line in [1, 1, 4095, 4096, u64::MAX] {
            set.insert(line);
        }
        assert_eq!(set.count, 4);
        let mut other = LineSet::default();
        for line in [4096, 4097] {
            other.insert(line);
        }
        set.add(&other);
        assert_eq!(set.count, 5);
        set.clear();
        assert_eq!(set, LineSet::default());
    }
}
