//! The bytes of a page in a file.
//!
//! Layout, little-endian: magic, version, identity of the computation, group, chain of hashes,
//! length, page, and the hash (XXH3, 128 bits) of all bytes before it. The identity stands for the
//! model, the adapters, the settings of the cache and the backend.

use std::io::{self, Write};

use rf_kv::{ChainKey, PageGroup, PageKey};
use twox_hash::XxHash3_128;

const MAGIC: &[u8; 8] = b"RFKVPAGE";
const VERSION: u32 = 1;
/// Bytes before the page.
const HEADER_BYTES: usize = 8 + 4 + 16 + 1 + 32 + 8;
/// Bytes of the hash after the page.
const HASH_BYTES: usize = 16;
/// The letters of the groups in names of files.
const LETTERS: [u8; 3] = *b"fws";
/// The end of the names of files.
pub(super) const EXTENSION: &str = "page";

/// The bytes of the file of a page.
pub(super) const fn file_bytes(page_bytes: usize) -> u64 {
    (HEADER_BYTES + page_bytes + HASH_BYTES) as u64
}

/// Returns true for pages that are recurrent states.
pub(super) fn is_state(key: PageKey) -> bool {
    key.group == PageGroup::State
}

/// The name of the file of a page.
pub(super) fn name(key: PageKey) -> String {
    let letter = char::from(LETTERS[key.group.index()]);
    let (halves, _) = key.chain.as_bytes().as_chunks::<16>();
    let [first, second] = [halves[0], halves[1]].map(u128::from_be_bytes);
    format!("{letter}{first:032x}{second:032x}.{EXTENSION}")
}

/// The page of a file with this name.
pub(super) fn key_of(name: &str) -> Option<PageKey> {
    let stem = name.strip_suffix(EXTENSION)?.strip_suffix('.')?;
    let (letter, hex) = stem.as_bytes().split_first()?;
    let group = LETTERS.iter().position(|other| other == letter)?;
    let (halves, rest) = hex.as_chunks::<32>();
    let mut chain = [0; 32];
    if halves.len() != 2 || !rest.is_empty() {
        return None;
    }
    for (bytes, half) in chain.as_chunks_mut::<16>().0.iter_mut().zip(halves) {
        let digits = std::str::from_utf8(half).ok()?;
        *bytes = u128::from_str_radix(digits, 16).ok()?.to_be_bytes();
    }
    let key = PageKey { group: PageGroup::ALL[group], chain: ChainKey::from(chain) };
    // Another spelling is another file.
    (self::name(key) == name).then_some(key)
}

/// Writes the file of a page.
pub(super) fn write(
    out: &mut dyn Write,
    identity: u128,
    key: PageKey,
    page: &[u8],
) -> io::Result<()> {
    let header = header(identity, key, page.len());
    let mut hash = XxHash3_128::new();
    for bytes in [&header[..], page] {
        hash.write(bytes);
        out.write_all(bytes)?;
    }
    out.write_all(&hash.finish_128().to_le_bytes())
}

/// Returns true if bytes are those of the file of a page, without a change.
pub(super) fn is_intact(file: &[u8], identity: u128, key: PageKey) -> bool {
    let Some(page_bytes) = file.len().checked_sub(HEADER_BYTES + HASH_BYTES) else { return false };
    let Some((hashed, hash)) = file.split_last_chunk::<HASH_BYTES>() else { return false };
    hashed.starts_with(&header(identity, key, page_bytes))
        && XxHash3_128::oneshot(hashed) == u128::from_le_bytes(*hash)
}

/// The page in an [intact](is_intact) file.
pub(super) fn page(file: &[u8]) -> &[u8] {
    file.get(HEADER_BYTES..file.len().saturating_sub(HASH_BYTES)).unwrap_or_default()
}

fn header(identity: u128, key: PageKey, page_bytes: usize) -> Vec<u8> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend_from_slice(MAGIC);
    header.extend_from_slice(&VERSION.to_le_bytes());
    header.extend_from_slice(&identity.to_le_bytes());
    header.push(LETTERS[key.group.index()]);
    header.extend_from_slice(key.chain.as_bytes());
    header.extend_from_slice(&(page_bytes as u64).to_le_bytes());
    header
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: PageKey = PageKey { group: PageGroup::Window, chain: ChainKey::ROOT };

    fn file(identity: u128, key: PageKey, page: &[u8]) -> Vec<u8> {
        let mut file = Vec::new();
        write(&mut file, identity, key, page).unwrap();
        file
    }

    #[test]
    fn a_name_has_the_key_of_its_page() {
        for group in PageGroup::ALL {
            let key = PageKey { group, chain: KEY.chain.child(&[1, 2]) };
            assert_eq!(key_of(&name(key)), Some(key));
        }
        let known = name(KEY);
        for other in [
            &known[1..],
            &known.replace("w0", "x0"),
            &known.replace("w0", "w"),
            &known.replace("w00", "w+0"),
            &name(PageKey { chain: KEY.chain.child(&[1]), ..KEY }).to_uppercase(),
            "w.page",
            "",
        ] {
            assert_eq!(key_of(other), None, "{other}");
        }
    }

    #[test]
    fn every_change_of_a_file_is_found() {
        let intact = file(7, KEY, &[3; 40]);
        assert_eq!(intact.len() as u64, file_bytes(40));
        assert!(is_intact(&intact, 7, KEY));
        assert_eq!(page(&intact), [3; 40]);
        for at in 0..intact.len() {
            let mut damaged = intact.clone();
            damaged[at] ^= 1;
            assert!(!is_intact(&damaged, 7, KEY), "byte {at}");
            assert!(!is_intact(&intact[..at], 7, KEY), "{at} bytes");
        }
        let other = PageKey { group: PageGroup::Full, ..KEY };
        let child = PageKey { chain: KEY.chain.child(&[1]), ..KEY };
        assert!(!is_intact(&intact, 8, KEY) && !is_intact(&intact, 7, other));
        assert!(!is_intact(&intact, 7, child));
        assert!(!is_intact(&[&intact[..], &[0]].concat(), 7, KEY));
    }
}
