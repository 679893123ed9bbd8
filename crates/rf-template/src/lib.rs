//! Renders Jinja templates of untrusted files, such as chat templates of models.
//!
//! **Place in the layering.** On its own: this crate knows no model, tokenizer or message.
//!
//! **Where to start.** [`Template::new`] and [`Template::render`]. Internally, `lexer` and `parser`
//! make a tree, and `run` walks it.
//!
//! **Invariants.** No source and no variables make this crate panic, overflow the stack or use more
//! than a bounded amount of time and memory:
//! - A source has at most 256 KiB. Its blocks and expressions nest to a limited depth, so that the
//!   parser, the tree's destructor and a run recurse to a limited depth. A run counts its own depth
//!   across macros.
//! - Every node, list element and byte of text counts as a step; every text and list counts its
//!   bytes before it is allocated. Filters and methods are no exception, because this crate
//!   implements all of them. Freed memory still counts.
//! - Values do not change and contain no cycles. Namespaces change, but a value only refers to them
//!   by number.
//!
//! # Why an interpreter of its own
//!
//! An engine such as minijinja bounds steps, but not the bytes of a string (`s ~ s` in a loop), the
//! time of a filter, the depth of a value, or the recursion of its parser. A child process with
//! limits would bound all of them, but a server would start a process per request, and a library
//! has no program to start. The language of chat templates is small: they do not include or extend
//! other templates.
//!
//! # Behaviour
//!
//! The behaviour is that of `transformers`: `trim_blocks`, `lstrip_blocks`, Python's text of values
//! and methods of strings, `break` and `continue`, `raise_exception`, `strftime_now`, `tojson` as
//! `json.dumps`, and values that templates cannot change. Not supported are
//! recursive loops, inheritance, inclusion, and `*` in arguments.
//!
//! ```
//! use rf_template::Template;
//! use serde_json::json;
//!
//! let template = Template::new("{% for m in messages %}<{{ m.role }}>{{ m.text }}{% endfor %}")?;
//! let messages = json!([{"role": "user", "text": "Hi"}]);
//! let text = template.render([("messages", &messages)], &|_| None)?;
//! assert_eq!(text, "<user>Hi");
//! # Ok::<(), rf_template::Error>(())
//! ```

mod ast;
mod error;
mod json;
mod lexer;
mod meter;
mod parser;
mod print;
mod run;
mod value;

use std::collections::HashMap;

use crate::meter::Meter;
use crate::parser::Tree;
use crate::value::Value;

pub use crate::error::Error;
pub use crate::meter::Limits;
/// The crate of the values that templates render.
pub use serde_json;

/// A parsed template.
#[derive(Debug)]
pub struct Template {
    tree: Tree,
    limits: Limits,
}

impl Template {
    /// Parses `source`.
    ///
    /// # Errors
    ///
    /// [`Error::Syntax`] if the source is not a template, or is too large or too deep.
    pub fn new(source: &str) -> Result<Self, Error> {
        Ok(Self { tree: parser::parse(source)?, limits: Limits::default() })
    }

    /// Replaces the limits of a run.
    #[must_use]
    pub fn with_limits(mut self, limits: Limits) -> Self {
        self.limits = limits;
        self
    }

    /// Renders the template with variables by name. `clock` writes the current time in a format of
    /// `strftime`, or returns `None` for a bad format.
    ///
    /// # Errors
    ///
    /// If the template fails, refuses its variables, or needs too much time, memory or depth.
    pub fn render<'v>(
        &self,
        variables: impl IntoIterator<Item = (&'v str, &'v serde_json::Value)>,
        clock: &dyn Fn(&str) -> Option<String>,
    ) -> Result<String, Error> {
        let mut context = HashMap::new();
        let mut input_bytes = 0;
        for (name, json) in variables {
            let (value, bytes) = Value::from_json(json)?;
            input_bytes += bytes;
            context.insert(name.into(), value);
        }
        let meter = Meter::new(self.limits, input_bytes);
        run::run(&self.tree, context, &meter, clock)
    }
}
