//! Texts of a request as vectors.

use std::borrow::Cow;

use rocmforge::engine::{EncodeOptions, Model, Normalization};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize, Serializer};

use crate::error::{ApiError, check_count};
use crate::fields::{PromptItem, TextOr};
use crate::longest_token::TextLimit;
use crate::prompt::on_blocking_pool;
use crate::record::RequestRecord;
use crate::state::ServedEmbedder;

/// The texts of a request, and how long their vectors are to be.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct EmbeddingFields {
    input: Option<TextOr<PromptItem>>,
    dimensions: Option<usize>,
}

impl EmbeddingFields {
    pub(crate) fn of_text(text: String) -> Self {
        Self { input: Some(TextOr::Text(text)), dimensions: None }
    }
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
    let limits = TextLimits::of(embedder, truncate);
    let texts =
        on_blocking_pool(embedder.model().file(), move |model| texts(model, input, limits)).await?;
    let tokens = texts.iter().map(Vec::len).sum();
    RequestRecord::spend_prompt(tokens);
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

/// The most texts of a request.
pub(crate) const MAX_TEXTS: usize = 2048;

/// The longest text, and what becomes of those that are longer.
#[derive(Clone, Copy)]
struct TextLimits {
    limit: TextLimit,
    truncate: bool,
}

impl TextLimits {
    fn of(embedder: &ServedEmbedder, truncate: bool) -> Self {
        Self { limit: embedder.text_limit(), truncate }
    }

    /// The ids of a text. Of a text that cannot fit, only the part that may is tokenized.
    fn encode(self, model: &Model, mut text: &str) -> Result<Vec<u32>, ApiError> {
        if self.truncate {
            text = &text[..text.floor_char_boundary(self.limit.bytes())];
        }
        self.limit.check(text)?;
        Ok(model.tokenizer().encode(text, EncodeOptions::PROMPT))
    }
}

/// The ids of each text.
fn texts(
    model: &Model,
    input: Option<TextOr<PromptItem>>,
    limits: TextLimits,
) -> Result<Vec<Vec<u32>>, ApiError> {
    let encode = |text: &str| limits.encode(model, text);
    let mut texts = match input {
        None => return Err(ApiError::field("input", "expected a text or token ids")),
        Some(TextOr::Text(text)) => vec![encode(&text)?],
        Some(TextOr::List(items)) => {
            if !matches!(items.first(), Some(PromptItem::Id(_))) {
                check_count("input", items.len(), MAX_TEXTS)?;
            }
            let mut ids = Vec::new();
            let mut texts = Vec::new();
            for item in items {
                match item {
                    PromptItem::Id(id) => ids.push(id),
                    PromptItem::Ids(ids) => texts.push(ids),
                    PromptItem::Text(text) => texts.push(encode(&text)?),
                }
            }
            if !ids.is_empty() {
                texts.push(ids);
            }
            texts
        }
    };
    let vocab_size = model.tokenizer().vocab_size();
    for (index, text) in texts.iter_mut().enumerate() {
        let most_tokens = limits.limit.tokens();
        if limits.truncate {
            text.truncate(most_tokens);
        }
        let field = || format!("input[{index}]");
        let problem = if text.is_empty() {
            "the text has no tokens".to_owned()
        } else if let Some(id) = text.iter().find(|id| **id >= vocab_size) {
            format!("token {id} is not in the vocabulary of {vocab_size}")
        } else if text.len() > most_tokens {
            return Err(ApiError::prompt_too_long(text.len(), most_tokens).of_field(field()));
        } else {
            continue;
        };
        return Err(ApiError::field(field(), problem));
    }
    Ok(texts)
}
