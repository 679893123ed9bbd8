//! The embedded form of code objects: deflated differences.
//!
//! Kernels for similar formats have most of their code in common, and so have the objects of a
//! family of targets. Deflate looks back by 32 KiB, which is less than a kernel for matrix units
//! has. So repetitions at any distance are removed first.

use std::collections::HashMap;

use miniz_oxide::deflate::compress_to_vec_zlib;

/// Bytes that are looked up, and the least of a copy: deflate stores shorter ones in fewer bytes.
const WINDOW: usize = 32;

/// The distance between the windows that are looked up: instructions are multiples of 4 bytes.
const STEP: usize = 4;

/// The level of compression: 9 takes longer and saves less than one percent.
const LEVEL: u8 = 6;

/// The difference of `bytes` from `base`, deflated.
///
/// # Panics
///
/// If the arguments have 4 GiB or more, which no code object has.
pub fn packed(base: &[u8], bytes: &[u8]) -> Vec<u8> {
    compress_to_vec_zlib(&delta(base, bytes), LEVEL)
}

/// Encodes `bytes` as copies from `base` and from the bytes before: the number of literal bytes,
/// these bytes, and any number of records. A record is the number of literals to take, and the
/// distance and the length of a copy that follows them. The distance counts back from the end of
/// what is decoded, with the base in front. Literals that no record takes are the end. All numbers
/// are u32 in little-endian order.
///
/// # Panics
///
/// If the arguments have 4 GiB or more, which no code object has.
pub fn delta(base: &[u8], bytes: &[u8]) -> Vec<u8> {
    let number = |value: usize| u32::try_from(value).expect("less than 4 GiB").to_le_bytes();
    let all = [base, bytes].concat();
    let (mut literals, mut records) = (Vec::new(), Vec::new());
    // The latest place of each window before the current one.
    let mut places: HashMap<&[u8], usize> = HashMap::new();
    let mut next_place = 0;
    // Code that differs in a few bytes goes on at the distance of the last copy.
    let mut distance = base.len();
    let (mut literals_start, mut at) = (base.len(), base.len());
    while let Some(window) = all.get(at..at + WINDOW) {
        while next_place + WINDOW <= at {
            places.insert(&all[next_place..next_place + WINDOW], next_place);
            next_place += STEP;
        }
        let equal_bytes = |start: usize| {
            let pairs = all[at..].iter().zip(&all[start..at]);
            pairs.take_while(|(a, b)| a == b).count()
        };
        let starts = [places.get(window).copied(), at.checked_sub(distance)];
        let copies = starts.into_iter().flatten().map(|start| (equal_bytes(start), start));
        match copies.max_by_key(|(len, _)| *len) {
            Some((len, start)) if len >= WINDOW => {
                let new = &all[literals_start..at];
                distance = at - start;
                literals.extend(new);
                records.extend([new.len(), distance, len].map(number).concat());
                at += len;
                literals_start = at;
            }
            _ => at += 1,
        }
    }
    literals.extend(&all[literals_start..]);
    [&number(literals.len())[..], &literals, &records].concat()
}
