//! `WordPiece`, the tokenizer of BERT: words are split into the longest tokens from the left.
//!
//! Normalisation and splitting are those of BERT's reference implementation. `llama.cpp` differs
//! in three details: it reduces a Hangul syllable to its first letter when it strips accents, it
//! strips spacing marks as well, and it has no limit for the length of a word.

use std::sync::LazyLock;

use regex::Regex;
use unicode_normalization::UnicodeNormalization;

use crate::trie::Trie;
use crate::vocab::Vocab;

/// The tokenizer of one vocabulary. Its tokens start with U+2581 where they start a word.
#[derive(Debug)]
pub(crate) struct WordPiece {
    trie: Trie,
    normalizer: Normalizer,
}

/// Changes text before it is split.
#[derive(Debug)]
struct Normalizer {
    lowercase: bool,
    strip_accents: bool,
}

/// Longer words are unknown, as in BERT.
const LONGEST_WORD_CHARS: usize = 100;

const WORD_START: &str = "\u{2581}";

impl WordPiece {
    /// `strip_accents` removes marks such as the accent of é.
    pub(crate) fn new(vocab: &Vocab, lowercase: bool, strip_accents: bool) -> Self {
        let normalizer = Normalizer { lowercase, strip_accents };
        Self { trie: Trie::new(vocab, 0..vocab.len()), normalizer }
    }

    /// Tokenizes `text` and appends the ids to `ids`. A word that the tokens do not cover becomes
    /// `unk`. Time is linear in the length of the text.
    pub(crate) fn encode(&self, unk: Option<u32>, text: &[u8], ids: &mut Vec<u32>) {
        let text = self.normalizer.normalize(&String::from_utf8_lossy(text));
        let mut marked = String::new();
        for word in WORD.find_iter(&text) {
            marked.clear();
            marked.push_str(WORD_START);
            marked.push_str(word.as_str());
            let from = ids.len();
            let is_short = word.as_str().chars().nth(LONGEST_WORD_CHARS).is_none();
            if !is_short || !self.encode_word(marked.as_bytes(), ids) {
                ids.truncate(from);
                ids.extend(unk);
            }
        }
    }

    /// Returns true if tokens cover `word`, whose ids are appended.
    fn encode_word(&self, word: &[u8], ids: &mut Vec<u32>) -> bool {
        let mut rest = word;
        // The mark of the start alone is no part of a word.
        let mut least = WORD_START.len() + 1;
        while !rest.is_empty() {
            let longest = self.trie.prefixes(rest).filter(|found| found.0 >= least).last();
            let Some((len, id)) = longest else { return false };
            ids.push(id);
            rest = &rest[len..];
            least = 1;
        }
        true
    }
}

impl Normalizer {
    fn normalize(&self, text: &str) -> String {
        let decomposed: String;
        let (text, removed) = if self.strip_accents {
            decomposed = text.nfd().collect();
            (decomposed.as_str(), &REMOVED_WITH_ACCENTS)
        } else {
            (text, &REMOVED)
        };
        let text = removed.replace_all(text, "");
        if self.lowercase {
            text.chars().flat_map(char::to_lowercase).collect()
        } else {
            text.into_owned()
        }
    }
}

/// Control characters and the replacement character.
static REMOVED: LazyLock<Regex> = LazyLock::new(|| regex(r"[\p{C}\x{FFFD}--[\t\n\r]]+"));

/// Control characters, the replacement character, and accents.
static REMOVED_WITH_ACCENTS: LazyLock<Regex> =
    LazyLock::new(|| regex(r"[\p{C}\p{Mn}\x{FFFD}--[\t\n\r]]+"));

/// A word: a punctuation mark, an ideograph, or a run of other characters. Punctuation includes all
/// ASCII characters that are neither letters nor digits. The ranges of ideographs are those of the
/// Rust implementation of BERT's tokenizer.
static WORD: LazyLock<Regex> = LazyLock::new(|| {
    regex(concat!(
        r"[\p{P}!-/:-@\[-`{-~\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}",
        r"\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}",
        r"\x{2F800}-\x{2FA1F}]",
        r"|[^\s\p{P}!-/:-@\[-`{-~\x{4E00}-\x{9FFF}\x{3400}-\x{4DBF}\x{20000}-\x{2A6DF}",
        r"\x{2A700}-\x{2B73F}\x{2B740}-\x{2B81F}\x{2B920}-\x{2CEAF}\x{F900}-\x{FAFF}",
        r"\x{2F800}-\x{2FA1F}]+",
    ))
});

#[expect(clippy::expect_used, reason = "the expressions are constants, and the tests compile them")]
fn regex(source: &str) -> Regex {
    Regex::new(source).expect("the expression is valid")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(tokens: &[&str], lowercase: bool, text: &str) -> Vec<u32> {
        let vocab = Vocab::new(tokens.iter().map(|&t| t.to_owned()).collect(), vec![], &[]);
        let model = WordPiece::new(&vocab.unwrap(), lowercase, lowercase);
        let mut ids = Vec::new();
        model.encode(Some(0), text.as_bytes(), &mut ids);
        ids
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn the_longest_token_wins_and_uncovered_words_are_unknown() {
        let tokens = ["?", "▁un", "▁u", "aff", "able", "a", "▁"];
        assert_eq!(ids(&tokens, true, "unaffable"), [1, 3, 4]);
        assert_eq!(ids(&tokens, true, "una unx a"), [1, 5, 0, 0]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn words_are_normalized_as_the_vocabulary_asks() {
        let tokens = ["?", "▁cafe", "▁Café", "▁中", "▁!", "▁국"];
        assert_eq!(ids(&tokens, true, "CAFÉ!中中\u{0}"), [1, 4, 3, 3]);
        assert_eq!(ids(&tokens, false, "Café CAFÉ ca\u{200B}fe"), [2, 0, 1]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "takes minutes under Miri")]
    fn long_words_are_unknown() {
        let tokens = ["?", "▁a", "a"];
        assert_eq!(ids(&tokens, true, &"a".repeat(100)).len(), 100);
        assert_eq!(ids(&tokens, true, &"a".repeat(101)), [0]);
    }
}
