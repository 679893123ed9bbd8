//! `SentencePiece`'s precompiled map of characters: replacements of the longest matching keys.
//!
//! The map starts with the size in bytes of a double-array trie (`u32`, little-endian). The trie
//! and replacements that end in a zero byte follow. A unit of the trie holds its label in bits 0 to
//! 7, whether a key ends here in bit 8, and the offset of its children in bits 10 to 30, times 256
//! if bit 9 is set. A child is at `(unit's index ^ offset) ^ label`. The child of label 0 has bit
//! 31 set and holds the position of the replacement.

use crate::Error;

/// A checked map.
#[derive(Debug)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    replacements: Vec<u8>,
}

/// The keys of maps are a few characters long. The limit keeps a map with a cycle from reading the
/// rest of the text at each position.
const LONGEST_KEY: usize = 256;

/// The longest replacement of Unicode's NFKC has 33 bytes. The limit keeps a map from multiplying
/// the length of a text without bound.
const LONGEST_REPLACEMENT: usize = 1024;

impl Charsmap {
    /// Reads a map; `None` for no bytes.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, Error> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let malformed = Error::MalformedCharsmap;
        let (size, rest) = bytes.split_first_chunk().ok_or(malformed("it has no header"))?;
        let size = u32::from_le_bytes(*size) as usize;
        let (trie, replacements) =
            rest.split_at_checked(size).ok_or(malformed("its trie is longer than the map"))?;
        let (units, []) = trie.as_chunks() else {
            return Err(malformed("the size of its trie is not a multiple of 4"));
        };
        if replacements.last().is_none_or(|&byte| byte != 0) {
            return Err(malformed("a replacement does not end"));
        }
        if replacements.split(|&byte| byte == 0).any(|text| text.len() > LONGEST_REPLACEMENT) {
            return Err(malformed("a replacement is longer than 1024 bytes"));
        }
        let units = units.iter().map(|&unit| u32::from_le_bytes(unit)).collect();
        Ok(Some(Self { units, replacements: replacements.to_vec() }))
    }

    /// The length of the longest key that `text` starts with, and its replacement.
    pub(crate) fn longest(&self, text: &[u8]) -> Option<(usize, &[u8])> {
        let mut index = offset(*self.units.first()?);
        let mut found = None;
        for (len, &byte) in (1..).zip(text.iter().take(LONGEST_KEY)) {
            index ^= usize::from(byte);
            let Some(&unit) = self.units.get(index) else { break };
            if byte == 0 || unit & (LEAF | 0xFF) != u32::from(byte) {
                break;
            }
            index ^= offset(unit);
            if unit & ENDS_KEY != 0 {
                found = self.units.get(index).map(|leaf| (len, (leaf & !LEAF) as usize));
            }
        }
        let (len, start) = found?;
        let text = self.replacements.get(start..)?;
        let end = memchr::memchr(0, text)?;
        Some((len, &text[..end]))
    }
}

const LEAF: u32 = 1 << 31;
const ENDS_KEY: u32 = 1 << 8;

fn offset(unit: u32) -> usize {
    let scale = if unit & (1 << 9) == 0 { 0 } else { 8 };
    ((unit & !LEAF) as usize >> 10) << scale
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A map with the keys `a` and `ab`, built by hand.
    fn map() -> Vec<u8> {
        let unit = |label: u8, ends: bool, offset: u32| {
            u32::from(label) | u32::from(ends) << 8 | offset << 10
        };
        let mut units = vec![0_u32; 512];
        units[0] = unit(0, false, 256);
        let a = 256 ^ usize::from(b'a');
        units[a] = unit(b'a', true, 128);
        let below_a = a ^ 128;
        units[below_a] = LEAF;
        let ab = below_a ^ usize::from(b'b');
        units[ab] = unit(b'b', true, 16);
        units[ab ^ 16] = LEAF | 2;
        let mut bytes = (units.len() as u32 * 4).to_le_bytes().to_vec();
        bytes.extend(units.iter().flat_map(|unit| unit.to_le_bytes()));
        bytes.extend(b"x\0yz\0");
        bytes
    }

    #[test]
    fn the_longest_key_is_replaced() {
        let map = Charsmap::parse(&map()).unwrap().unwrap();
        assert_eq!(map.longest(b"abc"), Some((2, b"yz".as_slice())));
        assert_eq!(map.longest(b"ac"), Some((1, b"x".as_slice())));
        assert_eq!(map.longest(b"b"), None);
        assert_eq!(map.longest(b"\0"), None);
    }

    #[test]
    fn malformed_maps_are_refused() {
        assert!(Charsmap::parse(&[]).unwrap().is_none());
        let whole = map();
        for len in 1..whole.len() {
            // Only the end of a replacement may end the map.
            let is_whole = len == whole.len() - 3;
            assert_eq!(Charsmap::parse(&whole[..len]).is_ok(), is_whole, "{len}");
        }
        let mut odd = whole.clone();
        odd[0] = 3;
        assert!(Charsmap::parse(&odd).is_err());
        let mut long = whole;
        long.extend([b'x'; 1025]);
        long.push(0);
        assert!(Charsmap::parse(&long).is_err());
    }
}
