//! Structured output: the fields that ask for it, and the constraint that they make.

use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rocmforge::grammar::limits::{COMPILE_TIMEOUT, COMPILE_WALL_TIMEOUT};
use rocmforge::grammar::{CompileTimer, Constraint, Grammar, GrammarCompiler};
use rocmforge::messages::Prompt;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::error::{ApiError, ApiErrorKind};

/// Half of the cores may compile grammars. A compilation cannot be stopped, so it holds its permit
/// until its end, even if nobody waits for it any more.
static COMPILATIONS: LazyLock<Arc<Semaphore>> = LazyLock::new(|| {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    Arc::new(Semaphore::new((cores / 2).clamp(1, 8)))
});

/// Compiles a grammar, in turn. A request that is dropped while it waits compiles nothing.
pub(crate) async fn compiling<T, F>(work: F) -> Result<T, ApiError>
where
    T: Send + 'static,
    F: FnOnce() -> Result<T, ApiError> + Send + 'static,
{
    let permit = timeout(COMPILE_TIMEOUT, Arc::clone(&COMPILATIONS).acquire_owned()).await;
    // The semaphore is never closed.
    let Ok(Ok(permit)) = permit else {
        let message = "the server compiles the grammars of other requests: try again";
        return Err(ApiError::new(ApiErrorKind::Unavailable, message));
    };
    let timer = CompileTimer::default();
    let compiled = tokio::task::spawn_blocking({
        let timer = timer.clone();
        move || {
            let _permit = permit;
            timer.run(work)
        }
    });
    // On a busy machine, a grammar has more time than it takes of the processor.
    let is_over = async {
        while timer.elapsed() < COMPILE_TIMEOUT {
            sleep(COMPILE_TICK).await;
        }
    };
    tokio::select! {
        joined = compiled => joined.map_err(|error| ApiError::internal(&error))?,
        _ = timeout(COMPILE_WALL_TIMEOUT, is_over) => Err(ApiError::invalid(format!(
            "the grammar was not compiled in {COMPILE_TIMEOUT:?} of the processor, or in \
             {COMPILE_WALL_TIMEOUT:?}: send a smaller one"
        ))),
    }
}

/// The interval at which the time of a compilation is compared with its limit.
const COMPILE_TICK: Duration = Duration::from_millis(100);

/// The fields of `OpenAI`, llama.cpp and vLLM.
#[derive(Debug, Default, Deserialize, JsonSchema)]
pub(crate) struct GrammarFields {
    response_format: Option<Format>,
    grammar: Option<String>,
    json_schema: Option<Value>,
    /// `SGLang`'s names for an expression and for a grammar.
    regex: Option<String>,
    ebnf: Option<String>,
    structured_outputs: Option<StructuredOutputs>,
    /// The format in requests of the Responses API.
    text: Option<TextFields>,
    parallel_tool_calls: Option<bool>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct TextFields {
    format: Option<Format>,
}

/// The format of an answer: text, an object, or what fits a schema.
#[derive(Debug, Deserialize, JsonSchema)]
pub(crate) struct Format {
    #[serde(rename = "type")]
    kind: String,
    json_schema: Option<Schema>,
    /// The client of Hugging Face sends schemas with the name of text-generation-inference.
    #[serde(alias = "value")]
    schema: Option<Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct Schema {
    schema: Option<Value>,
}

#[derive(Debug, Deserialize, JsonSchema)]
struct StructuredOutputs {
    json: Option<Value>,
    regex: Option<String>,
    choice: Option<Vec<String>>,
    grammar: Option<String>,
    json_object: Option<bool>,
}

/// The structure that an answer must have.
#[derive(Clone, Debug, Default)]
pub(crate) struct Structure {
    /// The grammar with the field that it comes from.
    grammar: Option<(&'static str, Grammar)>,
    single_call: bool,
}

impl GrammarFields {
    pub(crate) fn structure(self) -> Result<Structure, ApiError> {
        let single_call = self.parallel_tool_calls == Some(false);
        let mut grammars = Vec::new();
        if let Some(format) = self.response_format {
            let field = "response_format";
            grammars.extend(format.grammar(field)?.map(|grammar| (field, grammar)));
        }
        if let Some(format) = self.text.and_then(|text| text.format) {
            let field = "text.format";
            grammars.extend(format.grammar(field)?.map(|grammar| (field, grammar)));
        }
        if let Some(grammar) = self.grammar.filter(|grammar| !grammar.is_empty()) {
            grammars.push(("grammar", Grammar::of_text(&grammar)));
        }
        grammars
            .extend(self.json_schema.map(|schema| ("json_schema", Grammar::JsonSchema(schema))));
        if let Some(regex) = self.regex.filter(|regex| !regex.is_empty()) {
            grammars.push(("regex", Grammar::Regex(regex)));
        }
        if let Some(grammar) = self.ebnf.filter(|grammar| !grammar.is_empty()) {
            grammars.push(("ebnf", Grammar::of_text(&grammar)));
        }
        if let Some(outputs) = self.structured_outputs {
            grammars.extend(outputs.grammar()?.map(|grammar| ("structured_outputs", grammar)));
        }
        if let [_, (second, _), ..] = grammars.as_slice() {
            return Err(ApiError::field(*second, "the answer cannot fit two formats: send one"));
        }
        Ok(Structure { grammar: grammars.pop(), single_call })
    }
}

impl Format {
    /// The grammar. `field` is that of the format, for errors.
    fn grammar(self, field: &str) -> Result<Option<Grammar>, ApiError> {
        let schema = self.json_schema.and_then(|schema| schema.schema).or(self.schema);
        match (self.kind.as_str(), schema) {
            ("text", _) => Ok(None),
            ("json_object" | "json_schema", Some(schema)) => Ok(Some(Grammar::JsonSchema(schema))),
            ("json_object", None) => Ok(Some(Grammar::JsonObject)),
            ("json_schema", None) => {
                let place = if field == "response_format" { "json_schema." } else { "" };
                Err(ApiError::field(format!("{field}.{place}schema"), "expected a schema"))
            }
            _ => Err(ApiError::field(
                format!("{field}.type"),
                "expected text, json_object or json_schema",
            )),
        }
    }
}

impl StructuredOutputs {
    fn grammar(self) -> Result<Option<Grammar>, ApiError> {
        let grammars = [
            self.json.map(json_grammar),
            self.regex.map(Grammar::Regex),
            self.choice.map(Grammar::Choice),
            self.grammar.map(|grammar| Grammar::of_text(&grammar)),
            self.json_object.unwrap_or(false).then_some(Grammar::JsonObject),
        ];
        let mut grammars = grammars.into_iter().flatten();
        let first = grammars.next();
        if grammars.next().is_some() {
            let message = "the answer cannot fit two formats: send one";
            return Err(ApiError::field("structured_outputs", message));
        }
        Ok(first)
    }
}

/// A schema, which vLLM also takes as text.
fn json_grammar(schema: Value) -> Grammar {
    let parsed = schema.as_str().and_then(|text| serde_json::from_str(text).ok());
    Grammar::JsonSchema(parsed.unwrap_or(schema))
}

impl Structure {
    /// The `format` of Ollama: `"json"`, or a schema.
    pub(crate) fn of_ollama(format: Option<Value>) -> Result<Self, ApiError> {
        let grammar = match format {
            None | Some(Value::Null) => return Ok(Self::default()),
            Some(Value::String(text)) if text.is_empty() => return Ok(Self::default()),
            Some(Value::String(text)) if text == "json" => Grammar::JsonObject,
            Some(schema @ Value::Object(_)) => Grammar::JsonSchema(schema),
            Some(_) => return Err(ApiError::field("format", "expected \"json\" or a schema")),
        };
        Ok(Self { grammar: Some(("format", grammar)), single_call: false })
    }

    /// The format of an answer, which `field` asks for.
    pub(crate) fn of_format(field: &'static str, format: Option<Format>) -> Result<Self, ApiError> {
        let grammar = format.map_or(Ok(None), |format| format.grammar(field))?;
        Ok(Self { grammar: grammar.map(|grammar| (field, grammar)), single_call: false })
    }

    /// Allows one call at most.
    pub(crate) fn with_single_call(self, single_call: bool) -> Self {
        Self { single_call, ..self }
    }

    /// Returns true if the answer may have one call at most.
    pub(crate) fn single_call(&self) -> bool {
        self.single_call
    }

    /// Returns true if no constraint is needed, with this prompt or without one.
    pub(crate) fn is_free(&self, prompt: Option<&Prompt>) -> bool {
        self.grammar.is_none() && !demands_call(prompt)
    }

    /// The constraint for an answer to `prompt`, or for a text without one. A demanded call comes
    /// before a format.
    pub(crate) fn constraint(
        &self,
        compiler: &GrammarCompiler,
        prompt: Option<&Prompt>,
    ) -> Result<Option<Box<dyn Constraint>>, ApiError> {
        let grammar = self.grammar.as_ref().map(|(_, grammar)| grammar);
        let compiled = compiler.compile_output(prompt, grammar, !self.single_call);
        let compiled = compiled.map_err(|error| match &self.grammar {
            Some((field, _)) if !demands_call(prompt) => refusal(field, &error),
            _ => refusal("tools", &error),
        })?;
        Ok(compiled.map(|constraint| Box::new(constraint) as Box<dyn Constraint>))
    }
}

fn demands_call(prompt: Option<&Prompt>) -> bool {
    prompt.is_some_and(|prompt| prompt.tool_choice.demands_call())
}

/// Why a grammar was not compiled.
fn refusal(field: &str, error: &rocmforge::grammar::Error) -> ApiError {
    match error {
        rocmforge::grammar::Error::Thread(_) => {
            ApiError::new(ApiErrorKind::Unavailable, error.to_string())
        }
        _ => ApiError::field(field, error),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn grammar(fields: Value) -> Result<Option<Grammar>, String> {
        let fields: GrammarFields = serde_json::from_value(fields).unwrap();
        let structure = fields.structure().map_err(|error| error.param.unwrap())?;
        Ok(structure.grammar.map(|(_, grammar)| grammar))
    }

    #[test]
    fn each_field_makes_its_grammar() {
        let schema = json!({ "type": "object" });
        for (fields, expected) in [
            (json!({}), None),
            (json!({ "response_format": { "type": "text" } }), None),
            (json!({ "response_format": { "type": "json_object" } }), Some(Grammar::JsonObject)),
            (
                json!({ "response_format": {
                    "type": "json_schema", "json_schema": { "name": "x", "schema": schema },
                }}),
                Some(Grammar::JsonSchema(schema.clone())),
            ),
            (
                json!({ "text": { "format": { "type": "json_schema", "schema": schema } } }),
                Some(Grammar::JsonSchema(schema.clone())),
            ),
            (
                json!({ "response_format": { "type": "json_object", "value": schema } }),
                Some(Grammar::JsonSchema(schema.clone())),
            ),
            (json!({ "json_schema": schema }), Some(Grammar::JsonSchema(schema.clone()))),
            (json!({ "regex": "a+" }), Some(Grammar::Regex("a+".into()))),
            (json!({ "ebnf": "root ::= \"a\"" }), Some(Grammar::Gbnf("root ::= \"a\"".into()))),
            (json!({ "grammar": "root ::= \"a\"" }), Some(Grammar::Gbnf("root ::= \"a\"".into()))),
            (
                json!({ "structured_outputs": { "choice": ["a", "b"] } }),
                Some(Grammar::Choice(vec!["a".into(), "b".into()])),
            ),
            (
                json!({ "structured_outputs": { "json": schema.to_string() } }),
                Some(Grammar::JsonSchema(schema.clone())),
            ),
        ] {
            assert_eq!(grammar(fields.clone()), Ok(expected), "{fields}");
        }
        for (fields, field) in [
            (json!({ "response_format": { "type": "xml" } }), "response_format.type"),
            (
                json!({ "response_format": { "type": "json_schema" } }),
                "response_format.json_schema.schema",
            ),
            (json!({ "grammar": "x", "json_schema": {} }), "json_schema"),
            (
                json!({ "structured_outputs": { "regex": "a", "choice": ["a"] } }),
                "structured_outputs",
            ),
        ] {
            assert_eq!(grammar(fields.clone()), Err(field.to_owned()), "{fields}");
        }
    }
}
