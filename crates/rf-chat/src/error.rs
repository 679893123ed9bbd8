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
    /// A call of the conversation has arguments that the chat template cannot show.
    #[error(
        "the arguments of the call of `{name}` are not a JSON object, and the chat template needs \
         one: {source}"
    )]
    CallArguments {
        /// The index of the message.
        message: usize,
        /// The index of the call in the message.
        call: usize,
        /// The tool that is called.
        name: String,
        /// The failure of the template.
        source: Box<Self>,
    },
    /// No built-in chat template has this name.
    #[error("unknown chat template `{name}`: the built-in templates are {known}")]
    UnknownTemplate {
        /// The name.
        name: String,
        /// The known names, separated by commas.
        known: String,
    },
    /// The chat template does not parse.
    #[error("the chat template is malformed: {0}")]
    TemplateSyntax(#[source] rf_template::Error),
    /// The chat template refused the messages (`raise_exception`).
    #[error("the chat template refused the messages: {0}")]
    TemplateRefused(String),
    /// The chat template failed while it ran.
    #[error("the chat template failed: {0}")]
    TemplateFailed(#[source] rf_template::Error),
    /// The message to continue has no text, or the chat template leaves its text out.
    #[error(
        "the last message cannot be continued: its content is empty, or the chat template leaves \
         it out"
    )]
    NothingToContinue,
}
