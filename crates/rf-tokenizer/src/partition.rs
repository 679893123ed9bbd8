//! Cuts raw text at special tokens, before tokenization.

use std::ops::Range;

use aho_corasick::{AhoCorasick, MatchKind};
use memchr::memmem;

use crate::vocab::{Attr, Vocab};

/// Finds the special tokens of a vocabulary in text.
#[derive(Debug)]
pub(crate) struct SpecialMatcher {
    /// Special ids, longest text first; equal lengths by id.
    ids: Vec<u32>,
    /// Finds the texts of `ids`, in that order. `None` without ids, or with too many for an
    /// automaton: each is then searched for on its own.
    automaton: Option<AhoCorasick>,
}

/// A part of the text: to be tokenized, or a special token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fragment {
    Text(Range<usize>),
    Special(u32),
}

impl SpecialMatcher {
    pub(crate) fn new(vocab: &Vocab) -> Self {
        let mut ids: Vec<u32> =
            (0..vocab.len()).filter(|&id| vocab.attr(id).any(Attr::SPECIAL)).collect();
        let text = |id: u32| vocab.text(id).unwrap_or_default();
        ids.sort_by_key(|&id| std::cmp::Reverse(text(id).len()));
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::Standard)
            .build(ids.iter().map(|&id| text(id)))
            .ok();
        Self { ids, automaton }
    }

    /// Cuts `text`. Longer tokens take precedence over shorter ones, so that a leftmost match can
    /// lose to a longer one that overlaps it. Control and unknown tokens match only with
    /// `parse_special`, user-defined ones always.
    pub(crate) fn partition(
        &self,
        vocab: &Vocab,
        text: &[u8],
        parse_special: bool,
    ) -> Vec<Fragment> {
        if text.is_empty() {
            return Vec::new();
        }
        let mut fragments = vec![Fragment::Text(0..text.len())];
        let is_parsed =
            |id: u32| parse_special || !vocab.attr(id).any(Attr::CONTROL | Attr::UNKNOWN);
        for id in self.present(text).into_iter().filter(|&id| is_parsed(id)) {
            let finder = memmem::Finder::new(vocab.text(id).unwrap_or_default());
            let mut next = Vec::with_capacity(fragments.len());
            for fragment in fragments {
                match fragment {
                    Fragment::Text(range) => {
                        cut(&finder, id, vocab.attr(id), text, range, &mut next);
                    }
                    special @ Fragment::Special(_) => next.push(special),
                }
            }
            fragments = next;
        }
        fragments
    }

    /// The special tokens that occur in `text`, in order. Vocabularies can have thousands of
    /// special tokens, so one pass selects the few to search for.
    fn present(&self, text: &[u8]) -> Vec<u32> {
        let Some(automaton) = &self.automaton else { return self.ids.clone() };
        let mut found: Vec<usize> = Vec::new();
        let mut seen = vec![false; self.ids.len()];
        for hit in automaton.find_overlapping_iter(text) {
            let index = hit.pattern().as_usize();
            if !std::mem::replace(&mut seen[index], true) {
                found.push(index);
            }
        }
        found.sort_unstable();
        found.into_iter().map(|index| self.ids[index]).collect()
    }
}

/// Cuts `range` of `text` at each occurrence of the token `id`, from the left.
fn cut(
    finder: &memmem::Finder<'_>,
    id: u32,
    attr: Attr,
    text: &[u8],
    range: Range<usize>,
    fragments: &mut Vec<Fragment>,
) {
    let mut start = range.start;
    while let Some(at) = finder.find(&text[start..range.end]) {
        let mut left = start..start + at;
        start = left.end + finder.needle().len();
        if attr.any(Attr::LSTRIP) {
            left.end -= text[left.clone()].iter().rev().take_while(|b| is_c_space(**b)).count();
        }
        if !left.is_empty() {
            fragments.push(Fragment::Text(left));
        }
        fragments.push(Fragment::Special(id));
        if attr.any(Attr::RSTRIP) {
            start += text[start..range.end].iter().take_while(|b| is_c_space(**b)).count();
        }
    }
    if start < range.end {
        fragments.push(Fragment::Text(start..range.end));
    }
}

/// C's `isspace`, which unlike Rust's counts the vertical tab.
fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t'..=b'\r')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab(tokens: &[(&str, i32)]) -> Vocab {
        let texts = tokens.iter().map(|t| t.0.to_owned()).collect();
        let types: Vec<i32> = tokens.iter().map(|t| t.1).collect();
        Vocab::new(texts, vec![], &types).unwrap()
    }

    fn shown(vocab: &Vocab, text: &str, parse_special: bool) -> Vec<String> {
        let matcher = SpecialMatcher::new(vocab);
        let fragments = matcher.partition(vocab, text.as_bytes(), parse_special);
        let show = |f| match f {
            Fragment::Text(range) => text[range].to_owned(),
            Fragment::Special(id) => format!("#{id}"),
        };
        fragments.into_iter().map(show).collect()
    }

    #[test]
    fn the_longest_token_wins_wherever_it_is() {
        let vocab = vocab(&[("x", 1), ("<a", 3), ("a><b>", 3), ("<a>", 4)]);
        assert_eq!(shown(&vocab, "1<a><b>2<a>", true), ["1<", "#2", "2", "#3"]);
        assert_eq!(shown(&vocab, "<a<a>", true), ["#1", "#3"]);
    }

    #[test]
    fn only_user_defined_tokens_match_without_parsing() {
        let vocab = vocab(&[("<s>", 3), ("<u>", 4), ("<?>", 2), ("n", 1)]);
        assert_eq!(shown(&vocab, "n<s><u><?>", false), ["n<s>", "#1", "<?>"]);
        assert_eq!(shown(&vocab, "n<s><u><?>", true), ["n", "#0", "#1", "#2"]);
    }

    #[test]
    fn stripping_takes_the_white_space_beside() {
        let mut vocab = vocab(&[("<r>", 3), ("<l>", 3)]);
        vocab.set_attr(0, Attr::CONTROL | Attr::RSTRIP);
        vocab.set_attr(1, Attr::CONTROL | Attr::LSTRIP);
        assert_eq!(shown(&vocab, "a <r> \n b \u{b}<l> c", true), ["a ", "#0", "b", "#1", " c"]);
    }
}
