//! The 12 bytes in which `Q4_K` and `Q5_K` keep eight 6-bit scales and eight 6-bit minima.
//!
//! ```text
//! byte 0..4   | bits 0-5 scale j          | bits 6-7 high bits of scale j+4 |   j = byte
//! byte 4..8   | bits 0-5 minimum j        | bits 6-7 high bits of minimum j+4 | j = byte - 4
//! byte 8..12  | bits 0-3 low of scale j+4 | bits 4-7 low of minimum j+4 |       j = byte - 8
//! ```

/// The scales and the minima, in order of sub-blocks, each below 64.
pub(super) fn unpack(bytes: &[u8; 12]) -> ([u8; 8], [u8; 8]) {
    let (mut scales, mut mins) = ([0; 8], [0; 8]);
    for j in 0..4 {
        let (scale, min, low) = (bytes[j], bytes[j + 4], bytes[j + 8]);
        scales[j] = scale & 63;
        mins[j] = min & 63;
        scales[j + 4] = low & 15 | scale >> 6 << 4;
        mins[j + 4] = low >> 4 | min >> 6 << 4;
    }
    (scales, mins)
}

/// The inverse of [`unpack`], for scales and minima below 64.
pub(super) fn pack(scales: [u8; 8], mins: [u8; 8]) -> [u8; 12] {
    let mut bytes = [0; 12];
    for j in 0..4 {
        bytes[j] = scales[j] | scales[j + 4] >> 4 << 6;
        bytes[j + 4] = mins[j] | mins[j + 4] >> 4 << 6;
        bytes[j + 8] = scales[j + 4] & 15 | mins[j + 4] << 4;
    }
    bytes
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_packed_scale_is_unpacked_again() {
        for start in 0..64u8 {
            let scales = std::array::from_fn(|j| (start + 7 * j as u8) % 64);
            let mins = std::array::from_fn(|j| (start + 13 * j as u8 + 1) % 64);
            assert_eq!(super::unpack(&super::pack(scales, mins)), (scales, mins));
        }
    }
}
