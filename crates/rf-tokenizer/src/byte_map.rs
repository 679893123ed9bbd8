//! GPT-2's mapping of bytes to printable characters.
//!
//! BPE vocabularies are lists of strings, so each byte is written as a character: printable
//! Latin-1 represents itself, and the other 68 bytes are U+0100 and up, in order. A space is `Ġ`.

/// The character for `byte`.
pub(crate) fn char_of(byte: u8) -> char {
    match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => char::from(byte),
        0..=0x20 => char_at(u32::from(byte)),
        0x7F..=0xA0 => char_at(u32::from(byte) - 0x7F + 33),
        0xAD => char_at(67),
    }
}

/// The byte that `c` represents.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    let code = u32::from(c);
    match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => Some(code as u8),
        0x100..=0x120 => Some((code - 0x100) as u8),
        0x121..=0x142 => Some((code - 0x121 + 0x7F) as u8),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// Appends the characters for `bytes` to `text`.
pub(crate) fn encode_into(bytes: &[u8], text: &mut String) {
    text.extend(bytes.iter().map(|&b| char_of(b)));
}

fn char_at(index: u32) -> char {
    // U+0100..=U+0143 are all assigned characters.
    char::from_u32(0x100 + index).unwrap_or(char::REPLACEMENT_CHARACTER)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_map_is_a_bijection() {
        let chars: BTreeSet<char> = (0..=255).map(char_of).collect();
        assert_eq!(chars.len(), 256);
        assert!((0..=255).all(|b| byte_of(char_of(b)) == Some(b)));
        assert_eq!(byte_of(' '), None);
        assert_eq!(byte_of('▁'), None);
    }

    #[test]
    fn well_known_stand_ins() {
        let shown: String = [b' ', b'\n', b'\t', b'A', 0xAD, 0x7F].map(char_of).iter().collect();
        assert_eq!(shown, "ĠĊĉAŃġ");
    }
}
