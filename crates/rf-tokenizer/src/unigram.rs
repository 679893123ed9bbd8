//! `SentencePiece`'s unigram model: the tokens of the highest total score that cover a text.

use crate::charsmap::Charsmap;
use crate::spm;
use crate::trie::Trie;
use crate::vocab::{Attr, Vocab};

/// The tokenizer of one vocabulary.
#[derive(Debug)]
pub(crate) struct Unigram {
    trie: Trie,
    charsmap: Option<Charsmap>,
    /// True if spaces around the text are removed and runs of spaces become one.
    merge_spaces: bool,
    unknown_score: f64,
}

/// The best way to cover the text up to a position.
#[derive(Debug, Clone, Copy)]
struct Path {
    score: f64,
    /// Start of the last token; [`UNREACHED`] if no tokens reach this position.
    start: usize,
    token: u32,
}

const UNREACHED: usize = usize::MAX;

/// The token of a character that no token covers.
const UNKNOWN: u32 = u32::MAX;

const SPACE: &[u8] = "\u{2581}".as_bytes();

impl Unigram {
    pub(crate) fn new(vocab: &Vocab, charsmap: Option<Charsmap>, merge_spaces: bool) -> Self {
        let with = |attr| (0..vocab.len()).filter(move |&id| vocab.attr(id).any(attr));
        let scores = with(Attr::NORMAL).map(|id| f64::from(vocab.score(id)));
        let least = scores.reduce(f64::min).unwrap_or_default();
        let trie = Trie::new(vocab, with(Attr::NORMAL | Attr::USER_DEFINED));
        Self { trie, charsmap, merge_spaces, unknown_score: least - 10.0 }
    }

    /// Tokenizes `text` and appends the ids to `ids`. `prefix` adds a space in front. Neighbouring
    /// characters without a token become one `unk`. Time is linear in the length of the text.
    pub(crate) fn encode(
        &self,
        vocab: &Vocab,
        unk: Option<u32>,
        text: &[u8],
        prefix: bool,
        ids: &mut Vec<u32>,
    ) {
        let text = self.normalize(text, prefix);
        let paths = self.best_paths(vocab, &text);
        let from = ids.len();
        let mut end = text.len();
        let mut after_unknown = false;
        while end > 0 {
            let Path { token, start, .. } = paths[end];
            if token != UNKNOWN {
                ids.push(token);
            } else if !after_unknown {
                ids.extend(unk);
            }
            after_unknown = token == UNKNOWN;
            end = start;
        }
        ids[from..].reverse();
    }

    /// The best path to each position. Paths start and continue at characters; every character has
    /// a path to its end, of a token or unknown.
    fn best_paths(&self, vocab: &Vocab, text: &[u8]) -> Vec<Path> {
        let nowhere = Path { score: 0.0, start: UNREACHED, token: UNKNOWN };
        let mut paths = vec![nowhere; text.len() + 1];
        paths[0].start = 0;
        let mut at = 0;
        while at < text.len() {
            let so_far = paths[at].score;
            let mut offer = |end: usize, token, score| {
                let score = so_far + score;
                let path: &mut Path = &mut paths[end];
                if path.start == UNREACHED || score > path.score {
                    *path = Path { score, start: at, token };
                }
            };
            let char_end = at + spm::char_len(text[at]).min(text.len() - at);
            let mut is_token = false;
            for (len, id) in self.trie.prefixes(&text[at..]) {
                is_token |= at + len == char_end;
                let user_defined = vocab.attr(id).any(Attr::USER_DEFINED);
                let score = if user_defined { 0.0 } else { f64::from(vocab.score(id)) };
                offer(at + len, id, score);
            }
            if !is_token {
                offer(char_end, UNKNOWN, self.unknown_score);
            }
            at = char_end;
        }
        paths
    }

    /// Replaces characters as the file says, and spaces by U+2581. Each byte that is not UTF-8
    /// becomes U+FFFD.
    fn normalize(&self, text: &[u8], prefix: bool) -> Vec<u8> {
        let mut output = Output {
            text: Vec::with_capacity(text.len() + text.len() / 2 + SPACE.len()),
            merge_spaces: self.merge_spaces,
            gap: prefix && self.merge_spaces,
        };
        if prefix && !self.merge_spaces && !text.is_empty() {
            output.text.extend_from_slice(SPACE);
        }
        for chunk in text.utf8_chunks() {
            let mut rest = chunk.valid().as_bytes();
            while let Some(&first) = rest.first() {
                let replaced = self.charsmap.as_ref().and_then(|map| map.longest(rest));
                let char_len = spm::char_len(first).min(rest.len());
                let (consumed, part) = replaced.unwrap_or((char_len, &rest[..char_len]));
                output.push(part);
                rest = &rest[consumed..];
            }
            for _ in chunk.invalid() {
                output.push("\u{FFFD}".as_bytes());
            }
        }
        output.text
    }
}

/// Normalised text.
struct Output {
    text: Vec<u8>,
    merge_spaces: bool,
    /// True if a space precedes the next character.
    gap: bool,
}

impl Output {
    fn push(&mut self, part: &[u8]) {
        for &byte in part {
            match byte {
                b' ' if self.merge_spaces => self.gap |= !self.text.is_empty(),
                b' ' => self.text.extend_from_slice(SPACE),
                other => {
                    if std::mem::take(&mut self.gap) {
                        self.text.extend_from_slice(SPACE);
                    }
                    self.text.push(other);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TOKENS: [(&str, f32, i32); 7] = [
        ("<unk>", 0.0, 2),
        ("▁", -3.0, 1),
        ("a", -2.0, 1),
        ("ab", -2.5, 1),
        ("b", -1.0, 1),
        ("▁a", -4.0, 1),
        ("▁▁", f32::NAN, 1),
    ];

    fn ids(merge_spaces: bool, text: &[u8]) -> Vec<u32> {
        let texts = TOKENS.iter().map(|t| t.0.to_owned()).collect();
        let types: Vec<i32> = TOKENS.iter().map(|t| t.2).collect();
        let vocab = Vocab::new(texts, TOKENS.iter().map(|t| t.1).collect(), &types).unwrap();
        let mut ids = Vec::new();
        let model = Unigram::new(&vocab, None, merge_spaces);
        model.encode(&vocab, Some(0), text, true, &mut ids);
        ids
    }

    #[test]
    fn the_best_total_wins_not_the_longest_token() {
        // ▁ + ab = -5.5, ▁a + b = -5.0, ▁ + a + b = -6.0.
        assert_eq!(ids(true, b"ab"), [5, 4]);
        assert_eq!(ids(true, b"bab"), [1, 4, 3]);
    }

    #[test]
    fn unknown_characters_become_one_token() {
        assert_eq!(ids(true, "xyéb".as_bytes()), [1, 0, 4]);
        assert_eq!(ids(true, b"\xff\xfeb"), [1, 0, 4]);
    }

    #[test]
    fn spaces_merge_if_the_file_says_so() {
        assert_eq!(ids(true, b"  b   b "), [1, 4, 1, 4]);
        assert_eq!(ids(true, b"   "), [0; 0]);
        assert_eq!(ids(false, b" b b"), [6, 4, 1, 4]);
    }
}
