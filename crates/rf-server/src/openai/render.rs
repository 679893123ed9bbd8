//! `/v1/chat/completions/render` and `/v1/completions/render` of vLLM: what the model would read of
//! a request. Routers look the tokens up among the blocks that workers have cached.

use std::sync::Arc;

use axum::extract::State;
use axum::{Extension, Json};
use schemars::JsonSchema;
use serde::Serialize;

use super::chat::ChatFields;
use super::completions::{CompletionFields, read_prompts};
use crate::api::conversation::ConversationFields;
use crate::body::Fields;
use crate::error::ApiError;
use crate::prompt::rendered;
use crate::request_id::RequestId;
use crate::sampling::{Params, SamplingFields};
use crate::state::{App, ServedModel};

/// A prompt with the parameters of its continuation, in the form of vLLM.
#[derive(Serialize, JsonSchema)]
pub(crate) struct RenderedRequest {
    request_id: String,
    model: String,
    prompt: String,
    token_ids: Vec<u32>,
    /// Always null: prompts with pictures are not rendered.
    features: (),
    sampling_params: RenderedSampling,
    stream: bool,
    /// Always null.
    cache_salt: (),
    priority: i32,
}

/// The parameters of sampling with their names in vLLM.
#[derive(Serialize, JsonSchema)]
struct RenderedSampling {
    n: usize,
    temperature: f64,
    top_p: f64,
    top_k: usize,
    min_p: f64,
    presence_penalty: f64,
    frequency_penalty: f64,
    repetition_penalty: f64,
    seed: Option<u64>,
    stop: Vec<String>,
    ignore_eos: bool,
    /// The limit of the request, or the remaining context if that is smaller.
    max_tokens: usize,
}

/// `POST /v1/chat/completions/render`.
pub(crate) async fn chat(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Json<RenderedRequest>, ApiError> {
    let chat: ChatFields = fields.read()?;
    let model = app.model(chat.model.as_deref()).await?;
    let sampling: SamplingFields = fields.read()?;
    let params = sampling.params(model.model(), model.sampling())?;
    let conversation = fields.read::<ConversationFields>()?.conversation()?.into_text()?;
    let prompt = rendered(&model, conversation).await?;
    let (text, ids) = (prompt.chat.prompt.text, prompt.ids.ids().to_vec());
    let stream = chat.stream.unwrap_or(false);
    RenderedRequest::new(&model, request_id.as_str(), (text, ids), params, stream).map(Json)
}

/// `POST /v1/completions/render`: one element for each prompt.
pub(crate) async fn completions(
    State(app): State<Arc<App>>,
    Extension(request_id): Extension<RequestId>,
    fields: Fields,
) -> Result<Json<Vec<RenderedRequest>>, ApiError> {
    let completion: CompletionFields = fields.read()?;
    let model = app.model(completion.model.as_deref()).await?;
    let sampling: SamplingFields = fields.read()?;
    let params = sampling.params(model.model(), model.sampling())?;
    let prompts = read_prompts(&model, completion.prompt, completion.suffix).await?;
    let stream = completion.stream.unwrap_or(false);
    let requests = prompts.into_iter().enumerate().map(|(index, prompt)| {
        let id = format!("{}-{index}", request_id.as_str());
        RenderedRequest::new(&model, &id, (prompt.text, prompt.ids), params.clone(), stream)
    });
    requests.collect::<Result<_, _>>().map(Json)
}

impl RenderedRequest {
    fn new(
        model: &ServedModel,
        request_id: &str,
        (prompt, token_ids): (String, Vec<u32>),
        params: Params,
        stream: bool,
    ) -> Result<Self, ApiError> {
        let most_tokens = model.handle().max_sequence_tokens();
        let Some(room) = most_tokens.checked_sub(token_ids.len()) else {
            return Err(ApiError::prompt_too_long(token_ids.len(), most_tokens));
        };
        let priority = params.priority;
        Ok(Self {
            request_id: request_id.to_owned(),
            model: model.id().to_owned(),
            prompt,
            token_ids,
            features: (),
            sampling_params: RenderedSampling::new(params, room),
            stream,
            cache_salt: (),
            priority,
        })
    }
}

impl RenderedSampling {
    fn new(params: Params, room: usize) -> Self {
        let options = params.options;
        let sampler = &options.sampler;
        Self {
            n: params.num_choices,
            temperature: sampler.temperature.into(),
            top_p: sampler.top_p.into(),
            top_k: sampler.top_k,
            min_p: sampler.min_p.into(),
            presence_penalty: sampler.presence_penalty.into(),
            frequency_penalty: sampler.frequency_penalty.into(),
            repetition_penalty: sampler.repeat_penalty.into(),
            seed: sampler.seed,
            stop: options.stop,
            ignore_eos: options.ignore_eos,
            max_tokens: options.max_tokens.map_or(room, |most| most.min(room)),
        }
    }
}
