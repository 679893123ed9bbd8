//! The options of a launch, and its counters.

use crate::check::Checks;
use crate::cost::Accesses;
use crate::cost::traffic::Traffic;
use crate::isa::op::{Op, ValuOp};

/// The options of a launch.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Options {
    /// The checks.
    pub checks: Checks,
    /// With a number other than 0, workgroups and waves run in a random order that it determines
    /// (completely, with one thread).
    pub seed: u64,
    /// The number of threads; 0 stands for one per processor of this machine.
    pub threads: usize,
    /// The most workgroups that the device holds at the same time; 0 stands for no limit. The
    /// others start when one ends.
    pub resident_workgroups: usize,
    /// The most instructions of one wave.
    pub max_instructions: u64,
    /// True if to count how often each instruction runs and what memory instructions access.
    pub count_each: bool,
}

impl Default for Options {
    /// No checks beyond bounds, all processors.
    fn default() -> Self {
        Self {
            checks: Checks::NONE,
            seed: 0,
            threads: 0,
            resident_workgroups: 0,
            max_instructions: 1 << 32,
            count_each: false,
        }
    }
}

/// The number of executed wave instructions, by class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Counters {
    /// The number of waves.
    pub waves: u64,
    /// Scalar arithmetic and control.
    pub scalar: u64,
    /// Scalar loads.
    pub scalar_memory: u64,
    /// Vector arithmetic but matrices; a dual instruction counts once.
    pub vector: u64,
    /// Matrix instructions.
    pub matrix: u64,
    /// Vector memory.
    pub vector_memory: u64,
    /// LDS.
    pub lds: u64,
    /// With [`Options::count_each`], the executions of each instruction in the order of
    /// [`Program::listing`](crate::Program::listing).
    pub each: Vec<u64>,
    /// With [`Options::count_each`], what the memory instructions among them accessed.
    pub accesses: Vec<Accesses>,
    /// With [`Options::count_each`], the bytes of the lines of global memory that the launch
    /// touched: memory has to deliver at least these.
    pub memory_bytes: u64,
    /// With [`Options::count_each`], the sum over workgroups of the bytes of the lines that each
    /// touched: L2 has to deliver at least these.
    pub group_bytes: u64,
    /// The executions by slot.
    pub(super) by_slot: Vec<u64>,
    pub(super) traffic: Option<Box<Traffic>>,
}

impl Counters {
    /// All executed instructions.
    pub fn instructions(&self) -> u64 {
        self.scalar + self.scalar_memory + self.vector + self.matrix + self.vector_memory + self.lds
    }

    /// Adds the counts of another launch or thread.
    pub fn add(&mut self, other: &Self) {
        self.waves += other.waves;
        self.scalar += other.scalar;
        self.scalar_memory += other.scalar_memory;
        self.vector += other.vector;
        self.matrix += other.matrix;
        self.vector_memory += other.vector_memory;
        self.lds += other.lds;
        for (mine, theirs) in [(&mut self.each, &other.each), (&mut self.by_slot, &other.by_slot)] {
            mine.resize(mine.len().max(theirs.len()), 0);
            mine.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine += theirs);
        }
        let accesses = self.accesses.len().max(other.accesses.len());
        self.accesses.resize(accesses, Accesses::default());
        self.accesses.iter_mut().zip(&other.accesses).for_each(|(mine, theirs)| mine.add(theirs));
        self.memory_bytes += other.memory_bytes;
        self.group_bytes += other.group_bytes;
        match (&mut self.traffic, &other.traffic) {
            (Some(mine), Some(theirs)) => mine.add(theirs),
            (mine @ None, theirs) => mine.clone_from(theirs),
            (Some(_), None) => {}
        }
    }

    /// Adds the counters of `length` instructions that follow each other, from `slot` on.
    #[inline]
    pub(super) fn count_run(&mut self, slot: u32, length: u32, run: &Self) {
        self.scalar += run.scalar;
        self.vector += run.vector;
        if !self.by_slot.is_empty() {
            let slots = slot as usize..(slot + length) as usize;
            self.by_slot[slots].iter_mut().for_each(|count| *count += 1);
        }
    }

    #[inline]
    pub(super) fn count(&mut self, slot: u32, op: Op) {
        let class = match op {
            Op::Salu(_) | Op::ScalarCacheInvalidate | Op::Time | Op::Prefetch => &mut self.scalar,
            Op::ScalarLoad(_) | Op::ScalarLoadSmall(_) => &mut self.scalar_memory,
            Op::Valu(
                ValuOp::WmmaF32X16F16
                | ValuOp::WmmaF32X16Bf16
                | ValuOp::WmmaF16X16F16
                | ValuOp::WmmaBf16X16Bf16
                | ValuOp::WmmaI32X16Iu8
                | ValuOp::WmmaI32X16Iu4
                | ValuOp::WmmaI32X32Iu4,
            ) => &mut self.matrix,
            Op::Valu(_) | Op::Compare(_) => &mut self.vector,
            Op::Vmem(_) => &mut self.vector_memory,
            Op::Ds(_) => &mut self.lds,
        };
        *class += 1;
        if let Some(count) = self.by_slot.get_mut(slot as usize) {
            *count += 1;
        }
    }
}

/// A sequence of pseudo-random numbers (xorshift).
#[derive(Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        // Zero would stay zero; seed 0 asks for no randomness.
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    /// A number below `limit`; with seed 0, always 0.
    pub(super) fn below(&mut self, limit: usize) -> usize {
        if self.0 == 0 || limit == 0 {
            return 0;
        }
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % limit
    }
}
