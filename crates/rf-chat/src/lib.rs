//! Chat on both sides of a model: a chat template turns a conversation into a prompt, and generated
//! text becomes content, reasoning and tool calls.
//!
//! A library without HTTP and without a model, above rf-tokenizer and rf-template. Start reading at
//! [`Conversation::prompt`], which renders a conversation, and [`OutputParser`], which reads the
//! answer while it is generated. [`ChatPrompt`] is the input of a generation: the prompt and the
//! format of the answer. Each format of tool calls is one row of `format/table.rs`. The row states
//! how a template shows the format, how the parser reads it, and how a grammar writes it
//! ([`CallSyntax`]).
//!
//! Invariants:
//!
//! - No generated text is an error. Text that does not parse as a call is content.
//! - The answer does not depend on how the text is split into pieces.
//! - A call that is cut off keeps the part that was reported, and ends incomplete.
//!
//! # Control tokens
//!
//! Many markers are control tokens, such as `[TOOL_CALLS]` or `<|python_tag|>`. Decoding leaves out
//! the text of control tokens, but the parser needs it. The caller passes
//! [`OutputFormat::rendered_tokens`] to
//! [`StreamDecoder::rendering`](rf_tokenizer::StreamDecoder::rendering). Tokens that end a
//! generation, such as `<|call|>`, need not be passed on: a call is complete with its arguments.
//!
//! ```
//! use rf_chat::{Answer, OutputFormat, OutputParser, Tool};
//! use serde_json::json;
//!
//! let format = OutputFormat::of_template("{{ tools }} <tool_call> …");
//! let tool = Tool::from_json(&json!({"type": "function", "function": {"name": "weather"}}))?;
//! let mut parser = OutputParser::new(format, &[tool], false);
//! let mut answer = Answer::default();
//! for piece in ["<think>Look it ", "up.</think>\n<tool_call>{\"name\": \"weather\", ",
//!     "\"arguments\": {\"city\": \"Oslo\"}}</tool_call>"] {
//!     answer.extend(parser.push(piece));
//! }
//! answer.extend(parser.finish());
//! assert_eq!(answer.reasoning, "Look it up.");
//! assert_eq!(answer.calls[0].arguments, r#"{"city": "Oslo"}"#);
//! assert!(answer.calls_tools() && answer.content.is_empty());
//! # Ok::<(), rf_chat::Error>(())
//! ```

mod answer;
mod conversation;
mod error;
mod format;
mod message;
mod parser;
mod repair;
mod template;
mod tool;

pub use answer::{Answer, AnswerCall, Delta};
pub use conversation::{ChatPrompt, Conversation, Prompt, ToolChoice};
pub use error::Error;
pub use format::syntax::{CallPiece, CallSyntax, Tags};
pub use format::{OutputFormat, ReasoningFormat, ToolFormat};
pub use message::{Message, MessageCall};
pub use parser::OutputParser;
pub use rf_template::Error as TemplateError;
pub use rf_tokenizer::Tokenizer;
pub use template::{ChatTemplate, RenderOptions};
pub use tool::Tool;
/// The crates of times, parameters and arguments in the types of this one.
pub use {chrono, serde_json};
