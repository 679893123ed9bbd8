//! The kinds of grammars, and their form in Lark.

use llguidance::api::TopLevelGrammar;
use llguidance::regex_to_lark;
use serde_json::{Value, json};

use crate::Error;
use crate::gbnf::gbnf_to_lark;
use crate::lark::one_of;
use crate::schema::{Purpose, check_one_of, prepared};

/// The language of an output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Grammar {
    /// JSON that a schema describes.
    JsonSchema(Value),
    /// Any JSON object.
    JsonObject,
    /// A regular expression, which matches the whole text.
    Regex(String),
    /// One of these texts.
    Choice(Vec<String>),
    /// A grammar in llguidance's dialect of Lark.
    Lark(String),
    /// A grammar in the notation of llama.cpp.
    Gbnf(String),
}

impl Grammar {
    /// A grammar whose notation is not known: GBNF defines rules with `::=`, Lark with `:`.
    pub fn of_text(text: &str) -> Self {
        let is_name = |name: &str| {
            let name = name.trim();
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        };
        let defines = |line: &str| line.split_once("::=").is_some_and(|(name, _)| is_name(name));
        let text = text.to_owned();
        if text.lines().any(defines) { Self::Gbnf(text) } else { Self::Lark(text) }
    }

    /// The grammar for llguidance.
    pub(crate) fn top_level(&self) -> Result<TopLevelGrammar, Error> {
        Ok(match self {
            Self::JsonSchema(schema) => TopLevelGrammar::from_json_schema(answer_schema(schema)?),
            Self::JsonObject => {
                TopLevelGrammar::from_json_schema(prepared(&any_object(), Purpose::Answer))
            }
            Self::Regex(regex) => TopLevelGrammar::from_regex(regex),
            Self::Choice(_) => TopLevelGrammar::from_lark(format!("start: {}", self.value()?)),
            Self::Lark(lark) => TopLevelGrammar::from_lark(lark.clone()),
            Self::Gbnf(gbnf) => TopLevelGrammar::from_lark(gbnf_to_lark(gbnf)?),
        })
    }

    /// The grammar as a value of Lark.
    pub(crate) fn value(&self) -> Result<String, Error> {
        Ok(match self {
            Self::JsonSchema(schema) => format!("%json {}", answer_schema(schema)?),
            Self::JsonObject => format!("%json {}", prepared(&any_object(), Purpose::Answer)),
            Self::Regex(regex) => format!("/{}/", regex_to_lark(regex, "")),
            Self::Choice(choices) if choices.is_empty() => return Err(Error::NoChoice),
            Self::Choice(choices) => one_of(choices),
            Self::Lark(lark) => format!("%lark {{\n{lark}\n}}"),
            Self::Gbnf(gbnf) => format!("%lark {{\n{}\n}}", gbnf_to_lark(gbnf)?),
        })
    }
}

/// The schema of an answer as the matcher reads it.
fn answer_schema(schema: &Value) -> Result<Value, Error> {
    check_one_of(schema)?;
    Ok(prepared(schema, Purpose::Answer))
}

fn any_object() -> Value {
    json!({"type": "object"})
}
