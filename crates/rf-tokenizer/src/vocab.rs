//! The tokens of a vocabulary: text, attributes and score by id, and id by text.

use std::hash::BuildHasher;
use std::ops::{BitOr, Range, RangeInclusive};

use hashbrown::hash_table::Entry;
use hashbrown::{DefaultHashBuilder, HashTable};

use crate::Error;

/// The tokens. All texts are in one buffer, so that a vocabulary of 128k tokens takes two
/// allocations, and the index needs no second copy of a text.
#[derive(Debug)]
pub(crate) struct Vocab {
    text: String,
    /// `ends[id]` is where the text of `id` ends; it starts where its predecessor ends.
    ends: Vec<u32>,
    attrs: Vec<Attr>,
    scores: Vec<f32>,
    index: HashTable<u32>,
    hasher: DefaultHashBuilder,
    longest: usize,
    /// Tokens whose type has no meaning, with the type.
    unknown_types: Vec<(u32, i32)>,
}

/// A set of token attributes. A token can have several: `</s>` of Phi-3 is user-defined by
/// its type and control by its text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Attr(u8);

/// The types that llama.cpp defines; 0 is undefined.
const KNOWN_TYPES: RangeInclusive<i32> = 0..=6;

impl Attr {
    pub(crate) const NONE: Self = Self(0);
    pub(crate) const NORMAL: Self = Self(1);
    pub(crate) const UNKNOWN: Self = Self(2);
    pub(crate) const CONTROL: Self = Self(4);
    pub(crate) const USER_DEFINED: Self = Self(8);
    pub(crate) const BYTE: Self = Self(16);
    pub(crate) const LSTRIP: Self = Self(32);
    pub(crate) const RSTRIP: Self = Self(64);

    /// Matched in raw text before tokenization.
    pub(crate) const SPECIAL: Self = Self(2 | 4 | 8);

    fn from_type(token_type: i32) -> Self {
        match token_type {
            1 => Self::NORMAL,
            2 => Self::UNKNOWN,
            3 => Self::CONTROL,
            4 => Self::USER_DEFINED,
            6 => Self::BYTE,
            _ => Self::NONE, // 5 unused, and numbers without a meaning
        }
    }

    pub(crate) fn any(self, of: Self) -> bool {
        self.0 & of.0 != 0
    }
}

impl BitOr for Attr {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

impl Vocab {
    /// Checks and indexes the tokens. An empty text becomes `[EMPTY_id]`, as in llama.cpp: an
    /// empty special token would match everywhere.
    pub(crate) fn new(
        tokens: Vec<String>,
        scores: Vec<f32>,
        token_types: &[i32],
    ) -> Result<Self, Error> {
        let count = tokens.len();
        if count == 0 {
            return Err(Error::EmptyVocabulary);
        }
        let too_short = |key, len| Error::ArrayTooShort { key, len, tokens: count };
        if !scores.is_empty() && scores.len() < count {
            return Err(too_short("tokenizer.ggml.scores", scores.len()));
        }
        if !token_types.is_empty() && token_types.len() < count {
            return Err(too_short("tokenizer.ggml.token_type", token_types.len()));
        }
        // `[EMPTY_4294967295]` is the longest text that an empty token can get.
        let bytes: usize = tokens.iter().map(|t| if t.is_empty() { 18 } else { t.len() }).sum();
        // BPE needs ids beyond the vocabulary for merge texts that are not tokens.
        if count > i32::MAX as usize || u32::try_from(bytes).is_err() {
            return Err(Error::VocabularyTooLarge { tokens: count, bytes });
        }

        let mut vocab = Self {
            text: String::with_capacity(bytes),
            ends: Vec::with_capacity(count),
            attrs: Vec::with_capacity(count),
            scores,
            index: HashTable::with_capacity(count),
            hasher: DefaultHashBuilder::default(),
            longest: 0,
            unknown_types: Vec::new(),
        };
        let numbered = (0..).zip(token_types).take(count);
        let unknown = numbered.filter(|(_, token_type)| !KNOWN_TYPES.contains(*token_type));
        vocab.unknown_types = unknown.map(|(id, token_type)| (id, *token_type)).collect();
        for (id, token) in tokens.into_iter().enumerate() {
            let attr = token_types.get(id).map_or(Attr::NORMAL, |&t| Attr::from_type(t));
            if token.is_empty() {
                vocab.push(&format!("[EMPTY_{id}]"), attr)?;
            } else {
                vocab.push(&token, attr)?;
            }
        }
        Ok(vocab)
    }

    fn push(&mut self, token: &str, attr: Attr) -> Result<(), Error> {
        let id = self.len();
        let (text, ends, hasher) = (&self.text, &self.ends, &self.hasher);
        let bytes_of = |&id: &u32| &text.as_bytes()[span(ends, id)];
        let hash = hasher.hash_one(token.as_bytes());
        let same = |id: &u32| bytes_of(id) == token.as_bytes();
        match self.index.entry(hash, same, |id| hasher.hash_one(bytes_of(id))) {
            Entry::Occupied(entry) => {
                let first = *entry.get();
                return Err(Error::DuplicateToken { text: token.to_owned(), first, second: id });
            }
            Entry::Vacant(entry) => entry.insert(id),
        };
        self.text.push_str(token);
        self.ends.push(self.text.len() as u32);
        self.attrs.push(attr);
        self.longest = self.longest.max(token.len());
        Ok(())
    }

    pub(crate) fn len(&self) -> u32 {
        self.ends.len() as u32
    }

    /// Tokens whose type has no meaning, with the type.
    pub(crate) fn unknown_types(&self) -> &[(u32, i32)] {
        &self.unknown_types
    }

    /// Checks that scores can be compared.
    pub(crate) fn check_scores(&self) -> Result<(), Error> {
        match self.scores.iter().position(|score| score.is_nan()) {
            Some(id) => Err(Error::ScoreNotANumber { id: id as u32 }),
            None => Ok(()),
        }
    }

    /// Length in bytes of the longest token.
    pub(crate) fn longest(&self) -> usize {
        self.longest
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        ((id as usize) < self.ends.len()).then(|| &self.text[span(&self.ends, id)])
    }

    pub(crate) fn id_of(&self, text: &[u8]) -> Option<u32> {
        let hash = self.hasher.hash_one(text);
        // Slices bytes, because slicing `str` would check character boundaries needlessly.
        let same = |&id: &u32| &self.text.as_bytes()[span(&self.ends, id)] == text;
        self.index.find(hash, same).copied()
    }

    pub(crate) fn attr(&self, id: u32) -> Attr {
        self.attrs.get(id as usize).copied().unwrap_or(Attr::NONE)
    }

    pub(crate) fn set_attr(&mut self, id: u32, attr: Attr) {
        if let Some(slot) = self.attrs.get_mut(id as usize) {
            *slot = attr;
        }
    }

    /// The score of a token; 0 if the file has none.
    pub(crate) fn score(&self, id: u32) -> f32 {
        self.scores.get(id as usize).copied().unwrap_or(0.0)
    }
}

/// The range of the text of `id`, which must be below `ends.len()`.
fn span(ends: &[u32], id: u32) -> Range<usize> {
    let id = id as usize;
    let start = if id == 0 { 0 } else { ends[id - 1] as usize };
    start..ends[id] as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    fn vocab(tokens: &[&str]) -> Result<Vocab, Error> {
        Vocab::new(tokens.iter().map(|&t| t.to_owned()).collect(), vec![], &[])
    }

    #[test]
    fn text_and_id_are_inverse() {
        let vocab = vocab(&["a", "", "bc", "▁é"]).unwrap();
        for id in 0..vocab.len() {
            assert_eq!(vocab.id_of(vocab.text(id).unwrap().as_bytes()), Some(id));
        }
        assert_eq!(vocab.text(1), Some("[EMPTY_1]"));
        assert_eq!(vocab.text(4), None);
        assert_eq!(vocab.id_of(b"ab"), None);
        assert_eq!(vocab.longest(), 9);
    }

    #[test]
    fn bad_arrays_are_refused() {
        assert!(matches!(vocab(&[]), Err(Error::EmptyVocabulary)));
        assert!(matches!(
            vocab(&["x", "y", "x"]),
            Err(Error::DuplicateToken { first: 0, second: 2, .. })
        ));
        let tokens = || vec!["a".to_owned(), "b".to_owned()];
        assert!(matches!(
            Vocab::new(tokens(), vec![0.0], &[]),
            Err(Error::ArrayTooShort { key: "tokenizer.ggml.scores", len: 1, tokens: 2 })
        ));
        assert!(Vocab::new(tokens(), vec![], &[1]).is_err());
        let vocab = Vocab::new(tokens(), vec![0.0, f32::NAN], &[0, 99, -7]).unwrap();
        assert_eq!(vocab.unknown_types(), [(1, 99)], "entries beyond the tokens have no meaning");
        assert!(matches!(vocab.check_scores(), Err(Error::ScoreNotANumber { id: 1 })));
    }
}
