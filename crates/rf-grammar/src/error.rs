//! The error type.

/// Why a grammar does not compile.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The vocabulary does not fit the matcher.
    #[error("the vocabulary cannot be constrained: {0}")]
    Vocabulary(String),
    /// A JSON schema is malformed, contradictory, or uses what is not supported.
    #[error("the JSON schema is not supported at {pointer}: {problem}")]
    Schema {
        /// The place as a JSON pointer; `#` is the whole schema.
        pointer: String,
        /// A description of the problem.
        problem: String,
    },
    /// A grammar is larger than is compiled: see [`limits`](crate::limits).
    #[error("{quantity} is above the maximum of {maximum}")]
    TooLarge {
        /// The quantity that is limited.
        quantity: &'static str,
        /// The limit of the quantity.
        maximum: usize,
    },
    /// The system refused the thread that compiles.
    #[error("cannot start a thread that compiles the grammar: {0}")]
    Thread(#[source] std::io::Error),
    /// The parameters of a tool are not supported.
    #[error("the parameters of the tool `{name}`: {source}")]
    Tool {
        /// The name of the tool.
        name: String,
        /// The error of the inner grammar.
        source: Box<Self>,
    },
    /// A regular expression is malformed.
    #[error("the regular expression is not supported: {0}")]
    Regex(String),
    /// A list of choices is empty.
    #[error("there is nothing to choose from: give at least one choice")]
    NoChoice,
    /// A Lark grammar is malformed.
    #[error("the Lark grammar is not supported: {0}")]
    Lark(String),
    /// A GBNF grammar is malformed.
    #[error("the GBNF grammar is malformed in line {line}, column {column}: {problem}")]
    Gbnf {
        /// The line, from 1.
        line: usize,
        /// The column in characters, from 1.
        column: usize,
        /// A description of the problem.
        problem: String,
    },
}
