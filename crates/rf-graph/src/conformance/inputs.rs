//! Inputs of the cases: numbers, weights, and which tokens come when.

use std::sync::Arc;

use rf_kv::PageId;
use rf_quant::DType;

use super::CaseBatch;
use crate::backend::{KvLayout, KvType};
use crate::graph::GraphBuilder;
use crate::op::{Rope, RopeStyle, ValueId, WeightId};
use crate::weight::Weight;

/// Rows of every embedding table.
pub(super) const VOCAB_SIZE: usize = 211;

/// The largest exponent byte of a microscaling block with which every element is a finite f32: those of
/// MXFP6 E3M2 reach 28.
pub(super) const LARGEST_EXPONENT: u8 = 250;

/// Pseudo-random numbers, the same everywhere: a linear congruential generator with Knuth's factor.
#[derive(Clone, Debug)]
pub struct Numbers(u64);

impl Numbers {
    /// Numbers that depend on a name (FNV-1a).
    pub fn new(name: &str) -> Self {
        let hash = |h: u64, byte: u8| (h ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
        Self(name.bytes().fold(0xcbf2_9ce4_8422_2325, hash))
    }

    fn next(&mut self) -> u32 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 32) as u32
    }

    fn below(&mut self, n: usize) -> usize {
        self.next() as usize % n
    }

    /// Mean 0, variance 1, nearly normal: the sum of four uniform numbers.
    pub fn normal(&mut self) -> f32 {
        let sum: f64 = (0..4).map(|_| f64::from(self.next()) / f64::from(u32::MAX)).sum();
        ((sum - 2.0) * 3.0_f64.sqrt()) as f32
    }
}

/// A graph under construction, with weights out of nothing.
pub(super) struct Net {
    pub(super) g: GraphBuilder,
    numbers: Numbers,
}

impl Net {
    pub(super) fn new(name: &str) -> Self {
        Self { g: GraphBuilder::new(), numbers: Numbers::new(name) }
    }

    /// A value of normal numbers `[tokens, width]`: rows of a table, by id.
    pub(super) fn input(&mut self, width: usize) -> ValueId {
        self.embedding(DType::F32, width, 1.0)
    }

    /// [`Op::Embed`](crate::Op::Embed) from a table of a format.
    pub(super) fn embedding(&mut self, dtype: DType, width: usize, scale: f32) -> ValueId {
        let table = self.weight(dtype, VOCAB_SIZE, width, Numbers::normal);
        self.g.embed(table, scale)
    }

    /// A matrix that keeps the variance of what it multiplies.
    pub(super) fn matrix(&mut self, dtype: DType, rows: usize, columns: usize) -> WeightId {
        let scale = 1.0 / (columns as f32).sqrt();
        self.weight(dtype, rows, columns, |numbers| scale * numbers.normal())
    }

    /// A matrix of a microscaling format whose blocks have these exponent bytes in turn. Where the largest
    /// elements would overflow, only the least ones stay.
    pub(super) fn microscaled(
        &mut self,
        dtype: DType,
        rows: usize,
        columns: usize,
        exponents: &[u8],
    ) -> WeightId {
        // Of every code the sign and the lowest bit.
        let least: &[u8] = if dtype == DType::Mxfp4 { &[0x99] } else { &[0x61, 0x18, 0x86] };
        let values: Vec<f32> = (0..rows * columns).map(|_| self.numbers.normal()).collect();
        let mut bytes = rf_quant::quantize_to_vec(dtype, &values).expect("whole blocks");
        let blocks = bytes.chunks_exact_mut(dtype.block_bytes());
        for (block, &exponent) in blocks.zip(exponents.iter().cycle()) {
            block[0] = exponent;
            if exponent > LARGEST_EXPONENT {
                block[1..]
                    .iter_mut()
                    .zip(least.iter().cycle())
                    .for_each(|(codes, bits)| *codes &= bits);
            }
        }
        self.stored(dtype, rows, columns, bytes)
    }

    /// Weights of a norm: around 1.
    pub(super) fn gains(&mut self, len: usize) -> WeightId {
        self.weight(DType::F32, 1, len, |numbers| 1.0 + 0.2 * numbers.normal())
    }

    /// A bias, or sinks.
    pub(super) fn vector(&mut self, len: usize) -> WeightId {
        self.weight(DType::F32, 1, len, Numbers::normal)
    }

    fn weight(
        &mut self,
        dtype: DType,
        rows: usize,
        columns: usize,
        mut number: impl FnMut(&mut Numbers) -> f32,
    ) -> WeightId {
        let values: Vec<f32> = (0..rows * columns).map(|_| number(&mut self.numbers)).collect();
        let bytes = rf_quant::quantize_to_vec(dtype, &values).expect("whole blocks");
        self.stored(dtype, rows, columns, bytes)
    }

    fn stored(&mut self, dtype: DType, rows: usize, columns: usize, bytes: Vec<u8>) -> WeightId {
        let weight = Weight::new("weight", dtype, rows, columns, Arc::new(bytes));
        self.g.weight(weight.expect("as many bytes as the shape says"))
    }
}

/// Frequencies of rotary embedding with base 10000.
pub(super) fn rope(style: RopeStyle, head_dim: usize, dims: usize, magnitude: f32) -> Rope {
    let inv_freq = (0..dims / 2).map(|i| 10_000_f64.powf(-2.0 * i as f64 / dims as f64)).collect();
    Rope { style, head_dim, inv_freq, magnitude }
}

/// What is fed, and the cache it needs.
#[derive(Clone)]
pub(super) struct Schedule {
    pub(super) kv: KvLayout,
    pub(super) batches: Vec<CaseBatch>,
}

/// Tokens of sequences, `(sequence, tokens)` per span, batch by batch. Their pages lie scattered.
pub(super) fn schedule(page_tokens: usize, steps: &[&[(usize, usize)]]) -> Schedule {
    let mut numbers = Numbers::new("schedule");
    let spans = || steps.iter().copied().flatten();
    let sequences = spans().map(|(sequence, _)| sequence + 1).max().unwrap_or(0);
    let mut lengths = vec![0; sequences];
    spans().for_each(|(sequence, tokens)| lengths[*sequence] += tokens);

    // One page more than is needed, so that not every page belongs to somebody.
    let num_pages = lengths.iter().map(|l: &usize| l.div_ceil(page_tokens)).sum::<usize>() + 1;
    let mut free: Vec<u32> = (0..num_pages as u32).collect();
    let tables: Vec<Vec<PageId>> = lengths
        .iter()
        .map(|length| {
            let pages = 0..length.div_ceil(page_tokens);
            pages.map(|_| PageId::new(free.swap_remove(numbers.below(free.len())))).collect()
        })
        .collect();

    let mut past = vec![0; sequences];
    let mut batch = |step: &&[(usize, usize)]| {
        let mut spans = Vec::new();
        let mut first = 0;
        for &(sequence, tokens) in *step {
            let last = past[sequence] + tokens;
            let pages = tables[sequence][..last.div_ceil(page_tokens)].to_vec();
            spans.push((first..first + tokens, past[sequence], pages));
            first += tokens;
            past[sequence] = last;
        }
        let ids = (0..first).map(|_| numbers.below(VOCAB_SIZE) as u32).collect();
        let output_rows = (0..first).filter(|row| row % 3 != 1).collect();
        CaseBatch { ids, spans, output_rows, input: None }
    };
    let batches = steps.iter().map(&mut batch).collect();
    let kv = KvLayout { layers: Vec::new(), page_tokens, num_pages, dtype: KvType::F32 };
    Schedule { kv, batches }
}

impl Schedule {
    /// With rows of normal numbers for [`Op::Input`](crate::Op::Input).
    pub(super) fn with_input(mut self, width: usize) -> Self {
        let mut numbers = Numbers::new("input");
        for batch in &mut self.batches {
            let len = batch.ids.len() * width;
            batch.input = Some((0..len).map(|_| numbers.normal()).collect());
        }
        self
    }
}

/// Batches of so many tokens, each a sequence of its own.
pub(super) fn batches(tokens: &[usize]) -> Schedule {
    let steps: Vec<[(usize, usize); 1]> =
        tokens.iter().enumerate().map(|(sequence, tokens)| [(sequence, *tokens)]).collect();
    let steps: Vec<&[(usize, usize)]> = steps.iter().map(<[_; 1]>::as_slice).collect();
    schedule(16, &steps)
}
