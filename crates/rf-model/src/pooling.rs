//! Poolings: reductions of the states of a text's tokens to one vector.

/// The reduction of the states of a text's tokens to one vector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Pooling {
    /// The mean over all tokens.
    Mean,
    /// The state of the first token, which encoders mark as `[CLS]`.
    Cls,
    /// The state of the last token.
    Last,
    /// The scores of a reranker, from the state of one token.
    Rank,
}

impl Pooling {
    /// All poolings.
    pub const ALL: [Self; 4] = [Self::Mean, Self::Cls, Self::Last, Self::Rank];

    /// The name in options and reports, as in llama.cpp.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mean => "mean",
            Self::Cls => "cls",
            Self::Last => "last",
            Self::Rank => "rank",
        }
    }
}
