//! The routes of llama.cpp's server, and the load report that gateways ask for.

pub(crate) mod completion;

use std::sync::Arc;

use axum::Json;
use axum::extract::{Query, State};
use rocmforge::engine::Model;
use rocmforge::engine::{DecodeOptions, EncodeOptions};
use rocmforge::messages::Conversation;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::FINGERPRINT;
use crate::api::conversation::ConversationFields;
use crate::api::logprobs::piece;
use crate::body::Fields;
use crate::error::ApiError;
use crate::generator::Generator;
use crate::prompt::{beside, chat_prompt, rendered};
use crate::sampling::SamplingFields;
use crate::state::{App, now};

/// `{content}` as llama.cpp takes it, `{prompt}` or `{messages}` as vLLM does.
#[derive(Deserialize)]
struct TokenizeFields {
    model: Option<String>,
    content: Option<String>,
    prompt: Option<String>,
    messages: Option<Value>,
    add_special: Option<bool>,
    add_special_tokens: Option<bool>,
    parse_special: Option<bool>,
    with_pieces: Option<bool>,
    return_token_strs: Option<bool>,
}

/// `POST /tokenize`.
pub(crate) async fn tokenize(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let tokenize: TokenizeFields = fields.read()?;
    let model = app.model(tokenize.model.as_deref()).await?;
    let most = model.handle().max_sequence_tokens();
    let conversation = match &tokenize.messages {
        Some(_) => Some(fields.read::<ConversationFields>()?.conversation()?),
        None => None,
    };
    beside(model.model(), move |model| tokenize.answer(model, conversation, most)).await.map(Json)
}

impl TokenizeFields {
    fn answer(
        self,
        model: &Model,
        conversation: Option<Conversation>,
        max_model_len: usize,
    ) -> Result<Value, ApiError> {
        let tokenizer = model.tokenizer();
        let parse_special = self.parse_special.unwrap_or(true);
        if let Some(content) = self.content {
            let options =
                EncodeOptions { add_special: self.add_special.unwrap_or(false), parse_special };
            let ids = tokenizer.encode(&content, options);
            if !self.with_pieces.unwrap_or(false) {
                return Ok(json!({ "tokens": ids }));
            }
            let token = |&id: &u32| {
                let bytes = piece(tokenizer, id);
                // A token that is not text is the list of its bytes.
                let piece = String::from_utf8(bytes)
                    .map_or_else(|error| Value::from(error.into_bytes()), Value::from);
                json!({ "id": id, "piece": piece })
            };
            return Ok(json!({ "tokens": ids.iter().map(token).collect::<Vec<_>>() }));
        }
        let ids = match (self.prompt, conversation) {
            (Some(prompt), _) => {
                let add_special = self.add_special_tokens.unwrap_or(true);
                tokenizer.encode(&prompt, EncodeOptions { add_special, parse_special })
            }
            (None, Some(conversation)) => chat_prompt(model, &conversation, usize::MAX)?.ids,
            (None, None) => {
                return Err(ApiError::invalid("expected `content`, `prompt` or `messages`"));
            }
        };
        let mut answer =
            json!({ "count": ids.len(), "max_model_len": max_model_len, "tokens": ids });
        if self.return_token_strs.unwrap_or(false) {
            let text = |&id: &u32| String::from_utf8_lossy(&piece(tokenizer, id)).into_owned();
            answer["token_strs"] = ids.iter().map(text).collect();
        }
        Ok(answer)
    }
}

#[derive(Deserialize)]
struct DetokenizeFields {
    model: Option<String>,
    tokens: Option<Vec<u32>>,
}

/// `POST /detokenize`.
pub(crate) async fn detokenize(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let DetokenizeFields { model, tokens } = fields.read()?;
    let model = app.model(model.as_deref()).await?;
    let tokens = tokens.ok_or_else(|| ApiError::field("tokens", "expected a list of ids"))?;
    let options = DecodeOptions { render_special: true, ..DecodeOptions::default() };
    let text = model
        .model()
        .tokenizer()
        .decode(&tokens, options)
        .map_err(|error| ApiError::field("tokens", error))?;
    // llama.cpp calls the text content, vLLM prompt.
    Ok(Json(json!({ "content": text, "prompt": text })))
}

/// `POST /apply-template`.
pub(crate) async fn apply_template(
    State(app): State<Arc<App>>,
    fields: Fields,
) -> Result<Json<Value>, ApiError> {
    let ModelQuery { model } = fields.read()?;
    let model = app.model(model.as_deref()).await?;
    let conversation = fields.read::<ConversationFields>()?.conversation()?;
    let prompt = rendered(&model, conversation).await?;
    Ok(Json(json!({ "prompt": prompt.prompt.text })))
}

/// The model that a request names.
#[derive(Deserialize)]
pub(crate) struct ModelQuery {
    model: Option<String>,
}

/// `GET /props`.
pub(crate) async fn props(
    State(app): State<Arc<App>>,
    Query(query): Query<ModelQuery>,
) -> Result<Json<Value>, ApiError> {
    let served = app.loaded_model(query.model.as_deref())?;
    let model = served.model();
    let tokenizer = model.tokenizer();
    let text = |id: Option<u32>| id.and_then(|id| tokenizer.token(id)).unwrap_or_default();
    let defaults = SamplingFields::default().params(model, &app.options().sampling)?;
    let sampler = &defaults.options.sampler;
    Ok(Json(json!({
        "default_generation_settings": {
            "n_ctx": served.handle().max_sequence_tokens(),
            "params": {
                "temperature": sampler.temperature,
                "top_k": sampler.top_k,
                "top_p": sampler.top_p,
                "min_p": sampler.min_p,
                "typical_p": sampler.typical_p,
                "repeat_penalty": sampler.repeat_penalty,
                "repeat_last_n": sampler.repeat_last_n.map_or(-1, |tokens| tokens as i64),
                "presence_penalty": sampler.presence_penalty,
                "frequency_penalty": sampler.frequency_penalty,
                "seed": sampler.seed,
            },
        },
        "total_slots": served.handle().max_num_seqs(),
        "model_alias": served.id(),
        "modalities": { "vision": false, "audio": false },
        "chat_template": tokenizer.chat_template().unwrap_or_default(),
        "bos_token": text(tokenizer.bos()),
        "eos_token": text(tokenizer.eos()),
        "build_info": FINGERPRINT,
        "is_sleeping": false,
    })))
}

/// True if a full server is an error, for health checks of gateways.
#[derive(Deserialize)]
pub(crate) struct SlotsQuery {
    model: Option<String>,
    fail_on_no_slot: Option<u8>,
}

/// `GET /slots`: one entry per sequence that the server can run at a time.
pub(crate) async fn slots(
    State(app): State<Arc<App>>,
    Query(query): Query<SlotsQuery>,
) -> Result<Json<Value>, ApiError> {
    let model = app.loaded_model(query.model.as_deref())?;
    let (running, slots) = (model.load().running, model.handle().max_num_seqs());
    if query.fail_on_no_slot.unwrap_or(0) != 0 && running >= slots {
        let message = format!("all {slots} sequences are in use");
        return Err(ApiError::new(crate::error::Kind::Unavailable, message));
    }
    let slot = |id: usize| {
        let n_ctx = model.handle().max_sequence_tokens();
        json!({ "id": id, "n_ctx": n_ctx, "is_processing": id < running, "speculative": false })
    };
    Ok(Json((0..slots).map(slot).collect()))
}

/// `GET /v1/loads`: how busy each loaded model is, as gateways of the `SGLang` family read it.
pub(crate) async fn loads(State(app): State<Arc<App>>) -> Json<Value> {
    let entry = |(rank, model): (usize, Arc<Generator>)| {
        let load = model.load();
        let slots = model.handle().max_num_seqs();
        json!({
            "dp_rank": rank,
            "num_running_reqs": load.running,
            "num_waiting_reqs": load.waiting,
            "num_waiting_uncached_tokens": 0,
            "num_total_reqs": load.running + load.waiting,
            "num_used_tokens": load.used_tokens,
            "max_total_num_tokens": load.total_tokens,
            "token_usage": load.kv_usage,
            "gen_throughput": load.generated_tokens_per_second,
            "cache_hit_rate": model.metrics().cache_hit_rate(),
            "utilization": load.running as f64 / slots.max(1) as f64,
            "max_running_requests": slots,
        })
    };
    let loaded = app.catalog().list().into_iter().filter_map(|listed| listed.generator());
    let loads: Vec<_> = loaded.enumerate().map(entry).collect();
    Json(json!({ "timestamp": now(), "dp_rank_count": loads.len(), "loads": loads }))
}
