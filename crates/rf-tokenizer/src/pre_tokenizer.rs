//! Splits text into the pieces that BPE merges must not cross.
//!
//! Each value of `tokenizer.ggml.pre` names a list of regular expressions. They run in order, each
//! on the pieces of the previous one. Text that an expression does not match is a separate piece.
//! [`patterns`] holds the expressions, this module runs them.
//!
//! The expressions end in `\s+(?!\S)`: the last character of white space before a word belongs to
//! the word. The `regex` crate has no look-ahead, and therefore runs in linear time on any text.
//! The rule is applied to the match instead ([`Tail`]). Bytes that are not UTF-8 match no
//! expression and form pieces of their own, so nothing is lost.

mod digits;
mod patterns;

use std::ops::Range;

use regex::bytes::Regex;

pub(crate) use self::patterns::{ByteForm, Flags};
use self::patterns::{CompiledStep, Tail};
use crate::Error;

/// A compiled named pre-tokenizer.
#[derive(Debug)]
pub(crate) struct PreTokenizer {
    steps: Vec<CompiledStep>,
    pub(crate) flags: Flags,
}

impl PreTokenizer {
    /// The pre-tokenizer called `name`.
    pub(crate) fn named(name: &str) -> Result<Self, Error> {
        let unknown = || Error::UnknownPreTokenizer { pre: name.to_owned() };
        let (sources, flags) = patterns::lookup(name).ok_or_else(unknown)?;
        let steps = sources.iter().map(patterns::PatternStep::compile).collect();
        Ok(Self { steps, flags })
    }

    /// The ends of the pieces of `text`, in order; the last is `text.len()`.
    pub(crate) fn split(&self, text: &[u8]) -> Vec<usize> {
        let mut ends = if text.is_empty() { vec![] } else { vec![text.len()] };
        let mut next = Vec::with_capacity(text.len() / 4);
        for step in &self.steps {
            let mut start = 0;
            for &end in &ends {
                let piece = &text[start..end];
                match step {
                    CompiledStep::Match(regex, tail) => {
                        split_piece(regex, *tail, piece, start, &mut next);
                    }
                    CompiledStep::Digits(grouping) => grouping.split(piece, start, &mut next),
                }
                if next.last().is_none_or(|&last| last < end) {
                    next.push(end);
                }
                start = end;
            }
            std::mem::swap(&mut ends, &mut next);
            next.clear();
        }
        ends
    }
}

/// Splits `piece`, which starts at `base` in the text, and appends the ends to `ends`. The caller
/// handles the text after the last match.
fn split_piece(regex: &Regex, tail: Tail, piece: &[u8], base: usize, ends: &mut Vec<usize>) {
    let mut at = 0;
    let mut last = 0;
    while let Some(found) = regex.find_at(piece, at) {
        if found.start() > last {
            ends.push(base + found.start());
        }
        last = match tail {
            Tail::Keep => found.end(),
            Tail::PowersOfTwo => blanks_in_powers_of_two(piece, found.range(), base, ends),
            Tail::Leave | Tail::LeaveUnlessNewline => {
                leave_last_blank(piece, found.range(), tail == Tail::LeaveUnlessNewline)
            }
        };
        // No expression matches the empty text. The check prevents an endless loop.
        at = last.max(at + 1);
        last = at;
        ends.push(base + at);
        if at >= piece.len() {
            break;
        }
    }
}

/// The end of `found` without its last character, if that is white space which belongs to the next
/// word and is not the whole match.
fn leave_last_blank(piece: &[u8], found: Range<usize>, keep_newline: bool) -> usize {
    if found.end == piece.len() {
        return found.end;
    }
    match last_blank(&piece[found.clone()]) {
        Some((c, _)) if keep_newline && matches!(c, '\r' | '\n') => found.end,
        Some((_, len)) if len < found.len() => found.end - len,
        _ => found.end,
    }
}

/// Splits a match of blanks without line breaks into parts of 512, 256, … 4, 2 or 1 blanks. Each
/// part is the largest that leaves one blank for a following word. Returns the end of the last
/// part, which the caller appends.
fn blanks_in_powers_of_two(
    piece: &[u8],
    found: Range<usize>,
    base: usize,
    ends: &mut Vec<usize>,
) -> usize {
    let matched = &piece[found.clone()];
    if last_blank(matched).is_none_or(|(c, _)| matches!(c, '\r' | '\n')) {
        return found.end;
    }
    // The start of each blank but the first, and the end of the last.
    let is_start = |i: &usize| matched.get(*i).is_none_or(|byte| byte & 0xC0 != 0x80);
    let blank_ends: Vec<usize> = (1..=matched.len()).filter(is_start).collect();
    let followed = usize::from(found.end < piece.len());
    let count = (blank_ends.len() - followed).max(1);
    let mut done = 0;
    loop {
        let fits = |size: &usize| *size <= count - done;
        done += [512, 256, 128, 64, 32, 16, 8, 4, 2].into_iter().find(fits).unwrap_or(1);
        let end = found.start + blank_ends[done - 1];
        if done == count {
            return end;
        }
        ends.push(base + end);
    }
}

/// The last character of `bytes` and its length, if it is white space.
fn last_blank(bytes: &[u8]) -> Option<(char, usize)> {
    let tail = &bytes[bytes.len().saturating_sub(4)..];
    // The longest suffix that is one character; the bytes before it may end in half of another.
    let c =
        (0..tail.len()).find_map(|i| std::str::from_utf8(&tail[i..]).ok())?.chars().next_back()?;
    c.is_whitespace().then(|| (c, c.len_utf8()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pieces<'a>(name: &str, text: &'a str) -> Vec<&'a str> {
        let mut start = 0;
        let ends = PreTokenizer::named(name).unwrap().split(text.as_bytes());
        let cut = |end| {
            let piece = &text[start..end];
            start = end;
            piece
        };
        ends.into_iter().map(cut).collect()
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn the_last_blank_belongs_to_the_word() {
        assert_eq!(pieces("gpt-2", "a   b"), ["a", "  ", " b"]);
        assert_eq!(pieces("gpt-2", "a \t\nb"), ["a", " \t", "\n", "b"]);
        assert_eq!(pieces("qwen2", "a   b  "), ["a", "  ", " b", "  "]);
        assert_eq!(pieces("qwen2", "a \n\n  b"), ["a", " \n\n", " ", " b"]);
        assert_eq!(pieces("qwen2", "a\u{3000}\u{3000}b"), ["a", "\u{3000}", "\u{3000}b"]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn digits_are_grouped_as_the_name_says() {
        assert_eq!(pieces("llama-bpe", "12345"), ["123", "45"]);
        assert_eq!(pieces("qwen2", "12345"), ["1", "2", "3", "4", "5"]);
        assert_eq!(pieces("gpt-2", " 12345"), [" 12345"]);
        assert_eq!(pieces("tiny_aya", "1234567  12a"), ["1", "234", "567", " ", " ", "12", "a"]);
        assert_eq!(pieces("superbpe", "a1234567"), ["a", "1", "234", "567"]);
        assert_eq!(pieces("afmoe", "1234567"), ["1", "234", "567"]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn contractions_follow_the_case_rule() {
        assert_eq!(pieces("llama-bpe", "I'LL he's"), ["I", "'LL", " he", "'s"]);
        assert_eq!(pieces("gpt-2", "I'LL he's"), ["I", "'", "LL", " he", "'s"]);
        assert_eq!(pieces("gpt-4o", "He'LL iPhone"), ["He'LL", " i", "Phone"]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn blanks_split_in_powers_of_two() {
        let text = format!("a{}b", " ".repeat(8));
        assert_eq!(pieces("jais-2", &text), ["a", "    ", "  ", " ", " b"]);
        let text = format!("a{}", " ".repeat(7));
        assert_eq!(pieces("jais-2", &text), ["a", "    ", "  ", " "]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn every_name_compiles_and_covers_its_text() {
        let text = "Hé'll ~x\u{3000}。 12３45 \r\n\t  <sentinel:1>IMGIMGABZ देव 日本 가  ";
        for name in patterns::names() {
            let ends = PreTokenizer::named(name).unwrap().split(text.as_bytes());
            assert_eq!(ends.last(), Some(&text.len()), "{name}");
            assert!(ends.is_sorted_by(|a, b| a < b), "{name}: {ends:?}");
            assert!(ends.iter().all(|&e| text.is_char_boundary(e)), "{name}: {ends:?}");
        }
    }

    /// The expressions as the models' `tokenizer.json` has them, run by the tokenizers library.
    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn pieces_match_the_tokenizers_library() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/data/pre_tokenizers.json.gz");
        let json = rf_testing::packed_text(path.as_ref());
        let groups: serde_json::Value = serde_json::from_str(&json).unwrap();
        for group in groups.as_array().unwrap() {
            let name = |name: &serde_json::Value| name.as_str().unwrap().to_owned();
            for name in group["names"].as_array().unwrap().iter().map(name) {
                for expected in group["texts"].as_array().unwrap() {
                    let expected: Vec<&str> =
                        expected.as_array().unwrap().iter().map(|p| p.as_str().unwrap()).collect();
                    assert_eq!(pieces(&name, &expected.concat()), expected, "{name}");
                }
            }
        }
    }

    #[test]
    fn unknown_names_are_refused_by_name() {
        let error = PreTokenizer::named("nonesuch").unwrap_err();
        assert!(error.to_string().contains("`nonesuch`"), "{error}");
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn invalid_utf8_is_kept() {
        let text = b"ab\xff\xfe cd\xe2\x82";
        let ends = PreTokenizer::named("qwen2").unwrap().split(text);
        assert_eq!(ends, [2, 4, 7, 9]);
    }
}
