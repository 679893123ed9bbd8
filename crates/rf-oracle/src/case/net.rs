//! Graphs under construction, and the values of their weights.

use std::sync::Arc;

use rf_graph::{GraphBuilder, ValueId, Weight, WeightId};
use rf_quant::{DType, Family};

use super::numbers::Numbers;
use super::schedule::VOCAB_SIZE;

/// The largest exponent byte of a microscaling block with which every element is a finite f32. The
/// elements of MXFP6 E3M2 reach 28.
pub(super) const LARGEST_EXPONENT: u8 = 250;

/// Elements that [`WeightValues::Repeated`] draws and quantises per weight.
const DISTINCT_VALUES: usize = 1 << 18;

/// The values of a program's weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum WeightValues {
    /// Each element is drawn from the generator of the case: for results that are compared.
    Random,
    /// A few random rows are repeated: for timing. Times do not depend on values, and quantising a
    /// large matrix takes longer than measuring it.
    Repeated,
    /// Zeros for programs of which only shapes and costs are used. They need no memory until read.
    Zeros,
}

/// A graph under construction, with weights of random values.
pub(super) struct Net {
    pub(super) g: GraphBuilder,
    numbers: Numbers,
    values: WeightValues,
}

impl Net {
    pub(super) fn new(name: &str, values: WeightValues) -> Self {
        Self { g: GraphBuilder::new(), numbers: Numbers::new(name), values }
    }

    /// Normal numbers `[tokens, width]`: rows of a table, by id.
    pub(super) fn input(&mut self, width: usize) -> ValueId {
        self.embedding(DType::F32, width, 1.0)
    }

    /// [`Op::Embed`](rf_graph::Op::Embed) from a table of a format.
    pub(super) fn embedding(&mut self, dtype: DType, width: usize, scale: f32) -> ValueId {
        let table = self.table(dtype, VOCAB_SIZE, width);
        self.g.embed(table, scale)
    }

    /// Adds an embedding as [`Self::embedding`] does, with media rows instead of tokens.
    pub(super) fn media(&mut self, dtype: DType, width: usize, scale: f32) -> ValueId {
        let table = self.table(dtype, VOCAB_SIZE, width);
        self.g.embed_or_media(table, scale)
    }

    /// A table of normal numbers.
    pub(super) fn table(&mut self, dtype: DType, rows: usize, width: usize) -> WeightId {
        let table = self.weight(dtype, rows, width, Numbers::normal);
        self.g.weight(table)
    }

    /// A matrix that preserves the variance of its operand.
    pub(super) fn matrix(&mut self, dtype: DType, rows: usize, columns: usize) -> WeightId {
        self.matrices(1, dtype, rows, columns)[0]
    }

    /// A matrix of normal numbers times a scale.
    pub(super) fn scaled_matrix(
        &mut self,
        dtype: DType,
        rows: usize,
        columns: usize,
        scale: f32,
    ) -> WeightId {
        let weight = self.weight(dtype, rows, columns, |numbers| scale * numbers.normal());
        self.g.weight(weight)
    }

    /// Equal matrices as separate weights. They share their bytes in the host's memory.
    pub(super) fn matrices(
        &mut self,
        count: usize,
        dtype: DType,
        rows: usize,
        columns: usize,
    ) -> Vec<WeightId> {
        let scale = 1.0 / (columns as f32).sqrt();
        let weight = self.weight(dtype, rows, columns, |numbers| scale * numbers.normal());
        (0..count).map(|_| self.g.weight(weight.clone())).collect()
    }

    /// A matrix of a microscaling format whose blocks cycle through these exponent bytes. Where the
    /// largest elements would overflow, only the smallest ones stay.
    pub(super) fn microscaled(
        &mut self,
        dtype: DType,
        rows: usize,
        columns: usize,
        exponents: &[u8],
    ) -> WeightId {
        // The sign and the lowest bit of each code.
        let smallest: &[u8] = if dtype == DType::Mxfp4 { &[0x99] } else { &[0x61, 0x18, 0x86] };
        let values: Vec<f32> = (0..rows * columns).map(|_| self.numbers.normal()).collect();
        let mut bytes = rf_quant::quantize_to_vec(dtype, &values).expect("whole blocks");
        let blocks = bytes.chunks_exact_mut(dtype.block_bytes());
        for (block, &exponent) in blocks.zip(exponents.iter().cycle()) {
            block[0] = exponent;
            if exponent > LARGEST_EXPONENT {
                block[1..]
                    .iter_mut()
                    .zip(smallest.iter().cycle())
                    .for_each(|(codes, bits)| *codes &= bits);
            }
        }
        self.g.weight(stored(dtype, rows, columns, bytes))
    }

    /// Norm weights: around 1.
    pub(super) fn norm_weight(&mut self, len: usize) -> WeightId {
        self.norm_weights(1, len)
    }

    /// Norm weights per group: around 1.
    pub(super) fn norm_weights(&mut self, rows: usize, columns: usize) -> WeightId {
        let weight = self.weight(DType::F32, rows, columns, |numbers| 1.0 + 0.2 * numbers.normal());
        self.g.weight(weight)
    }

    /// The weight of a norm without weight.
    pub(super) fn ones(&mut self, len: usize) -> WeightId {
        self.constant(len, 1.0)
    }

    /// A vector of equal values.
    pub(super) fn constant(&mut self, len: usize, value: f32) -> WeightId {
        let weight = self.weight(DType::F32, 1, len, |_| value);
        self.g.weight(weight)
    }

    /// A bias, or attention sinks.
    pub(super) fn vector(&mut self, len: usize) -> WeightId {
        self.table(DType::F32, 1, len)
    }

    /// The decays of a recurrence per unit of time: negative, of several magnitudes.
    pub(super) fn decays(&mut self, len: usize) -> WeightId {
        self.decay_rates(1, len)
    }

    /// As [`decays`](Self::decays), one per element of a state.
    pub(super) fn decay_rates(&mut self, rows: usize, columns: usize) -> WeightId {
        let decay = |numbers: &mut Numbers| -(1.5 * numbers.normal()).exp();
        let weight = self.weight(DType::F32, rows, columns, decay);
        self.g.weight(weight)
    }

    fn weight(
        &mut self,
        dtype: DType,
        rows: usize,
        columns: usize,
        mut number: impl FnMut(&mut Numbers) -> f32,
    ) -> Weight {
        let row_bytes = dtype.row_bytes(columns).expect("whole blocks");
        let distinct = match self.values {
            WeightValues::Zeros => return stored(dtype, rows, columns, vec![0; rows * row_bytes]),
            WeightValues::Repeated => rows.min((DISTINCT_VALUES / columns).max(1)),
            WeightValues::Random => rows,
        };
        let values: Vec<f32> = (0..distinct * columns).map(|_| number(&mut self.numbers)).collect();
        let mut bytes = blocks_like(dtype, &values);
        if distinct < rows {
            bytes = bytes.iter().copied().cycle().take(rows * row_bytes).collect();
        }
        stored(dtype, rows, columns, bytes)
    }
}

/// Columns that are a part of 256, or 256 in formats whose blocks have as many.
pub(super) fn part_of_super_block(dtype: DType) -> usize {
    96_usize.next_multiple_of(dtype.block_elements())
}

/// Blocks of `values`. In a codebook format, whose search takes long, they have arbitrary codes and
/// the same root mean square.
///
/// # Panics
///
/// If `values` are not whole blocks.
pub fn blocks_like(dtype: DType, values: &[f32]) -> Vec<u8> {
    if dtype.family() != Family::Codebook {
        return rf_quant::quantize_to_vec(dtype, values).expect("whole blocks");
    }
    let len = dtype.row_bytes(values.len()).expect("whole blocks");
    let mut bytes: Vec<u8> = values[..len].iter().map(|x| (x.to_bits() >> 4) as u8).collect();
    let mean = values.iter().map(|x| x * x).sum::<f32>() / values.len() as f32;
    rf_quant::normalize_codebook_blocks(dtype, &mut bytes, mean.sqrt());
    bytes
}

fn stored(dtype: DType, rows: usize, columns: usize, bytes: Vec<u8>) -> Weight {
    Weight::new("weight", dtype, rows, columns, Arc::new(bytes)).expect("the bytes match the shape")
}
