//! Pages: sizes and ids.

use std::fmt;
use std::iter::Sum;
use std::ops::Add;
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

    /// The largest number of pages that `len_tokens` consecutive tokens lie in, wherever they
    /// begin.
    pub const fn most_pages_for(self, len_tokens: usize) -> usize {
        match len_tokens {
            0 => 0,
            _ => self.pages_for(len_tokens - 1).saturating_add(1),
        }
    }

    /// The number of pages of [`PageGroup::Window`] that suffice for a number of sequences, of
    /// which each step computes at most `step_tokens` tokens in all.
    ///
    /// Before a step, a sequence needs the `window − 1` tokens before its next one. Each sequence
    /// may begin and end in the middle of a page.
    pub const fn window_pages_for(
        self,
        window: usize,
        sequences: usize,
        step_tokens: usize,
    ) -> usize {
        let each = self.pages_for(window).saturating_add(2);
        sequences.saturating_mul(each).saturating_add(step_tokens / self.tokens())
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
    /// The page at `index`. Pools create ids; tests and tools use this to build tables.
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

/// The layers of a model that keep the same positions share page tables and page ids.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PageGroup {
    /// Layers that keep every position.
    #[default]
    Full,
    /// Layers with a sliding window, which release pages that no later token sees.
    Window,
    /// Recurrent layers. A page is the state of all of them after the last token of a sequence, so
    /// a sequence holds one page of any length. It cannot be cut.
    State,
}

impl PageGroup {
    /// The three groups in the order of [`index`](Self::index).
    pub const ALL: [Self; 3] = [Self::Full, Self::Window, Self::State];

    /// The groups whose pages hold tokens, in the order of [`index`](Self::index).
    pub const OF_TOKENS: [Self; 2] = [Self::Full, Self::Window];

    /// The position in [`ALL`](Self::ALL), for arrays with an element per group.
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// Numbers of pages by group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageCounts {
    /// Pages of [`PageGroup::Full`].
    pub full: usize,
    /// Pages of [`PageGroup::Window`].
    pub window: usize,
    /// Pages of [`PageGroup::State`].
    pub states: usize,
}

impl PageCounts {
    /// Pages of [`PageGroup::Full`] only.
    pub const fn full(full: usize) -> Self {
        Self { full, window: 0, states: 0 }
    }

    /// The number of pages of a group.
    pub const fn of(self, group: PageGroup) -> usize {
        match group {
            PageGroup::Full => self.full,
            PageGroup::Window => self.window,
            PageGroup::State => self.states,
        }
    }

    /// Returns true if no group has more pages than in `available`.
    pub const fn fits_in(self, available: Self) -> bool {
        self.full <= available.full
            && self.window <= available.window
            && self.states <= available.states
    }
}

impl Add for PageCounts {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self {
            full: self.full + other.full,
            window: self.window + other.window,
            states: self.states + other.states,
        }
    }
}

impl Sum for PageCounts {
    fn sum<I: Iterator<Item = Self>>(counts: I) -> Self {
        counts.fold(Self::default(), Add::add)
    }
}
