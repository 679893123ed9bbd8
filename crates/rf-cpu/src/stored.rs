//! The blocks that panels store. Most are blocks of the file with reordered bits. The codebook
//! formats become codes of their few distinct values, because a lookup of points per lane would
//! cost more than the bytes: 3.3 bits per weight for IQ1 and IQ2, 4.2 for IQ3. TQ1_0 becomes TQ2_0.

use rf_graph::DType;
use rf_quant::{BlockNvfp4, BlockTq1_0, BlockTq2_0, CodebookBlock, Family};

use crate::simd::{IQ1_VALUES, IQ2_VALUES, IQ3_S_VALUES, IQ3_XXS_VALUES, planes};

/// Bytes of a stored block.
pub(crate) fn block_bytes(dtype: DType) -> usize {
    planes(dtype).iter().map(|plane| plane.bytes).sum()
}

/// Returns true if stored blocks differ from those of the file.
pub(crate) fn differs(dtype: DType) -> bool {
    use DType::{Mxfp6E2M3, Mxfp6E3M2, Nvfp4, Q1_0, Q2_0, Q5_0, Q5_1, Tq1_0};
    matches!(dtype, Q5_0 | Q5_1 | Q1_0 | Q2_0 | Mxfp6E2M3 | Mxfp6E3M2 | Nvfp4 | Tq1_0)
        || dtype.family() == Family::Codebook
}

/// Converts a block of the file.
pub(crate) fn pack(dtype: DType, block: &[u8], out: &mut [u8]) {
    match dtype {
        DType::Tq1_0 => {
            let block: BlockTq1_0 = bytemuck::pod_read_unaligned(block);
            let stored = BlockTq2_0::from_codes(block.d, &block.codes());
            out.copy_from_slice(bytemuck::bytes_of(&stored));
        }
        DType::Nvfp4 => {
            let mut block: BlockNvfp4 = bytemuck::pod_read_unaligned(block);
            block.d = block.scale_bits();
            out.copy_from_slice(bytemuck::bytes_of(&block));
        }
        DType::Iq1S => pack_codes::<rf_quant::BlockIq1S>(block, out),
        DType::Iq1M => pack_codes::<rf_quant::BlockIq1M>(block, out),
        DType::Iq2Xxs => pack_codes::<rf_quant::BlockIq2Xxs>(block, out),
        DType::Iq2Xs => pack_codes::<rf_quant::BlockIq2Xs>(block, out),
        DType::Iq2S => pack_codes::<rf_quant::BlockIq2S>(block, out),
        DType::Iq3Xxs => pack_codes::<rf_quant::BlockIq3Xxs>(block, out),
        DType::Iq3S => pack_codes::<rf_quant::BlockIq3S>(block, out),
        _ => {
            out.copy_from_slice(block);
            rearrange(dtype, out, Direction::Pack);
        }
    }
}

/// Dequantises a stored block, which it may overwrite.
pub(crate) fn dequantize(dtype: DType, stored: &mut [u8], out: &mut [f32]) {
    match dtype {
        DType::Tq1_0 => dequantize_file_block(DType::Tq2_0, stored, out),
        DType::Nvfp4 => {
            // With a sign, the bits of NaN are a number again.
            stored[..4].iter_mut().for_each(|d| *d |= 0x80);
            dequantize_file_block(dtype, stored, out);
        }
        DType::Iq1S => unpack_codes::<rf_quant::BlockIq1S>(stored, out),
        DType::Iq1M => unpack_codes::<rf_quant::BlockIq1M>(stored, out),
        DType::Iq2Xxs => unpack_codes::<rf_quant::BlockIq2Xxs>(stored, out),
        DType::Iq2Xs => unpack_codes::<rf_quant::BlockIq2Xs>(stored, out),
        DType::Iq2S => unpack_codes::<rf_quant::BlockIq2S>(stored, out),
        DType::Iq3Xxs => unpack_codes::<rf_quant::BlockIq3Xxs>(stored, out),
        DType::Iq3S => unpack_codes::<rf_quant::BlockIq3S>(stored, out),
        _ => {
            rearrange(dtype, stored, Direction::Unpack);
            dequantize_file_block(dtype, stored, out);
        }
    }
}

fn dequantize_file_block(dtype: DType, block: &[u8], out: &mut [f32]) {
    rf_quant::dequantize(dtype, block, out).expect("one block");
}

/// A stored block of codes. `BITS` is 3 for IQ1 and IQ2, and 4 for IQ3.
///
/// ```text
/// 3 bits  0                    64                96                    104     106
///         | bits 0-1, as Q2_K  | bit 2, as Q3_K  | scales per 16       | d f16 |
/// 4 bits  0                                      128                   132     134
///         | nibbles, as Q4_K                     | scales per 32       | d f16 |
/// ```
///
/// Two scales of four bits are in a byte, the first one in the low nibble.
struct Layout {
    values: &'static [i8],
    scales_at: usize,
    /// Sub-blocks of 16 per scale.
    subs_per_scale: usize,
    d_at: usize,
}

impl Layout {
    const fn of(dtype: DType) -> Self {
        match dtype {
            DType::Iq3Xxs => Self::four_bits(&IQ3_XXS_VALUES),
            DType::Iq3S => Self::four_bits(&IQ3_S_VALUES),
            DType::Iq1S | DType::Iq1M => Self::three_bits(&IQ1_VALUES),
            _ => Self::three_bits(&IQ2_VALUES),
        }
    }

    const fn three_bits(values: &'static [i8]) -> Self {
        Self { values, scales_at: 96, subs_per_scale: 1, d_at: 104 }
    }

    const fn four_bits(values: &'static [i8]) -> Self {
        Self { values, scales_at: 128, subs_per_scale: 2, d_at: 132 }
    }

    /// The code of each value, by the byte of the value.
    const fn codes(&self) -> [u8; 256] {
        let mut codes = [0; 256];
        let mut code = 0;
        while code < self.values.len() {
            codes[self.values[code].cast_unsigned() as usize] = code as u8;
            code += 1;
        }
        codes
    }

    /// The bytes of the code of element `i`, each with the shift and the number of its bits.
    const fn places(&self, i: usize) -> [(usize, usize, u32); 2] {
        if self.values.len() == 16 {
            return [(i / 64 * 32 + i % 32, i / 32 % 2 * 4, 4), (0, 0, 0)];
        }
        [(i / 128 * 32 + i % 32, i % 128 / 32 * 2, 2), (64 + i % 32, i / 32, 1)]
    }
}

fn pack_codes<B: CodebookBlock>(block: &[u8], out: &mut [u8]) {
    let layout = const { Layout::of(B::DTYPE) };
    let codes = const { Layout::of(B::DTYPE).codes() };
    let block: B = bytemuck::pod_read_unaligned(block);
    out.fill(0);
    for (i, value) in block.values().into_iter().enumerate() {
        let mut code = codes[usize::from(value.cast_unsigned())];
        for (byte, shift, bits) in layout.places(i) {
            let mask = (1 << bits) - 1;
            out[byte] |= (code & mask) << shift;
            code >>= bits;
        }
    }
    let scales = block.scales();
    for (i, scale) in scales.iter().step_by(layout.subs_per_scale).enumerate() {
        out[layout.scales_at + i / 2] |= scale << (4 * (i % 2));
    }
    out[layout.d_at..].copy_from_slice(&block.d().to_le_bytes());
}

fn unpack_codes<B: CodebookBlock>(stored: &[u8], out: &mut [f32]) {
    let layout = const { Layout::of(B::DTYPE) };
    let d = rf_quant::F16Le::from_le_bytes([stored[layout.d_at], stored[layout.d_at + 1]]);
    let d = d.to_f32() * B::UNIT;
    for (i, out) in out.iter_mut().enumerate() {
        let sub = i / 16 / layout.subs_per_scale;
        let scale = stored[layout.scales_at + sub / 2] >> (4 * (sub % 2)) & 15;
        let (mut code, mut have) = (0, 0);
        for (byte, shift, bits) in layout.places(i) {
            code |= (stored[byte] >> shift & ((1 << bits) - 1)) << have;
            have += bits;
        }
        let value = layout.values.get(usize::from(code)).copied().unwrap_or(0);
        *out = d * f32::from(2 * scale + 1) * f32::from(value);
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Pack,
    Unpack,
}

/// Reorders bits within a block of the formats whose file order does not suit vectors.
///
/// `Q5_0`, `Q5_1`, `Q1_0`: bit `4g + i` of the fifth bits, or of each 32 bits (element `4g + i`),
/// moves to bit `8i + g`. A shift by `g` then brings the bits of four consecutive elements to the
/// bottom of four bytes. `Q2_0`: the two bits of element `4g + i` of 16 move to bit `8i + 2g`
/// likewise. MXFP6: 24 bytes of 6-bit codes become 16 bytes of low nibbles in the order of `Q4_0`
/// (element `j` low, `j + 16` high) and 8 bytes of upper bits (element `8k + j` in bits `2k..` of
/// byte `j`).
fn rearrange(dtype: DType, block: &mut [u8], direction: Direction) {
    match dtype {
        DType::Q5_0 | DType::Q5_1 => {
            let at = if dtype == DType::Q5_0 { 2 } else { 4 };
            transpose::<1>(&mut block[at..at + 4], direction);
        }
        DType::Q1_0 => transpose::<1>(&mut block[2..], direction),
        DType::Q2_0 => transpose::<2>(&mut block[2..], direction),
        DType::Mxfp6E2M3 | DType::Mxfp6E3M2 => {
            let codes = &mut block[1..25];
            let mut moved = [0_u8; 24];
            for e in 0..32 {
                let (byte, bit) = (e * 6 / 8, e * 6 % 8);
                let (low, high) = (e % 16, 16 + e % 8);
                let (low_shift, high_shift) = (e / 16 * 4, e / 8 * 2);
                match direction {
                    Direction::Pack => {
                        let next = codes.get(byte + 1).copied().unwrap_or(0);
                        let code = u16::from_le_bytes([codes[byte], next]) >> bit & 63;
                        moved[low] |= ((code & 15) << low_shift) as u8;
                        moved[high] |= ((code >> 4) << high_shift) as u8;
                    }
                    Direction::Unpack => {
                        let code = u16::from(codes[low] >> low_shift & 15)
                            | u16::from(codes[high] >> high_shift & 3) << 4;
                        let [first, second] = (code << bit).to_le_bytes();
                        moved[byte] |= first;
                        if let Some(next) = moved.get_mut(byte + 1) {
                            *next |= second;
                        }
                    }
                }
            }
            codes.copy_from_slice(&moved);
        }
        _ => {}
    }
}

/// Moves the `BITS` bits of element `4g + i` of each word to bit `8i + BITS · g`, or back.
fn transpose<const BITS: u32>(words: &mut [u8], direction: Direction) {
    for word in words.as_chunks_mut::<4>().0 {
        let (bits, mut moved) = (u32::from_le_bytes(*word), 0);
        for g in 0..8 / BITS {
            for i in 0..4 {
                let (file, vector) = (BITS * (4 * g + i), 8 * i + BITS * g);
                let (from, to) = match direction {
                    Direction::Pack => (file, vector),
                    Direction::Unpack => (vector, file),
                };
                moved |= (bits >> from & ((1 << BITS) - 1)) << to;
            }
        }
        *word = moved.to_le_bytes();
    }
}
