//! The table of routes, and the layers around them.

use std::any::Any;
use std::sync::{Arc, LazyLock};

use axum::extract::{Request, State};
use axum::handler::Handler;
use axum::http::Method;
use axum::http::header::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, delete, get, post};
use axum::{Json, Router};
use schemars::JsonSchema;
use serde::Serialize;
use serde_json::{Map, Value};
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::access::observe;
use crate::adapters::AdapterScale;
use crate::api::conversation::ConversationFields;
use crate::api::embeddings::EmbeddingFields;
use crate::auth::require_key;
use crate::error::{ApiError, ApiErrorKind, Error};
use crate::grammar::GrammarFields;
use crate::guard::refuse_foreign_pages;
use crate::known_fields::{KnownFields, set_known};
use crate::llama_cpp::load::LoadReport;
use crate::openapi::{Document, EVENTS, LINES, Operation, document};
use crate::page::{ToolServers, page, tool_servers};
use crate::sampling::SamplingFields;
use crate::state::App;
use crate::tokenizer_info::{TokenizerInfo, tokenizer_info};
use crate::{anthropic, llama_cpp, lora, metrics, ollama, openai, rerank};

/// Builds the router with the routes of the server.
pub(crate) fn router(app: &Arc<App>) -> Result<Router, Error> {
    set_known(known_fields);
    let routes = routes()
        .into_iter()
        .fold(Router::new(), |router, route| router.route(route.path, route.handler))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed);
    with_layers(routes, app)
}

/// The fields of the requests of all routes.
pub(crate) fn known_fields() -> KnownFields {
    let routes = routes().into_iter();
    routes.map(|route| (route.path, route.operation.field_names())).collect()
}

/// A row of the table of routes.
pub(crate) struct Route {
    pub(crate) path: &'static str,
    method: &'static str,
    handler: MethodRouter<Arc<App>>,
    pub(crate) operation: Operation,
}

impl Route {
    fn get<H, T>(path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self { path, method: "get", handler: get(handler), operation }
    }

    fn post<H, T>(path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self { path, method: "post", handler: post(handler), operation }
    }

    fn delete<H, T>(path: &'static str, handler: H, operation: Operation) -> Self
    where
        H: Handler<T, Arc<App>>,
        T: 'static,
    {
        Self { path, method: "delete", handler: delete(handler), operation }
    }
}

/// The table: every route with what it takes and answers, so that the document has all of them.
pub(crate) fn routes() -> Vec<Route> {
    let mut routes = operation_routes();
    routes.extend(openai_routes());
    routes.extend(anthropic_routes());
    routes.extend(llama_cpp_routes());
    routes.extend(ollama_routes());
    routes.extend(reranking_routes());
    routes.extend(adapter_routes());
    routes
}

fn operation_routes() -> Vec<Route> {
    let health = "Whether the server runs";
    let ready = "Whether the server takes requests";
    let document = "This document";
    let loads = "How busy the loaded models are";
    let running = "The number of requests that wait or run";
    let tools = "The servers of tools that the chat page may use";
    vec![
        Route::get("/", page, Operation::text("The chat page", "text/html")),
        Route::get("/health", self::health, Operation::json::<Health>(health)),
        Route::get("/v1/health", self::health, Operation::json::<Health>(health)),
        Route::get("/health/ready", self::ready, Operation::json::<Health>(ready)),
        Route::get("/ready", self::ready, Operation::json::<Health>(ready)),
        Route::get("/metrics", prometheus, Operation::text("Metrics of Prometheus", "text/plain")),
        Route::get("/openapi.json", openapi, Operation::json::<Map<String, Value>>(document)),
        Route::get("/v1/loads", llama_cpp::load::loads, Operation::json::<LoadReport>(loads)),
        Route::get("/load", load, Operation::json::<ServerLoad>(running)),
        Route::get("/mcp-servers", tool_servers, Operation::json::<ToolServers>(tools)),
        Route::get("/ping", self::health, Operation::json::<Health>(health)),
        Route::get("/version", version, Operation::json::<Version>("The version of the program")),
    ]
}

fn openai_routes() -> Vec<Route> {
    use openai::transcriptions::{self, Transcription, TranscriptionFields};
    use openai::{Completion, chat, completions, embeddings, models, render, responses};

    let chat_operation =
        Operation::json::<Completion<'_, chat::FullChoice>>("Answers a conversation")
            .streams::<Completion<'_, chat::ChunkChoice>>(EVENTS)
            .takes::<chat::ChatFields>()
            .takes::<ConversationFields>()
            .takes::<SamplingFields>()
            .takes::<GrammarFields>();
    let text = Operation::json::<Completion<'_, completions::TextChoice<'_>>>("Continues texts")
        .streams::<Completion<'_, completions::TextChoice<'_>>>(EVENTS)
        .takes::<completions::CompletionFields>()
        .takes::<SamplingFields>()
        .takes::<GrammarFields>();
    let embedding = Operation::json::<embeddings::EmbeddingList>("Makes vectors of texts")
        .takes::<embeddings::FormatFields>()
        .takes::<EmbeddingFields>();
    let response = Operation::json::<responses::head::ResponseJson<'_>>("Answers a conversation")
        .streams::<responses::stream::ResponseEvent<'_>>(EVENTS)
        .takes::<responses::ResponsesFields>()
        .takes::<responses::settings::RepeatedFields>()
        .takes::<SamplingFields>()
        .takes::<GrammarFields>();
    let tokens = Operation::json::<responses::InputTokens>("Counts the tokens of a conversation")
        .takes::<responses::ResponsesFields>();
    let counted = Operation::json::<responses::InputTokens>("Counts the tokens of a conversation")
        .takes::<llama_cpp::ModelQuery>()
        .takes::<ConversationFields>();
    let rendered_chat = Operation::json::<render::RenderedRequest>("The prompt of a conversation")
        .takes::<chat::ChatFields>()
        .takes::<ConversationFields>()
        .takes::<SamplingFields>();
    let rendered_text = Operation::json::<Vec<render::RenderedRequest>>("The tokens of prompts")
        .takes::<completions::CompletionFields>()
        .takes::<SamplingFields>();
    let transcription = Operation::json::<Transcription>("Writes what is said in a sound")
        .streams::<transcriptions::TranscriptionEvent>(EVENTS)
        .takes::<TranscriptionFields>()
        .takes::<SamplingFields>()
        .takes_file("file");
    let stored = Operation::json::<responses::head::ResponseJson<'_>>("A stored response");
    let deleted = Operation::json::<responses::DeletedResponse>("Deletes a stored response");
    let list = Operation::json::<models::ModelListing>("All models");
    let one = Operation::json::<models::AnyModel>("One model");
    vec![
        Route::get("/v1/models", models::list, list),
        Route::get("/v1/models/{*id}", models::one, one),
        Route::post("/v1/chat/completions", chat::chat, chat_operation.clone()),
        Route::post("/chat/completions", chat::chat, chat_operation),
        Route::post("/v1/chat/completions/input_tokens", chat::input_tokens, counted),
        Route::post("/v1/chat/completions/render", render::chat, rendered_chat),
        Route::post("/v1/completions", completions::completions, text),
        Route::post("/v1/completions/render", render::completions, rendered_text),
        Route::post("/v1/embeddings", embeddings::embeddings, embedding),
        Route::post(
            "/v1/audio/transcriptions",
            transcriptions::transcriptions,
            transcription.clone(),
        ),
        Route::post("/audio/transcriptions", transcriptions::transcriptions, transcription),
        Route::post("/v1/responses", responses::responses, response),
        Route::post("/v1/responses/input_tokens", responses::input_tokens, tokens),
        Route::get("/v1/responses/{id}", responses::one, stored),
        Route::delete("/v1/responses/{id}", responses::delete, deleted),
    ]
}

fn anthropic_routes() -> Vec<Route> {
    use anthropic::{TokenCount, count_tokens, input, messages, output, stream};

    let message = Operation::json::<output::MessageJson<'_>>("Answers a conversation")
        .streams::<stream::MessageEvent<'_>>(EVENTS)
        .takes::<input::MessagesFields>()
        .takes::<SamplingFields>();
    let count = Operation::json::<TokenCount>("Counts the tokens of a conversation")
        .takes::<input::MessagesFields>();
    vec![
        Route::post("/v1/messages", messages, message),
        Route::post("/v1/messages/count_tokens", count_tokens, count),
    ]
}

fn llama_cpp_routes() -> Vec<Route> {
    use llama_cpp::{adapters, completion, load, model_watch, models, slots};

    let answer = |summary| {
        Operation::json::<completion::CompletionJson<'_>>(summary)
            .streams::<completion::CompletionJson<'_>>(EVENTS)
            .takes::<completion::CompletionFields>()
            .takes::<SamplingFields>()
    };
    let text = answer("Continues a text").takes::<GrammarFields>();
    let infill = answer("Fills a gap in a text").takes::<completion::InfillFields>();
    let tokenize = Operation::json::<llama_cpp::Tokenized>("The tokens of a text")
        .takes::<llama_cpp::TokenizeFields>();
    let detokenize = Operation::json::<llama_cpp::Detokenized>("The text of tokens")
        .takes::<llama_cpp::DetokenizeFields>();
    let template = Operation::json::<llama_cpp::RenderedPrompt>("The prompt of a conversation")
        .takes::<llama_cpp::ModelQuery>()
        .takes::<ConversationFields>();
    let props = Operation::json::<llama_cpp::Props>("Properties of a loaded model");
    let tokenizer = Operation::json::<TokenizerInfo>("The tokenizer of a loaded model");
    let list = Operation::json::<openai::models::ModelListing>("All models");
    let events = Operation::events::<crate::model_events::ModelEvent>(
        "Changes of the models, and downloads",
    );
    let removed = Operation::json::<models::Done>("Removes a model");
    let change = |summary| Operation::json::<models::Done>(summary).takes::<models::NamedModel>();
    let adapter_list = Operation::json::<Vec<adapters::AdapterJson>>("The adapters of a model");
    let scales = Operation::json::<models::Done>("Sets the scales of the adapters of a model")
        .takes::<Vec<AdapterScale>>();
    let slots = Operation::json::<Vec<load::Slot>>("The sequences that a loaded model can run");
    let slot = Operation::json::<slots::SlotAnswer>("Saves, restores or erases a sequence")
        .takes::<slots::SlotFields>();
    vec![
        Route::post("/completion", completion::completion, text.clone()),
        Route::post("/completions", completion::completion, text),
        Route::post("/infill", completion::infill, infill),
        Route::post("/tokenize", llama_cpp::tokenize, tokenize),
        Route::post("/detokenize", llama_cpp::detokenize, detokenize),
        Route::post("/apply-template", llama_cpp::apply_template, template),
        Route::get("/models", models::list, list.query(&["reload"])),
        Route::post("/models", models::download, change("Downloads a model")),
        Route::delete("/models", models::delete, removed.query(&["model"])),
        Route::get("/models/sse", model_watch::events, events),
        Route::post("/models/load", models::load, change("Loads a model")),
        Route::post("/models/unload", models::unload, change("Unloads a model")),
        Route::get("/lora-adapters", adapters::list, adapter_list.query(&["model"])),
        Route::post("/lora-adapters", adapters::set, scales.query(&["model"])),
        Route::get("/props", llama_cpp::props, props.query(&["model"])),
        Route::get("/tokenizer_info", tokenizer_info, tokenizer.query(&["model"])),
        Route::get("/slots", load::slots, slots.query(&["model", "fail_on_no_slot"])),
        Route::post("/slots/{id}", slots::change, slot.query(&["action", "model"])),
    ]
}

fn ollama_routes() -> Vec<Route> {
    use ollama::line::Line;
    use ollama::{embed, embeddings, manage, models};

    let answer = |summary| {
        Operation::json::<Line>(summary).streams::<Line>(LINES).takes::<ollama::CommonFields>()
    };
    let chat = answer("Answers a conversation").takes::<ollama::ChatFields>();
    let generate = answer("Answers or continues a text").takes::<ollama::GenerateFields>();
    let embedding = Operation::json::<embed::EmbedAnswer>("Makes vectors of texts")
        .takes::<embed::EmbedFields>()
        .takes::<EmbeddingFields>();
    let old = Operation::json::<embeddings::EmbeddingAnswer>("Makes the vector of a text")
        .takes::<embeddings::PromptFields>();
    let show = Operation::json::<models::ShownModel>("What is known of a model from its file")
        .takes::<models::ShowFields>();
    let version = Operation::json::<models::Version>("The version of the API");
    let status = |summary| {
        let answer = Operation::json::<manage::Progress>(summary);
        answer.streams::<manage::Progress>(LINES).takes::<manage::NameFields>()
    };
    let pull = status("Downloads a model");
    let create = status("Makes a model of another one").takes::<manage::CreateFields>();
    let copy = Operation::json::<manage::Progress>("Gives a model a further name");
    let copy = copy.takes::<manage::CopyFields>();
    let delete = Operation::json::<manage::Progress>("Removes a model");
    let delete = delete.takes::<manage::NameFields>();
    vec![
        Route::post("/api/chat", ollama::chat, chat),
        Route::post("/api/generate", ollama::generate, generate),
        Route::post("/api/embed", embed::embed, embedding),
        Route::post("/api/embeddings", embeddings::embeddings, old),
        Route::get("/api/tags", models::tags, Operation::json::<models::Models>("All models")),
        Route::post("/api/show", models::show, show),
        Route::get("/api/ps", models::ps, Operation::json::<models::Models>("Loaded models")),
        Route::get("/api/version", models::version, version),
        Route::post("/api/pull", manage::pull, pull),
        Route::post("/api/create", manage::create, create),
        Route::post("/api/copy", manage::copy, copy),
        Route::delete("/api/delete", manage::delete, delete),
    ]
}

fn reranking_routes() -> Vec<Route> {
    use rerank::{Ranking, RerankFields, ScoreFields, ScoreList, rerank, score};

    let route = |path| {
        let ranking = Operation::json::<Ranking>("Orders documents by their relevance");
        Route::post(path, rerank, ranking.takes::<RerankFields>())
    };
    let scores = Operation::json::<ScoreList>("Scores pairs of texts").takes::<ScoreFields>();
    let mut routes: Vec<_> = ["/v1/rerank", "/rerank", "/v2/rerank"].map(route).into();
    routes.push(Route::post("/score", score, scores));
    routes
}

fn adapter_routes() -> Vec<Route> {
    let load =
        Operation::text("Loads an adapter, which requests name as their model", "text/plain")
            .takes::<lora::LoadFields>();
    let unload = Operation::text("Unloads an adapter", "text/plain").takes::<lora::UnloadFields>();
    vec![
        Route::post("/v1/load_lora_adapter", lora::load, load),
        Route::post("/v1/unload_lora_adapter", lora::unload, unload),
    ]
}

/// The document of all routes.
static DOCUMENT: LazyLock<Document> = LazyLock::new(|| {
    let routes = routes();
    document(routes.iter().map(|route| (route.path, route.method, &route.operation)))
});

/// `GET /openapi.json`.
async fn openapi() -> Json<&'static Document> {
    Json(&DOCUMENT)
}

/// Routes with everything around them: keys, request ids, errors in the form of their API.
fn with_layers(routes: Router<Arc<App>>, app: &Arc<App>) -> Result<Router, Error> {
    let routes = routes
        .layer(from_fn_with_state(Arc::clone(app), refuse_while_draining))
        .layer(from_fn_with_state(Arc::clone(app), require_key))
        .layer(from_fn_with_state(Arc::clone(app), refuse_foreign_pages))
        .layer(CatchPanicLayer::custom(panicked));
    let routes = match cors(&app.options().cors_origins)? {
        Some(cors) => routes.layer(cors),
        None => routes,
    };
    Ok(routes.layer(from_fn_with_state(Arc::clone(app), observe)).with_state(Arc::clone(app)))
}

/// Web pages of these origins may use the server; without any, browsers let none do so.
fn cors(origins: &[String]) -> Result<Option<CorsLayer>, Error> {
    if origins.is_empty() {
        return Ok(None);
    }
    let origin = if origins.iter().any(|origin| origin == "*") {
        AllowOrigin::any()
    } else {
        let value = |origin: &String| {
            let is_origin = origin.contains("://") && !origin.ends_with('/');
            let value = is_origin.then(|| HeaderValue::from_str(origin).ok()).flatten();
            value.ok_or_else(|| Error::Origin(origin.clone()))
        };
        AllowOrigin::list(origins.iter().map(value).collect::<Result<Vec<_>, _>>()?)
    };
    let layer = CorsLayer::new()
        .allow_origin(origin)
        .allow_methods([Method::GET, Method::POST, Method::DELETE])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([HeaderName::from_static("x-request-id")]);
    Ok(Some(layer))
}

/// The state of the server.
#[derive(Serialize, JsonSchema)]
struct Health {
    status: &'static str,
}

/// The server answers, and so do its devices. A supervisor that starts it again if not must not do
/// so while it drains.
async fn health(State(app): State<Arc<App>>) -> Result<Json<Health>, ApiError> {
    if app.is_hung() {
        return Err(ApiError::new(ApiErrorKind::Unavailable, "a device does not answer any more"));
    }
    Ok(Json(Health { status: "ok" }))
}

/// The server takes requests, and has a model for them.
async fn ready(State(app): State<Arc<App>>) -> Result<Json<Health>, ApiError> {
    if app.is_draining() {
        return Err(draining());
    }
    if app.is_hung() || !app.catalog().is_ready() {
        return Err(ApiError::new(ApiErrorKind::Unavailable, "no model can be loaded"));
    }
    Ok(Json(Health { status: "ok" }))
}

/// The version of the program, as vLLM has it.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "ProgramVersion")]
struct Version {
    version: &'static str,
}

async fn version() -> Json<Version> {
    Json(Version { version: env!("CARGO_PKG_VERSION") })
}

/// The load of all models, as vLLM has it.
#[derive(Serialize, JsonSchema)]
struct ServerLoad {
    server_load: usize,
}

async fn load(State(app): State<Arc<App>>) -> Json<ServerLoad> {
    let loads = app.catalog().list().into_iter().filter_map(|model| model.generator());
    let server_load = loads.map(|model| model.load()).map(|load| load.running + load.waiting).sum();
    Json(ServerLoad { server_load })
}

async fn prometheus(State(app): State<Arc<App>>) -> Response {
    const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
    let text = metrics::write(&app.catalog().list(), app.http_metrics());
    #[cfg(feature = "kv-events")]
    let text = match app.kv_events() {
        Some(queue) => text + &metrics::dropped("kv_events", queue.dropped()),
        None => text,
    };
    let text = match app.tracer() {
        Some(tracer) => text + &metrics::dropped("trace_spans", tracer.dropped()),
        None => text,
    };
    ([("content-type", CONTENT_TYPE)], text).into_response()
}

async fn not_found(request: Request) -> ApiError {
    let message = format!("there is no {} {}", request.method(), request.uri().path());
    ApiError::new(ApiErrorKind::NotFound, message)
}

async fn method_not_allowed(request: Request) -> ApiError {
    let message = format!("{} is not allowed on {}", request.method(), request.uri().path());
    ApiError::new(ApiErrorKind::MethodNotAllowed, message)
}

fn draining() -> ApiError {
    ApiError::new(ApiErrorKind::Unavailable, "the server is shutting down")
}

/// Requests that are running when the server stops come to their end; new ones do not begin.
async fn refuse_while_draining(
    State(app): State<Arc<App>>,
    request: Request,
    next: Next,
) -> Response {
    if app.is_draining() && request.method() == Method::POST {
        return draining().into_response();
    }
    next.run(request).await
}

/// A panic ends only the request that it happened in.
#[expect(clippy::needless_pass_by_value, reason = "the signature of the layer")]
fn panicked(payload: Box<dyn Any + Send + 'static>) -> axum::http::Response<axum::body::Body> {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("panic");
    ApiError::internal(&text).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ServerOptions;
    use axum::body::to_bytes;
    use http_body_util::Empty;
    use hyper::body::Bytes;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;

    #[expect(clippy::panic, reason = "it is a bug on purpose")]
    async fn panics() -> &'static str {
        panic!("a bug in a handler")
    }

    #[tokio::test]
    async fn a_panic_is_an_error_of_its_request_only() {
        let app = Arc::new(App::new([], ServerOptions::default()).unwrap());
        let routes = Router::new().route("/v1/bug", get(panics)).route("/health", get(health));
        let service = TowerToHyperService::new(with_layers(routes, &app).unwrap());
        for (path, status) in
            [("/health", 200), ("/v1/bug", 500), ("/v1/bug", 500), ("/health", 200)]
        {
            let request = Request::get(path).body(Empty::<Bytes>::new()).unwrap();
            let response = service.call(request).await.unwrap();
            assert_eq!(response.status(), status);
            if status == 500 {
                let body = to_bytes(response.into_body(), 1000).await.unwrap();
                let error: Value = serde_json::from_slice(&body).unwrap();
                assert_eq!(error["error"]["type"], "server_error");
                // Its message is for the log.
                assert!(!error.to_string().contains("bug"), "{error}");
            }
        }
    }
}
