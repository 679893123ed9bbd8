//! Escape sequences in texts of the command line, as llama.cpp resolves them.

/// Replaces `\n`, `\r`, `\t`, `\'`, `\"`, `\\` and `\xHH` by their characters. Others stay.
pub(crate) fn resolved(text: &str) -> String {
    let mut resolved = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('\\') {
        resolved.push_str(&rest[..at]);
        rest = &rest[at + 1..];
        let (character, length) = match rest.as_bytes() {
            [b'n', ..] => (Some('\n'), 1),
            [b'r', ..] => (Some('\r'), 1),
            [b't', ..] => (Some('\t'), 1),
            [byte @ (b'\'' | b'"' | b'\\'), ..] => (Some(char::from(*byte)), 1),
            [b'x', high, low, ..] if high.is_ascii_hexdigit() && low.is_ascii_hexdigit() => {
                // A byte above 7F would be a part of a character.
                let byte = u8::from_str_radix(&rest[1..3], 16).ok().filter(u8::is_ascii);
                (byte.map(char::from), 3)
            }
            _ => (None, 0),
        };
        match character {
            Some(character) => {
                resolved.push(character);
                rest = &rest[length..];
            }
            None => resolved.push('\\'),
        }
    }
    resolved + rest
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_become_characters_and_others_stay() {
        assert_eq!(resolved(r#"a\nb\t\\n\"\'\x41\r"#), "a\nb\t\\n\"'A\r");
        for text in [r"\d \w", r"\xZZ", r"\xff", r"end\", "\\é", ""] {
            assert_eq!(resolved(text), text);
        }
    }
}
