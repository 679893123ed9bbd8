//! The packed layout of weights: the fields of quantisation blocks, sorted into planes.
//!
//! `kernels/include/rf/formats.h` reads these planes. Packing permutes bits and keeps sizes, except
//! for small scales that become bytes (1.5 to 3.6 % more for Q4_K, Q5_K, IQ4_XS, IQ3_S and IQ1_M),
//! and for TQ1_0, which becomes TQ2_0 (22 % more).

mod bits;
mod magnitude;

use bytemuck::{Pod, cast_slice};
use rf_quant::{
    BlockIq1M, BlockIq1S, BlockIq2S, BlockIq2Xs, BlockIq2Xxs, BlockIq3S, BlockIq3Xxs, BlockIq4Nl,
    BlockIq4Xs, BlockMxfp4, BlockMxfp6E2M3, BlockNvfp4, BlockQ1_0, BlockQ2_0, BlockQ2K, BlockQ3K,
    BlockQ4_0, BlockQ4_1, BlockQ4K, BlockQ5_0, BlockQ5_1, BlockQ5K, BlockQ6K, BlockQ8_0,
    BlockTq1_0, BlockTq2_0, CodebookBlock, DType, F16Le,
};

pub(crate) use magnitude::{half_unit, largest_magnitude};

use bits::{
    bits_at_top, even, fifth_bits, interleave, nibbles_by_block, nibbles_of_128, nibbles_of_halves,
    pack_bytes, pairs_at_top, q2_k_codes, six_bit_codes,
};

// The header for device code must be equal to the table of rf-quant.
const _: () = {
    let (header, table) =
        (include_bytes!("../kernels/include/rf/format_table.h"), rf_quant::C_TABLE);
    assert!(
        header.len() == table.len(),
        "kernels/include/rf/format_table.h is out of date: write it again with `cargo run -p rf-quant --example c_table`"
    );
    let mut i = 0;
    while i < header.len() {
        assert!(
            header[i] == table.as_bytes()[i],
            "kernels/include/rf/format_table.h is out of date: write it again with `cargo run -p rf-quant --example c_table`"
        );
        i += 1;
    }
};

/// Spare rows after the last row. Kernels read them and ignore the values.
pub(crate) const SPARE_ROWS: usize = 8;

/// The least spare bytes of a plane: 32 blocks of 16 bytes, which a wave copies at once, and
/// another 16 for their alignment (`rf/weight_ring.h`).
const SPARE_BYTES: usize = 32 * 16 + 16;

/// Alignment of planes, in bytes.
const ALIGNMENT: usize = 256;

/// Bytes of a row in each plane of a format.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct PlaneBytes {
    /// Bytes of `low`, `high` and `scale` per block of 32 columns; for float formats per column.
    low: usize,
    high: usize,
    scale: usize,
    /// Bytes per 256 columns. Rows may be a part of 256 where that is a whole number of scales.
    super_scale: usize,
}

impl PlaneBytes {
    /// The plane sizes of a format.
    pub(crate) const fn of(dtype: DType) -> Self {
        let (low, high, scale, super_scale) = match dtype {
            DType::F32 => (4, 0, 0, 0),
            DType::F16 | DType::Bf16 => (2, 0, 0, 0),
            DType::Q4_0 | DType::Iq4Nl | DType::Nvfp4 => (16, 0, 2, 0),
            DType::Q4_1 => (16, 0, 4, 0),
            DType::Q5_0 => (16, 4, 2, 0),
            DType::Q5_1 => (16, 4, 4, 0),
            DType::Q8_0 => (16, 16, 2, 0),
            DType::Q2K => (8, 0, 2, 4),
            DType::Q3K | DType::Iq3S => (8, 4, 2, 2),
            DType::Q4K => (16, 0, 2, 4),
            DType::Q5K => (16, 4, 2, 4),
            DType::Q6K => (16, 8, 2, 2),
            DType::Iq4Xs => (16, 0, 1, 2),
            DType::Iq3Xxs => (8, 4, 0, 2),
            DType::Iq2S => (8, 0, 2, 2),
            DType::Iq2Xs => (8, 0, 1, 2),
            DType::Iq2Xxs | DType::Tq1_0 | DType::Tq2_0 => (8, 0, 0, 2),
            DType::Iq1M => (4, 2, 1, 2),
            DType::Iq1S => (4, 0, 2, 2),
            DType::Q1_0 => (4, 0, 0, 4),
            DType::Q2_0 => (8, 0, 0, 8),
            DType::Mxfp4 => (16, 0, 1, 0),
            DType::Mxfp6E2M3 | DType::Mxfp6E3M2 => (16, 8, 1, 0),
        };
        Self { low, high, scale, super_scale }
    }

    fn rows_of(self, dtype: DType, columns: usize) -> [usize; 4] {
        if dtype.is_float() {
            return [self.low * columns, 0, 0, 0];
        }
        let blocks = columns / 32;
        [self.low * blocks, self.high * blocks, self.scale * blocks, self.super_scale * blocks / 8]
    }
}

/// Offsets and sizes of the planes of a matrix in one allocation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PackedLayout {
    dtype: DType,
    columns: usize,
    row_bytes: [usize; 4],
    offsets: [usize; 4],
    bytes: usize,
}

impl PackedLayout {
    /// The layout of a matrix `[rows, columns]`.
    pub(crate) fn new(dtype: DType, rows: usize, columns: usize) -> Self {
        let row_bytes = PlaneBytes::of(dtype).rows_of(dtype, columns);
        let mut offsets = [0; 4];
        let mut bytes = 0_usize;
        for (offset, row_bytes) in offsets.iter_mut().zip(row_bytes) {
            *offset = bytes;
            let spare = if row_bytes > 0 { SPARE_BYTES.max(row_bytes * SPARE_ROWS) } else { 0 };
            bytes += (row_bytes * rows + spare).next_multiple_of(ALIGNMENT);
        }
        Self { dtype, columns, row_bytes, offsets, bytes }
    }

    /// Bytes of all planes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Byte offsets of the planes low, high, scale and super-scale.
    pub(crate) fn offsets(&self) -> [usize; 4] {
        self.offsets
    }

    /// Bytes of rows `..rows` in each plane.
    pub(crate) fn plane_bytes(&self, rows: usize) -> [usize; 4] {
        self.row_bytes.map(|bytes| bytes * rows)
    }

    /// Bytes of one row in all planes.
    pub(crate) fn bytes_per_row(&self) -> usize {
        self.row_bytes.iter().sum()
    }

    /// Packs rows of blocks as in the file into one buffer. The buffer holds the rows of each
    /// plane, one plane after the other, with the sizes of [`Self::plane_bytes`].
    pub(crate) fn pack(&self, source: &[u8], rows: usize, out: &mut [u8]) {
        let [low, high, scale, super_scale] = self.plane_bytes(rows);
        let (low, rest) = out.split_at_mut(low);
        let (high, rest) = rest.split_at_mut(high);
        let (scale, rest) = rest.split_at_mut(scale);
        let planes = Planes { low, high, scale, super_scale: &mut rest[..super_scale] };
        self.fill(source, planes);
    }

    /// The planes of a buffer that [`Self::pack`] has filled.
    pub(crate) fn planes<'a>(&self, packed: &'a [u8], rows: usize) -> [&'a [u8]; 4] {
        let mut rest = packed;
        self.plane_bytes(rows).map(|bytes| {
            let (plane, others) = rest.split_at(bytes);
            rest = others;
            plane
        })
    }

    /// Packs all blocks of `source` on all cores.
    #[expect(clippy::too_many_lines, reason = "one arm per format")]
    fn fill(&self, source: &[u8], planes: Planes<'_>) {
        let bytes = PlaneBytes::of(self.dtype).rows_of(self.dtype, self.dtype.block_elements());
        match self.dtype {
            DType::F32 | DType::F16 | DType::Bf16 => planes.low.copy_from_slice(source),
            DType::Q4_0 => each::<BlockQ4_0, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs.map(|q| q ^ 0x88));
                p.scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Iq4Nl => each::<BlockIq4Nl, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                p.scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Q4_1 => each::<BlockQ4_1, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                p.scale[..2].copy_from_slice(bytemuck::bytes_of(&b.d));
                p.scale[2..].copy_from_slice(bytemuck::bytes_of(&b.m));
            }),
            DType::Q5_0 => each::<BlockQ5_0, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                // The fifth bit is inverted: two's complement of q − 16.
                p.high.copy_from_slice(&fifth_bits(!u32::from_le_bytes(b.qh)));
                p.scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Q5_1 => each::<BlockQ5_1, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                p.high.copy_from_slice(&fifth_bits(u32::from_le_bytes(b.qh)));
                p.scale[..2].copy_from_slice(bytemuck::bytes_of(&b.d));
                p.scale[2..].copy_from_slice(bytemuck::bytes_of(&b.m));
            }),
            DType::Q8_0 => each::<BlockQ8_0, _>(source, planes, bytes, |b, p| {
                let (first, last) = cast_slice::<i8, u8>(&b.qs).split_at(16);
                p.low.copy_from_slice(first);
                p.high.copy_from_slice(last);
                p.scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Q2K => each::<BlockQ2K, _>(source, planes, bytes, |b, p| {
                let codes = q2_k_codes(&b.qs);
                for (codes, low) in codes.as_chunks::<16>().0.iter().zip(p.low.chunks_exact_mut(4))
                {
                    pack_bytes(codes, low, |j| 2 * j);
                }
                p.scale.copy_from_slice(&b.scales);
                p.super_scale[..2].copy_from_slice(bytemuck::bytes_of(&b.d));
                p.super_scale[2..].copy_from_slice(bytemuck::bytes_of(&b.dmin));
            }),
            DType::Q3K => each::<BlockQ3K, _>(source, planes, bytes, |b, p| {
                let codes = q2_k_codes(&b.qs);
                for (codes, low) in codes.as_chunks::<16>().0.iter().zip(p.low.chunks_exact_mut(4))
                {
                    pack_bytes(codes, low, |j| 6 - 2 * j);
                }
                for (block, high) in p.high.chunks_exact_mut(4).enumerate() {
                    // Bit `block` of byte l belongs to column 32·block + l. It is inverted, as in
                    // Q5_0.
                    let bits = b.hmask.map(|byte| !byte >> block & 1);
                    high.copy_from_slice(&bits_at_top(&bits));
                }
                p.scale.copy_from_slice(cast_slice(&b.unpack_scales()));
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Q4K => each::<BlockQ4K, _>(source, planes, bytes, |b, p| {
                nibbles_by_block(&b.qs, p.low);
                let (scales, minima) = b.unpack_scales();
                interleave(&scales, &minima, p.scale);
                p.super_scale[..2].copy_from_slice(bytemuck::bytes_of(&b.d));
                p.super_scale[2..].copy_from_slice(bytemuck::bytes_of(&b.dmin));
            }),
            DType::Q5K => each::<BlockQ5K, _>(source, planes, bytes, |b, p| {
                nibbles_by_block(&b.qs, p.low);
                for (block, high) in p.high.chunks_exact_mut(4).enumerate() {
                    high.copy_from_slice(&bits_at_top(&b.qh.map(|byte| byte >> block & 1)));
                }
                let (scales, minima) = b.unpack_scales();
                interleave(&scales, &minima, p.scale);
                p.super_scale[..2].copy_from_slice(bytemuck::bytes_of(&b.d));
                p.super_scale[2..].copy_from_slice(bytemuck::bytes_of(&b.dmin));
            }),
            DType::Q6K => each::<BlockQ6K, _>(source, planes, bytes, |b, p| {
                // In 128 values, byte l of 64 has value l in the low nibble and value 64 + l in the
                // high one. Byte l of 32 has the upper bits of values l, 32 + l, 64 + l, 96 + l.
                for (half, low) in p.low.chunks_exact_mut(64).enumerate() {
                    nibbles_of_128(&b.ql[64 * half..][..64], low);
                }
                for (block, high) in p.high.chunks_exact_mut(8).enumerate() {
                    let bytes = &b.qh[block / 4 * 32..][..32];
                    // The sixth bit is inverted: two's complement of q − 32.
                    let pairs: [u8; 32] =
                        std::array::from_fn(|l| (bytes[l] >> (2 * (block % 4)) & 3) ^ 2);
                    pairs_at_top(&pairs, high);
                }
                p.scale.copy_from_slice(cast_slice(&b.scales));
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Iq4Xs => each::<BlockIq4Xs, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(b.qs.as_flattened());
                p.scale.copy_from_slice(cast_slice(&b.unpack_scales()));
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Iq3S => each::<BlockIq3S, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                p.high.copy_from_slice(&b.signs);
                interleave(&b.qh, &even(b.scales()), p.scale);
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Iq3Xxs => each::<BlockIq3Xxs, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                p.high.copy_from_slice(b.signs_and_scales.as_flattened());
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Iq2S => each::<BlockIq2S, _>(source, planes, bytes, |b, p| {
                for (i, low) in p.low.chunks_exact_mut(8).enumerate() {
                    low[..4].copy_from_slice(&b.qs[4 * i..][..4]);
                    low[4..].copy_from_slice(&b.signs[4 * i..][..4]);
                }
                interleave(&b.qh, &b.scales, p.scale);
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Iq2Xs => each::<BlockIq2Xs, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(b.qs.as_flattened());
                p.scale.copy_from_slice(&b.scales);
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Iq2Xxs => each::<BlockIq2Xxs, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(b.qs.as_flattened());
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Iq1M => each::<BlockIq1M, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                p.high.copy_from_slice(&b.qh);
                for (out, pair) in p.scale.iter_mut().zip(b.scales().as_chunks::<2>().0) {
                    *out = pair[0] | pair[1] << 4;
                }
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d()));
            }),
            DType::Iq1S => each::<BlockIq1S, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                p.scale.copy_from_slice(b.qh.as_flattened());
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Tq1_0 => each::<BlockTq1_0, _>(source, planes, bytes, |b, mut p| {
                pack_ternary(b.d, &b.codes(), &mut p);
            }),
            DType::Tq2_0 => each::<BlockTq2_0, _>(source, planes, bytes, |b, mut p| {
                pack_ternary(b.d, &b.codes(), &mut p);
            }),
            DType::Q2_0 => each::<BlockQ2_0, _>(source, planes, bytes, |b, mut p| {
                pack_ternary(b.d, &b.codes(), &mut p);
            }),
            DType::Q1_0 => each::<BlockQ1_0, _>(source, planes, bytes, |b, p| {
                for (bits, low) in b.qs.as_chunks().0.iter().zip(p.low.chunks_exact_mut(4)) {
                    low.copy_from_slice(&fifth_bits(u32::from_le_bytes(*bits)));
                }
                p.super_scale.copy_from_slice(bytemuck::bytes_of(&b.d));
            }),
            DType::Nvfp4 => each::<BlockNvfp4, _>(source, planes, bytes, |b, p| {
                for (qs, low) in b.qs.as_chunks().0.iter().zip(p.low.chunks_exact_mut(16)) {
                    low.copy_from_slice(&nibbles_of_halves(qs));
                }
                p.scale.copy_from_slice(&b.scale_bits());
            }),
            DType::Mxfp4 => each::<BlockMxfp4, _>(source, planes, bytes, |b, p| {
                p.low.copy_from_slice(&b.qs);
                p.scale[0] = b.e;
            }),
            // E3M2 has the same layout.
            DType::Mxfp6E2M3 | DType::Mxfp6E3M2 => {
                each::<BlockMxfp6E2M3, _>(source, planes, bytes, |b, p| {
                    let codes = six_bit_codes(&b.qs);
                    for (l, low) in p.low.iter_mut().enumerate() {
                        *low = codes[l] & 15 | (codes[l + 16] & 15) << 4;
                    }
                    pairs_at_top(&codes.map(|code| code >> 4), p.high);
                    p.scale[0] = b.e;
                });
            }
        }
    }
}

/// The planes of several rows, or of one block.
struct Planes<'a> {
    low: &'a mut [u8],
    high: &'a mut [u8],
    scale: &'a mut [u8],
    super_scale: &'a mut [u8],
}

impl Planes<'_> {
    /// Splits the planes after `blocks` blocks. `bytes` are the sizes of one block in each plane.
    fn split_at(&mut self, blocks: usize, bytes: [usize; 4]) -> (Planes<'_>, Planes<'_>) {
        let (low, low_rest) = self.low.split_at_mut(blocks * bytes[0]);
        let (high, high_rest) = self.high.split_at_mut(blocks * bytes[1]);
        let (scale, scale_rest) = self.scale.split_at_mut(blocks * bytes[2]);
        let (super_scale, super_rest) = self.super_scale.split_at_mut(blocks * bytes[3]);
        (
            Planes { low, high, scale, super_scale },
            Planes { low: low_rest, high: high_rest, scale: scale_rest, super_scale: super_rest },
        )
    }
}

/// Calls `f` with every block and its part of the planes, on all cores. `bytes` are the sizes of
/// one block in each plane.
fn each<B: Pod, F>(source: &[u8], mut planes: Planes<'_>, bytes: [usize; 4], f: F)
where
    F: Fn(&B, Planes<'_>) + Sync + Copy,
{
    /// Largest number of blocks per task.
    const PIECE: usize = 4096;
    let blocks = source.len() / size_of::<B>();
    if blocks > PIECE {
        let half = blocks / 2;
        let (source, source_rest) = source.split_at(half * size_of::<B>());
        let (planes, planes_rest) = planes.split_at(half, bytes);
        rayon::join(
            || each::<B, F>(source, planes, bytes, f),
            || each::<B, F>(source_rest, planes_rest, bytes, f),
        );
        return;
    }
    for (i, block) in source.chunks_exact(size_of::<B>()).enumerate() {
        let part = |plane: &mut [u8], bytes: usize| i * bytes..(i * bytes + bytes).min(plane.len());
        let ranges = [
            part(planes.low, bytes[0]),
            part(planes.high, bytes[1]),
            part(planes.scale, bytes[2]),
            part(planes.super_scale, bytes[3]),
        ];
        let [low, high, scale, super_scale] = ranges;
        let planes = Planes {
            low: &mut planes.low[low],
            high: &mut planes.high[high],
            scale: &mut planes.scale[scale],
            super_scale: &mut planes.super_scale[super_scale],
        };
        f(&bytemuck::pod_read_unaligned(block), planes);
    }
}

/// Packs the codes of a ternary block.
fn pack_ternary(d: F16Le, codes: &[u8], planes: &mut Planes<'_>) {
    for (codes, low) in codes.as_chunks::<16>().0.iter().zip(planes.low.chunks_exact_mut(4)) {
        pack_bytes(codes, low, |j| 2 * j);
    }
    planes.super_scale.copy_from_slice(bytemuck::bytes_of(&d));
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_header_of_codebooks_is_that_of_rf_quant() {
        let header = include_str!("../kernels/include/rf/grids.h");
        assert!(
            header == rf_quant::c_grids(),
            "kernels/include/rf/grids.h is out of date: write it again with `cargo run -p rf-quant --example c_grids`"
        );
    }
}
