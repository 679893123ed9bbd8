//! The table of routes, and the layers around them.

use std::any::Any;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::Method;
use axum::http::header::{HeaderName, HeaderValue};
use axum::middleware::{Next, from_fn, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use serde::Serialize;
use tower_http::catch_panic::CatchPanicLayer;
use tower_http::cors::{AllowHeaders, AllowOrigin, CorsLayer};

use crate::access::observe;
use crate::auth::require_key;
use crate::error::{ApiError, Error, Kind};
use crate::guard::refuse_foreign_pages;
use crate::page::page;
use crate::state::App;
use crate::{anthropic, llama_cpp, metrics, ollama, openai};

/// All routes of the server.
pub(crate) fn router(app: &Arc<App>) -> Result<Router, Error> {
    let routes = Router::new()
        .route("/", get(page))
        .route("/health", get(health))
        .route("/metrics", get(prometheus))
        .route("/v1/models", get(openai::models::list))
        .route("/v1/models/{*id}", get(openai::models::one))
        .route("/v1/chat/completions", post(openai::chat::chat))
        .route("/v1/completions", post(openai::completions::completions))
        .route("/v1/embeddings", post(openai::embeddings::embeddings))
        .route("/v1/responses", post(openai::responses::responses))
        .route("/v1/messages", post(anthropic::messages))
        .route("/v1/messages/count_tokens", post(anthropic::count_tokens))
        .route("/v1/loads", get(llama_cpp::load::loads))
        .route("/completion", post(llama_cpp::completion::completion))
        .route("/infill", post(llama_cpp::completion::infill))
        .route("/tokenize", post(llama_cpp::tokenize))
        .route("/detokenize", post(llama_cpp::detokenize))
        .route("/apply-template", post(llama_cpp::apply_template))
        .route("/props", get(llama_cpp::props))
        .route("/slots", get(llama_cpp::load::slots))
        .route("/api/chat", post(ollama::chat))
        .route("/api/generate", post(ollama::generate))
        .route("/api/embed", post(ollama::embed::embed))
        .route("/api/tags", get(ollama::models::tags))
        .route("/api/show", post(ollama::models::show))
        .route("/api/ps", get(ollama::models::ps))
        .route("/api/version", get(ollama::models::version))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed);
    with_layers(routes, app)
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
    Ok(routes.layer(from_fn(observe)).with_state(Arc::clone(app)))
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
        .allow_methods([Method::GET, Method::POST])
        .allow_headers(AllowHeaders::mirror_request())
        .expose_headers([HeaderName::from_static("x-request-id")]);
    Ok(Some(layer))
}

/// The state of the server.
#[derive(Serialize)]
struct Health {
    status: &'static str,
}

/// The server answers and takes requests.
async fn health(State(app): State<Arc<App>>) -> Response {
    if app.is_draining() {
        return draining().into_response();
    }
    Json(Health { status: "ok" }).into_response()
}

async fn prometheus(State(app): State<Arc<App>>) -> Response {
    const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";
    ([("content-type", CONTENT_TYPE)], metrics::write(&app.catalog().list())).into_response()
}

async fn not_found(request: Request) -> ApiError {
    let message = format!("there is no {} {}", request.method(), request.uri().path());
    ApiError::new(Kind::NotFound, message)
}

async fn method_not_allowed(request: Request) -> ApiError {
    let message = format!("{} does not take {}", request.uri().path(), request.method());
    ApiError::new(Kind::MethodNotAllowed, message)
}

fn draining() -> ApiError {
    ApiError::new(Kind::Unavailable, "the server is shutting down")
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
    use axum::body::to_bytes;
    use http_body_util::Empty;
    use hyper::body::Bytes;
    use hyper::service::Service as _;
    use hyper_util::service::TowerToHyperService;
    use serde_json::Value;

    use super::*;
    use crate::ServerOptions;

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
