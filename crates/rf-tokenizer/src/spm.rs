//! SentencePiece's BPE: merges of the highest score first, byte tokens for unknown characters.

use std::cmp::Ordering;
use std::collections::BinaryHeap;

use crate::vocab::Vocab;

/// Tokenizes `text`, in which spaces are U+2581 already, and appends the ids to `ids`.
///
/// Of all neighbours whose concatenation is a token, those with the highest score merge first, ties
/// from the left. A character without a token becomes `<0xXX>` tokens.
/// Time is O(n log n) in the length of the text.
pub(crate) fn encode(vocab: &Vocab, unk: Option<u32>, text: &[u8], ids: &mut Vec<u32>) {
    let mut symbols = characters(text);
    let mut queue = BinaryHeap::with_capacity(symbols.len());
    for left in 0..symbols.len() {
        queue.extend(bigram(vocab, text, &symbols, left));
    }
    while let Some(best) = queue.pop() {
        let (left, right) = (symbols[best.left], symbols[best.right]);
        // A symbol of this pair has already merged with another one.
        if left.len == 0 || right.len == 0 || left.len + right.len != best.len {
            continue;
        }
        symbols[best.left].len = best.len;
        symbols[best.left].next = right.next;
        symbols[best.right].len = 0;
        if let Some(next) = symbols.get_mut(right.next) {
            next.previous = best.left;
        }
        if left.previous != NONE {
            queue.extend(bigram(vocab, text, &symbols, left.previous));
        }
        queue.extend(bigram(vocab, text, &symbols, best.left));
    }
    for symbol in symbols.iter().filter(|symbol| symbol.len > 0) {
        let piece = &text[symbol.start..symbol.start + symbol.len];
        match vocab.id_of(piece) {
            Some(id) => ids.push(id),
            None => ids.extend(piece.iter().filter_map(|&byte| byte_token(vocab, byte).or(unk))),
        }
    }
}

/// The token of one byte.
pub(crate) fn byte_token(vocab: &Vocab, byte: u8) -> Option<u32> {
    vocab.id_of(format!("<0x{byte:02X}>").as_bytes()).or_else(|| vocab.id_of(&[byte]))
}

/// The index for no neighbour.
const NONE: usize = usize::MAX;

/// A run of characters of the text, in a doubly linked list; merged into its left neighbour
/// when `len` is 0.
#[derive(Debug, Clone, Copy)]
struct Symbol {
    start: usize,
    len: usize,
    previous: usize,
    next: usize,
}

/// Two neighbours that could merge.
#[derive(Debug)]
struct Bigram {
    score: f32,
    left: usize,
    right: usize,
    len: usize,
}

impl Ord for Bigram {
    fn cmp(&self, other: &Self) -> Ordering {
        self.score.total_cmp(&other.score).then(other.left.cmp(&self.left))
    }
}

impl PartialOrd for Bigram {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Bigram {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Bigram {}

fn characters(text: &[u8]) -> Vec<Symbol> {
    let mut symbols = Vec::with_capacity(text.len());
    let mut start = 0;
    while start < text.len() {
        let len = char_len(text[start]).min(text.len() - start);
        let index = symbols.len();
        let previous = if index == 0 { NONE } else { index - 1 };
        symbols.push(Symbol { start, len, previous, next: index + 1 });
        start += len;
    }
    if let Some(last) = symbols.last_mut() {
        last.next = NONE;
    }
    symbols
}

/// The length of a UTF-8 character by its first byte; 1 for a byte that is not a first byte.
pub(crate) fn char_len(first: u8) -> usize {
    match first {
        0xF0.. => 4,
        0xE0.. => 3,
        0xC0.. => 2,
        _ => 1,
    }
}

fn bigram(vocab: &Vocab, text: &[u8], symbols: &[Symbol], left: usize) -> Option<Bigram> {
    let first = symbols[left];
    let second = symbols.get(first.next)?;
    let len = first.len + second.len;
    if len > vocab.longest() {
        return None;
    }
    let id = vocab.id_of(&text[first.start..first.start + len])?;
    Some(Bigram { score: vocab.score(id), left, right: first.next, len })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(tokens: &[(&str, f32)], text: &str) -> Vec<u32> {
        let texts = tokens.iter().map(|t| t.0.to_owned()).collect();
        let vocab = Vocab::new(texts, tokens.iter().map(|t| t.1).collect(), &[]).unwrap();
        let mut ids = Vec::new();
        encode(&vocab, None, text.as_bytes(), &mut ids);
        ids
    }

    #[test]
    fn ties_merge_from_the_left_and_scores_decide() {
        let tokens = [("a", 0.0), ("aa", -1.0), ("b", 0.0), ("ab", -0.5)];
        assert_eq!(ids(&tokens, "aaa"), [1, 0]);
        assert_eq!(ids(&tokens, "aab"), [0, 3]);
    }

    #[test]
    fn characters_without_a_token_become_bytes() {
        let tokens = [("a", 0.0), ("<0xC3>", 0.0), ("<0xA9>", 0.0)];
        assert_eq!(ids(&tokens, "aé"), [0, 1, 2]);
        assert_eq!(ids(&tokens, "ax"), [0]);
    }
}
