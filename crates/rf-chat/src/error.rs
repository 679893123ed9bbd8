//! The error type.

/// Why a request is not valid. Generated text never fails to parse.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A field of a tool has the wrong form.
    #[error("{path} {problem}")]
    Tool {
        /// The field, such as `function.name`.
        path: String,
        /// The requirement that the value does not meet.
        problem: &'static str,
    },
    /// `tool_choice` has an unknown form.
    #[error(
        "tool_choice must be \"auto\", \"none\", \"required\", or \
         {{\"type\": \"function\", \"function\": {{\"name\": …}}}}"
    )]
    ToolChoice,
    /// A tool is to be called that the request does not offer.
    #[error("tool_choice names the tool `{name}`, which is not among the tools: {known}")]
    UnknownTool {
        /// The name.
        name: String,
        /// The names of all tools, separated by commas.
        known: String,
    },
    /// A tool is to be called, but the request offers none.
    #[error("tool_choice requires a call, but tools is empty: add a tool")]
    NoTools,
    /// The chat template refused the conversation, or failed.
    #[error(transparent)]
    Template(#[from] rf_tokenizer::Error),
}
