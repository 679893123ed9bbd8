//! Pages: sizes and ids.

use std::fmt;
use std::str::FromStr;

/// The number of tokens in a page.
///
/// Small pages waste less memory at the end of a sequence and share more of a prefix. Large pages
/// give shorter tables and longer runs of contiguous memory.
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
    /// All sizes in ascending order.
    pub const ALL: [Self; 3] = [Self::Tokens16, Self::Tokens32, Self::Tokens64];

    /// The size in tokens.
    pub const fn tokens(self) -> usize {
        match self {
            Self::Tokens16 => 16,
            Self::Tokens32 => 32,
            Self::Tokens64 => 64,
        }
    }

    /// The number of pages for `len_tokens` tokens.
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

/// A number of tokens that is not a [`PageSize`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("page size '{0}' is not one of 16, 32 and 64 tokens")]
pub struct InvalidPageSize(String);

/// The id of a page: its index in the backend's storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(transparent)]
pub struct PageId(u32);

impl PageId {
    /// The page at `index`. Pools create ids; tests and tools use this for tables of their own.
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index in the storage.
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The index in the storage, for device code.
    pub const fn raw(self) -> u32 {
        self.0
    }
}
