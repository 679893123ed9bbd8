//! Texts of a request as vectors.

use std::borrow::Cow;

use rocmforge::engine::EncodeOptions;
use rocmforge::engine::{Model, Normalization};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::error::{ApiError, Kind};
use crate::fields::{PromptItem, TextOr};
use crate::generation::Usage;
use crate::prompt::beside;
use crate::record::Record;
use crate::state::ServedEmbedder;

/// The texts of a request, and how long their vectors are to be.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbeddingFields {
    input: Option<TextOr<PromptItem>>,
    dimensions: Option<usize>,
}

/// A vector. JSON has the numbers with the digits of an `f64`.
#[derive(Debug)]
pub(crate) struct Vector(pub(crate) Vec<f32>);

impl Serialize for Vector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().copied().map(f64::from))
    }
}

impl JsonSchema for Vector {
    fn schema_name() -> Cow<'static, str> {
        "Vector".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": { "type": "number" } })
    }
}

/// The vectors of a request.
pub(crate) struct Embedded {
    /// One vector per text, with the Euclidean length 1.
    pub(crate) vectors: Vec<Vector>,
    /// Tokens of all texts.
    pub(crate) tokens: usize,
}

/// Makes the vectors of a request. With `truncate`, texts that are too long are cut.
pub(crate) async fn embed(
    embedder: &ServedEmbedder,
    fields: EmbeddingFields,
    truncate: bool,
) -> Result<Embedded, ApiError> {
    let EmbeddingFields { input, dimensions } = fields;
    let most = embedder.model().context_tokens();
    let texts = beside(embedder.model().file(), move |model| texts(model, input, most, truncate));
    let texts = texts.await?;
    let tokens = texts.iter().map(Vec::len).sum();
    if let Some(record) = Record::current() {
        let mut usage = Usage::default();
        usage.prompt_tokens = tokens;
        record.spend(usage);
    }
    let mut vectors = embedder.model().embed_ids_async(texts).await?;
    for vector in &mut vectors {
        if let Some(dimensions) = dimensions {
            if !(1..=vector.len()).contains(&dimensions) {
                let message = format!("expected 1 to {} dimensions", vector.len());
                return Err(ApiError::field("dimensions", message));
            }
            vector.truncate(dimensions);
        }
        Normalization::Norm(2).apply(vector);
    }
    let vectors = vectors.into_iter().map(Vector).collect();
    Ok(Embedded { vectors, tokens })
}

/// The ids of each text.
fn texts(
    model: &Model,
    input: Option<TextOr<PromptItem>>,
    most_tokens: usize,
    truncate: bool,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let encode = |text: &str| model.tokenizer().encode(text, EncodeOptions::PROMPT);
    let mut texts = match input {
        None => return Err(ApiError::field("input", "expected a text or token ids")),
        Some(TextOr::Text(text)) => vec![encode(&text)],
        Some(TextOr::List(items)) => {
            let mut ids = Vec::new();
            let mut texts = Vec::new();
            for item in items {
                match item {
                    PromptItem::Id(id) => ids.push(id),
                    PromptItem::Ids(ids) => texts.push(ids),
                    PromptItem::Text(text) => texts.push(encode(&text)),
                }
            }
            if !ids.is_empty() {
                texts.push(ids);
            }
            texts
        }
    };
    if texts.is_empty() {
        return Err(ApiError::field("input", "the list is empty"));
    }
    let vocab_size = model.tokenizer().vocab_size();
    for (index, text) in texts.iter_mut().enumerate() {
        if truncate {
            text.truncate(most_tokens);
        }
        let problem = if text.is_empty() {
            "the text has no tokens".to_owned()
        } else if let Some(id) = text.iter().find(|id| **id >= vocab_size) {
            format!("token {id} is not in the vocabulary of {vocab_size}")
        } else if text.len() > most_tokens {
            let message = format!(
                "text {index} has {} tokens and there is room for {most_tokens}: split it",
                text.len()
            );
            return Err(ApiError::new(Kind::ContextExceeded, message));
        } else {
            continue;
        };
        return Err(ApiError::field(format!("input[{index}]"), problem));
    }
    Ok(texts)
}
