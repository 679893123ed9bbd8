//! The routes of llama.cpp's server, and the load report that gateways ask for.

pub(crate) mod adapters;
pub(crate) mod completion;
pub(crate) mod load;
pub(crate) mod model_watch;
pub(crate) mod models;
pub(crate) mod slots;

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use rocmforge::SamplerConfig;
use rocmforge::engine::{DecodeOptions, EncodeOptions, Model};
use rocmforge::messages::{ChatTemplate, Conversation};
use schemars::JsonSchema;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::api::FINGERPRINT;
use crate::api::conversation::ConversationFields;
use crate::api::logprobs::piece;
use crate::body::Fields;
use crate::error::ApiError;
use crate::longest_token::TextLimit;
use crate::prompt::{chat_prompt, on_blocking_pool, rendered};
use crate::sampling::SamplingFields;
use crate::state::App;

/// `{content}` as llama.cpp takes it, `{prompt}` or `{messages}` as vLLM does.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct TokenizeFields {
    model: Option<String>,
    content: Option<String>,
    prompt: Option<String>,
    /// A conversation, whose fields are read apart.
    #[schemars(with = "Option<Value>")]
    messages: Option<IgnoredAny>,
    add_special: Option<bool>,
    add_special_tokens: Option<bool>,
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
    return_token_strs: Option<bool>,
}

/// The tokens of a text, in the form that the request asks for.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum Tokenized {
    /// The answer of llama.cpp.
    Ids { tokens: Vec<u32> },
    /// The answer of llama.cpp to `with_pieces`.
    Pieces { tokens: Vec<TokenPiece> },
    /// The answer of vLLM.
    Counted {
        count: usize,
        max_model_len: usize,
        tokens: Vec<u32>,
        #[serde(skip_serializing_if = "Option::is_none")]
        token_strs: Option<Vec<String>>,
    },
}

/// A token with its text.
#[derive(Serialize, JsonSchema)]
pub(crate) struct TokenPiece {
    id: u32,
    piece: Piece,
}

/// A token that is not text is the list of its bytes.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
enum Piece {
    Text(String),
    Bytes(Vec<u8>),
}

/// `POST /tokenize`.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Tokenized>, ApiError> {
    let tokenize: TokenizeFields = fields.read()?;
    let model = app.model(tokenize.model.as_deref()).await?;
    let limit = model.prompt_limit();
    let texts = tokenize.content.iter().chain(&tokenize.prompt);
    texts.into_iter().try_for_each(|text| limit.check(text))?;
    let conversation = match &tokenize.messages {
        Some(_) => Some(fields.read::<ConversationFields>()?.conversation()?.into_text()?),
        None => None,
    };
    on_blocking_pool(model.model(), move |model| tokenize.answer(model, conversation, limit))
        .await
        .map(Json)
}

impl TokenizeFields {
    fn answer(
        self,
        model: &Model,
        conversation: Option<Conversation>,
        limit: TextLimit,
    ) -> Result<Tokenized, ApiError> {
        let tokenizer = model.tokenizer();
        let options = EncodeOptions::PLAIN.with_parse_special(self.parse_special.unwrap_or(true));
        if let Some(content) = self.content {
            let options = options.with_add_special(self.add_special.unwrap_or(false));
            let tokens = tokenizer.encode(&content, options);
            if !self.with_pieces.unwrap_or(false) {
                return Ok(Tokenized::Ids { tokens });
            }
            let token = |id: u32| {
                let piece = String::from_utf8(piece(tokenizer, id))
                    .map_or_else(|error| Piece::Bytes(error.into_bytes()), Piece::Text);
                TokenPiece { id, piece }
            };
            return Ok(Tokenized::Pieces { tokens: tokens.into_iter().map(token).collect() });
        }
        let tokens = match (self.prompt, conversation) {
            (Some(prompt), _) => {
                let add_special = self.add_special_tokens.unwrap_or(true);
                tokenizer.encode(&prompt, options.with_add_special(add_special))
            }
            (None, Some(conversation)) => chat_prompt(model, &conversation, limit)?.ids,
            (None, None) => {
                return Err(ApiError::invalid("expected `content`, `prompt` or `messages`"));
            }
        };
        let text = |&id: &u32| String::from_utf8_lossy(&piece(tokenizer, id)).into_owned();
        let wants_texts = self.return_token_strs.unwrap_or(false);
        let token_strs = wants_texts.then(|| tokens.iter().map(text).collect());
        let (count, max_model_len) = (tokens.len(), limit.tokens());
        Ok(Tokenized::Counted { count, max_model_len, tokens, token_strs })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(crate) struct DetokenizeFields {
    model: Option<String>,
    tokens: Option<Vec<u32>>,
}

/// The text of tokens, which llama.cpp calls content and vLLM prompt.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Detokenized {
    content: String,
    prompt: String,
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Detokenized>, ApiError> {
    let DetokenizeFields { model, tokens } = fields.read()?;
    let model = app.model(model.as_deref()).await?;
    let tokens = tokens.ok_or_else(|| ApiError::field("tokens", "expected a list of ids"))?;
    let options = DecodeOptions::default().with_render_special(true);
    let text = model
        .model()
        .tokenizer()
        .decode(&tokens, options)
        .map_err(|error| ApiError::field("tokens", error))?;
    Ok(Json(Detokenized { content: text.clone(), prompt: text }))
}

/// A conversation as the text of a prompt.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RenderedPrompt {
    prompt: String,
}

/// `POST /apply-template`.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<RenderedPrompt>, ApiError> {
    let ModelQuery { model } = fields.read()?;
    let model = app.model(model.as_deref()).await?;
    let conversation = fields.read::<ConversationFields>()?.conversation()?.into_text()?;
    let prompt = rendered(&model, conversation).await?;
    Ok(Json(RenderedPrompt { prompt: prompt.chat.prompt.text }))
}

/// The model that a request names.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct ModelQuery {
    pub(crate) model: Option<String>,
}

/// Properties of the server, for one of its models.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Props {
    default_generation_settings: GenerationSettings,
    total_slots: usize,
    model_alias: String,
    modalities: Modalities,
    chat_template: String,
    bos_token: String,
    eos_token: String,
    build_info: &'static str,
    is_sleeping: bool,
}

#[derive(Serialize, JsonSchema)]
struct GenerationSettings {
    n_ctx: usize,
    params: SamplingDefaults,
}

#[derive(Serialize, JsonSchema)]
struct SamplingDefaults {
    temperature: f64,
    top_k: usize,
    top_p: f64,
    min_p: f64,
    typical_p: f64,
    repeat_penalty: f64,
    /// -1 for all tokens.
    repeat_last_n: i64,
    presence_penalty: f64,
    frequency_penalty: f64,
    seed: Option<u64>,
}

#[derive(Serialize, JsonSchema)]
struct Modalities {
    vision: bool,
    audio: bool,
}

impl From<&SamplerConfig> for SamplingDefaults {
    fn from(sampler: &SamplerConfig) -> Self {
        Self {
            temperature: sampler.temperature.into(),
            top_k: sampler.top_k,
            top_p: sampler.top_p.into(),
            min_p: sampler.min_p.into(),
            typical_p: sampler.typical_p.into(),
            repeat_penalty: sampler.repeat_penalty.into(),
            repeat_last_n: sampler.repeat_last_n.map_or(-1, |tokens| tokens as i64),
            presence_penalty: sampler.presence_penalty.into(),
            frequency_penalty: sampler.frequency_penalty.into(),
            seed: sampler.seed,
        }
    }
}

/// `GET /props`.
pub(crate) async fn props(
    State(app): State<Arc<App>>,
    query: Result<Query<ModelQuery>, QueryRejection>,
) -> Result<Json<Props>, ApiError> {
    let Query(query) = query?;
    let served = app.loaded_model(query.model.as_deref())?;
    let model = served.model();
    let tokenizer = model.tokenizer();
    let text =
        |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).unwrap_or_default().to_owned();
    let defaults = SamplingFields::default().params(model, served.sampling())?;
    Ok(Json(Props {
        default_generation_settings: GenerationSettings {
            n_ctx: served.handle().max_sequence_tokens(),
            params: SamplingDefaults::from(&defaults.options.sampler),
        },
        total_slots: served.handle().max_num_seqs(),
        model_alias: served.id().to_owned(),
        modalities: Modalities {
            vision: served.loaded_model().reads_images(),
            audio: served.loaded_model().hears(),
        },
        chat_template: model.chat_template().map_or("", ChatTemplate::source).to_owned(),
        bos_token: text(tokenizer.bos()),
        eos_token: text(tokenizer.eos()),
        build_info: FINGERPRINT,
        is_sleeping: false,
    }))
}
