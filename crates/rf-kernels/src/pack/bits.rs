//! Reordering of bits and bytes within a block.

/// The scale of each 32 values, of scales per 16.
pub(super) fn even(scales: [u8; 16]) -> [u8; 8] {
    std::array::from_fn(|i| scales[2 * i])
}

/// Converts 32 bits, bit `e` for value `e`, to the order of [`bits_at_top`].
pub(super) fn fifth_bits(bits: u32) -> [u8; 4] {
    bits_at_top(&std::array::from_fn(|e| (bits >> e & 1) as u8))
}

/// Packs one bit per value: bit `7 − j` of byte `i` is the bit of value `4j + i`.
pub(super) fn bits_at_top(bits: &[u8; 32]) -> [u8; 4] {
    std::array::from_fn(|i| (0..8).fold(0, |byte, j| byte | bits[4 * j + i] << (7 - j)))
}

/// Packs two bits per value: bits `7 − 2j` and `6 − 2j` of byte `4h + i` belong to value
/// `16h + 4j + i`.
pub(super) fn pairs_at_top(pairs: &[u8; 32], out: &mut [u8]) {
    for (pairs, out) in pairs.as_chunks::<16>().0.iter().zip(out.chunks_exact_mut(4)) {
        pack_bytes(pairs, out, |j| 6 - 2 * j);
    }
}

/// Packs 16 values into four bytes: byte `i` has value `4j + i` from bit `shift(j)` on.
pub(super) fn pack_bytes(values: &[u8; 16], out: &mut [u8], shift: impl Fn(usize) -> usize) {
    for (i, out) in out.iter_mut().enumerate() {
        *out = (0..4).fold(0, |byte, j| byte | values[4 * j + i] << shift(j));
    }
}

/// Unpacks the two-bit codes of Q2_K and Q3_K. In 128 values, byte `l` of 32 has values `l`,
/// `32 + l`, `64 + l` and `96 + l`.
pub(super) fn q2_k_codes(qs: &[u8; 64]) -> [u8; 256] {
    std::array::from_fn(|e| qs[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3)
}

/// Reorders nibbles block by block. In 64 input values, byte `l` of 32 has value `l` in the low
/// nibble and value `32 + l` in the high one.
pub(super) fn nibbles_by_block(qs: &[u8; 128], out: &mut [u8]) {
    for (qs, out) in qs.as_chunks::<32>().0.iter().zip(out.chunks_exact_mut(32)) {
        let (first, last) = out.split_at_mut(16);
        for l in 0..16 {
            first[l] = qs[l] & 15 | (qs[l + 16] & 15) << 4;
            last[l] = qs[l] >> 4 | qs[l + 16] & 0xf0;
        }
    }
}

/// Reorders nibbles as [`nibbles_by_block`] for 128 values, with value `64 + l` in the high nibble.
pub(super) fn nibbles_of_128(qs: &[u8], out: &mut [u8]) {
    for (block, out) in out.chunks_exact_mut(16).enumerate() {
        let (bytes, shift) = (&qs[block % 2 * 32..][..32], block / 2 * 4);
        for (l, out) in out.iter_mut().enumerate() {
            *out = bytes[l] >> shift & 15 | (bytes[l + 16] >> shift & 15) << 4;
        }
    }
}

/// The order of [`nibbles_by_block`] for 32 values in two halves, in which byte `l` of eight has
/// value `l` in the low nibble and value `8 + l` in the high one.
pub(super) fn nibbles_of_halves(qs: &[[u8; 8]; 2]) -> [u8; 16] {
    let code = |half: usize, l: usize| qs[half][l % 8] >> (l / 8 * 4) & 15;
    std::array::from_fn(|l| code(0, l) | code(1, l) << 4)
}

/// Interleaves two arrays: `a₀ b₀ a₁ b₁ …`.
pub(super) fn interleave(a: &[u8], b: &[u8], out: &mut [u8]) {
    for ((a, b), out) in a.iter().zip(b).zip(out.chunks_exact_mut(2)) {
        out.copy_from_slice(&[*a, *b]);
    }
}

/// Unpacks 32 codes of 6 bits, least significant bits first.
pub(super) fn six_bit_codes(qs: &[u8; 24]) -> [u8; 32] {
    std::array::from_fn(|e| {
        let (byte, bit) = (e * 6 / 8, e * 6 % 8);
        let next = qs.get(byte + 1).copied().unwrap_or(0);
        (u16::from_le_bytes([qs[byte], next]) >> bit & 63) as u8
    })
}
