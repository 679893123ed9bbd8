//! Structured output: computes which tokens may come next, so that the text matches a schema or
//! grammar.
//!
//! Start reading at [`GrammarCompiler`], built once per model, and [`Grammar`]. The result is a
//! [`Constraint`] of the scheduler. The work is done by `llguidance`; this crate connects it to
//! [`rf_tokenizer`], converts GBNF, writes the calls that a request demands in the model's own
//! form, and locates errors. In the layering it is above rf-engine, and it knows no backend.
//!
//! Invariants:
//!
//! - No grammar makes this crate panic, and none takes more than the time and memory of [`limits`].
//! - An output that is not cut off matches its grammar.
//!
//! References of a schema (`$ref`) resolve within the schema. Nothing is fetched, so llguidance is
//! used without its feature `referencing`, which saves 17 packages. GBNF is converted to Lark here,
//! because no maintained crate does it.
//!
//! ```
//! use std::sync::Arc;
//!
//! use rf_grammar::{Constraint, Grammar, GrammarCompiler};
//! use rf_tokenizer::{Tokenizer, VocabConfig};
//!
//! let tokens = ["</s>", "yes", "no", "y", "n", "o"];
//! let config = VocabConfig::default()
//!     .with_model("gpt2")
//!     .with_tokens(tokens.map(String::from).into())
//!     .with_token_types(vec![3, 1, 1, 1, 1, 1])
//!     .with_merges(vec!["n o".into()])
//!     .with_eos_token_id(Some(0));
//! let tokenizer = Tokenizer::new(config)?;
//! let compiler = GrammarCompiler::new(&Arc::new(tokenizer))?;
//! let mut constraint = compiler.compile(&Grammar::Regex("yes|no".into()))?;
//! let mask = constraint.allowed()?;
//! let allowed: Vec<u32> = (0..6).filter(|id| mask.allows(*id)).collect();
//! assert_eq!(allowed, [1, 2, 3, 4]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod budget;
mod check;
mod compiler;
mod constraint;
mod error;
mod gbnf;
mod grammar;
mod lark;
pub mod limits;
mod operators;
mod schema;
mod stack;
mod stopwatch;

pub use compiler::GrammarCompiler;
pub use constraint::GrammarConstraint;
pub use error::Error;
pub use gbnf::gbnf_to_lark;
pub use grammar::Grammar;
pub use rf_chat::Prompt;
pub use rf_engine::scheduler::{Constraint, ConstraintError, TokenMask};
pub use rf_tokenizer::Tokenizer;
/// The crate of the values that are JSON schemas.
pub use serde_json;
pub use stack::CompileTimer;
