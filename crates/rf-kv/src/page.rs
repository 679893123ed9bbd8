//! Pages: their size and their names.

use std::fmt;
use std::str::FromStr;

/// How many tokens a page holds.
///
/// Small pages waste less room at the end of a sequence and share more of a prefix; large ones make
/// shorter tables and longer runs of contiguous memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageSize {
    /// 16 tokens.
    Tokens16,
    /// 32 tokens.
    #[default]
    Tokens32,
    /// 64 tokens.
    Tokens64,
}

impl PageSize {
    /// Every size, the smallest first.
    pub const ALL: [Self; 3] = [Self::Tokens16, Self::Tokens32, Self::Tokens64];

    /// The size in tokens.
    pub const fn tokens(self) -> usize {
        match self {
            Self::Tokens16 => 16,
            Self::Tokens32 => 32,
            Self::Tokens64 => 64,
        }
    }

    /// How many pages `len_tokens` tokens take.
    pub const fn pages_for(self, len_tokens: usize) -> usize {
        len_tokens.div_ceil(self.tokens())
    }
}

impl TryFrom<usize> for PageSize {
    type Error = InvalidPageSize;

    fn try_from(tokens: usize) -> Result<Self, InvalidPageSize> {
        let size = Self::ALL.into_iter().find(|size| size.tokens() == tokens);
        size.ok_or_else(|| InvalidPageSize(tokens.to_string()))
    }
}

impl FromStr for PageSize {
    type Err = InvalidPageSize;

    fn from_str(text: &str) -> Result<Self, InvalidPageSize> {
        let size = text.parse().ok().and_then(|tokens: usize| Self::try_from(tokens).ok());
        size.ok_or_else(|| InvalidPageSize(text.to_owned()))
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tokens().fmt(f)
    }
}

/// A number of tokens that is no [`PageSize`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page size '{0}' is not one of 16, 32 and 64 tokens")]
pub struct InvalidPageSize(String);

/// The name of a page: its place in the backend's storage, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PageId(u32);

impl PageId {
    /// The page at `index`. Pools make ids; this is for tests and tools that make up a table.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The place in the storage.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The place in the storage, as a device wants it.
    pub const fn raw(self) -> u32 {
        self.0
    }
}
