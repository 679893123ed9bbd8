//! Differences between code objects of one family, which have most of their code in common.

use std::collections::HashMap;

/// Bytes that are looked up: shorter copies cost more than the bytes.
const WINDOW: usize = 16;

/// The distance between the windows of the base: instructions are multiples of 4 bytes.
const STEP: usize = 4;

/// Encodes `bytes` as copies from `base`: any number of records, each the length of the literal
/// bytes, these bytes, and the start and the length of a copy from the base that follows them. All
/// numbers are u32 in little-endian order.
///
/// # Panics
///
/// If an argument has 4 GiB or more, which no code object has.
pub fn delta(base: &[u8], bytes: &[u8]) -> Vec<u8> {
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    for (step, window) in base.windows(WINDOW).step_by(STEP).enumerate() {
        places.entry(window).or_insert(STEP * step);
    }
    let mut out = Vec::new();
    let number = |value: usize| u32::try_from(value).expect("less than 4 GiB").to_le_bytes();
    let mut record = |literals: &[u8], start: usize, len: usize| {
        out.extend(number(literals.len()));
        out.extend(literals);
        out.extend(number(start));
        out.extend(number(len));
    };
    let (mut literals_start, mut at) = (0, 0);
    while let Some(window) = bytes.get(at..at + WINDOW) {
        let Some(&start) = places.get(window) else {
            at += 1;
            continue;
        };
        let pairs = bytes[at..].iter().zip(&base[start..]);
        let len = pairs.take_while(|(a, b)| a == b).count();
        record(&bytes[literals_start..at], start, len);
        at += len;
        literals_start = at;
    }
    record(&bytes[literals_start..], 0, 0);
    out
}
