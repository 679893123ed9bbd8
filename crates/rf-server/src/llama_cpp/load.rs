//! How busy the models are: `GET /slots` of llama.cpp, and `GET /v1/loads`.

use std::sync::Arc;

use axum::Json;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{ApiError, ApiErrorKind};
use crate::generator::Generator;
use crate::state::{App, now};

/// The model that a request names.
#[derive(Deserialize, JsonSchema)]
pub(crate) struct SlotsQuery {
    model: Option<String>,
    /// Neither empty nor 0 if a full server is an error, for health checks of gateways.
    fail_on_no_slot: Option<String>,
}

/// A sequence that the server can run.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Slot {
    id: usize,
    n_ctx: usize,
    is_processing: bool,
    speculative: bool,
}

/// `GET /slots`: one entry per sequence that the server can run at a time.
pub(crate) async fn slots(
    State(app): State<Arc<App>>,
    query: Result<Query<SlotsQuery>, QueryRejection>,
) -> Result<Json<Vec<Slot>>, ApiError> {
    let Query(query) = query?;
    let model = app.loaded_model(query.model.as_deref())?;
    let (running, slots) = (model.load().running, model.handle().max_num_seqs());
    let fails = query.fail_on_no_slot.is_some_and(|value| !matches!(value.as_str(), "" | "0"));
    if fails && running >= slots {
        let message = format!("all {slots} sequences are in use");
        return Err(ApiError::new(ApiErrorKind::Unavailable, message));
    }
    let n_ctx = model.handle().max_sequence_tokens();
    let slot = |id: usize| Slot { id, n_ctx, is_processing: id < running, speculative: false };
    Ok(Json((0..slots).map(slot).collect()))
}

/// The load of each loaded model.
#[derive(Serialize, JsonSchema)]
pub(crate) struct LoadReport {
    timestamp: u64,
    dp_rank_count: usize,
    loads: Vec<ModelLoad>,
}

#[derive(Serialize, JsonSchema)]
struct ModelLoad {
    dp_rank: usize,
    num_running_reqs: usize,
    num_waiting_reqs: usize,
    num_waiting_uncached_tokens: usize,
    num_total_reqs: usize,
    num_used_tokens: usize,
    max_total_num_tokens: usize,
    token_usage: f64,
    gen_throughput: f64,
    cache_hit_rate: f64,
    utilization: f64,
    max_running_requests: usize,
}

/// `GET /v1/loads`: how busy each loaded model is, as gateways of the `SGLang` family read it.
pub(crate) async fn loads(State(app): State<Arc<App>>) -> Json<LoadReport> {
    let entry = |(rank, model): (usize, Arc<Generator>)| {
        let load = model.load();
        let slots = model.handle().max_num_seqs();
        ModelLoad {
            dp_rank: rank,
            num_running_reqs: load.running,
            num_waiting_reqs: load.waiting,
            num_waiting_uncached_tokens: 0,
            num_total_reqs: load.running + load.waiting,
            num_used_tokens: load.used_tokens,
            max_total_num_tokens: load.total_tokens,
            token_usage: load.kv_usage,
            gen_throughput: load.generated_tokens_per_second,
            cache_hit_rate: model.metrics().cache_hit_rate(),
            utilization: load.running as f64 / slots.max(1) as f64,
            max_running_requests: slots,
        }
    };
    let loaded = app.catalog().list().into_iter().filter_map(|listed| listed.generator());
    let loads: Vec<_> = loaded.enumerate().map(entry).collect();
    Json(LoadReport { timestamp: now(), dp_rank_count: loads.len(), loads })
}
