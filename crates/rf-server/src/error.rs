//! Errors of requests, in the form of each API.

use std::time::Duration;

use axum::Json;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::header::{RETRY_AFTER, WWW_AUTHENTICATE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde::Serialize;

/// Why the server could not start or run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The address is in use, or not one of this machine.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address.
        address: String,
        /// The answer of the operating system.
        source: std::io::Error,
    },
    /// An option cannot be used in an HTTP header.
    #[error("{0} is no origin for CORS: give one such as https://example.org, or *")]
    Origin(String),
    /// The operating system refused threads, signals or sockets.
    #[error("cannot start the server: {0}")]
    Io(#[from] std::io::Error),
    /// An option needs a feature of this crate that was off when it was built.
    #[error("{option} is not part of this build: build it with the feature `{feature}`")]
    NotBuilt {
        /// The option.
        option: &'static str,
        /// The feature.
        feature: &'static str,
    },
    /// The address of the collector of traces cannot be used.
    #[error("{0} is no collector of traces: give a URL such as http://127.0.0.1:4318/v1/traces")]
    TracesEndpoint(String),
    /// The blocks of the prefix cache are published of a single model.
    #[error("KV events are those of one model: serve a single model that generates text")]
    KvEventModels,
    /// Two models would have the same name.
    #[error("two models have the name {0}: give each its own")]
    DuplicateModel(String),
    /// A default of requests is out of range.
    #[error("{message}")]
    Default {
        /// The parameter, such as `bad_words[0]`.
        name: String,
        /// The problem, with the name of the parameter.
        message: String,
    },
    /// A step did not end. Start a new process: this one waits for the device for ever.
    #[error("a step of {model} has not ended for {seconds} s: the device does not answer any more")]
    Hung {
        /// The name of the model.
        model: String,
        /// How long the step had taken.
        seconds: u64,
    },
    /// The device of a model fails in every step. Start a new process, which opens it again.
    #[error(
        "the device of {model} is lost{}: {reason}",
        if *.has_slept { " after the machine was suspended" } else { "" }
    )]
    DeviceLost {
        /// The name of the model.
        model: String,
        /// The error of the last step.
        reason: String,
        /// True if the machine was suspended while the server ran.
        has_slept: bool,
    },
}

/// The reason why a model could not be loaded, or the settings of models could not be read.
pub type LoadError = Box<dyn std::error::Error + Send + Sync>;

/// The kind of a request's error, which determines status and type in every API.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ApiErrorKind {
    InvalidRequest,
    ContextExceeded,
    Authentication,
    Forbidden,
    NotFound,
    MethodNotAllowed,
    MediaType,
    Timeout,
    TooLarge,
    QueueFull,
    NotSupported,
    Unavailable,
    Internal,
}

impl ApiErrorKind {
    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::InvalidRequest | Self::ContextExceeded => StatusCode::BAD_REQUEST,
            Self::Authentication => StatusCode::UNAUTHORIZED,
            Self::Forbidden => StatusCode::FORBIDDEN,
            Self::MediaType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::NotFound => StatusCode::NOT_FOUND,
            Self::MethodNotAllowed => StatusCode::METHOD_NOT_ALLOWED,
            Self::Timeout => StatusCode::REQUEST_TIMEOUT,
            Self::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
            Self::QueueFull => StatusCode::TOO_MANY_REQUESTS,
            Self::NotSupported => StatusCode::NOT_IMPLEMENTED,
            Self::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
            Self::Internal => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    pub(crate) fn openai_type(self) -> &'static str {
        match self {
            Self::InvalidRequest
            | Self::MethodNotAllowed
            | Self::MediaType
            | Self::Timeout
            | Self::TooLarge => "invalid_request_error",
            Self::Forbidden => "permission_error",
            Self::ContextExceeded => "exceed_context_size_error",
            Self::Authentication => "authentication_error",
            Self::NotFound => "not_found_error",
            Self::QueueFull => "rate_limit_error",
            Self::NotSupported => "not_supported_error",
            Self::Unavailable => "unavailable_error",
            Self::Internal => "server_error",
        }
    }

    fn openai_code(self) -> Option<&'static str> {
        match self {
            Self::ContextExceeded => Some("context_length_exceeded"),
            Self::Authentication => Some("invalid_api_key"),
            Self::QueueFull => Some("rate_limit_exceeded"),
            _ => None,
        }
    }

    fn anthropic_type(self) -> &'static str {
        match self {
            Self::InvalidRequest
            | Self::ContextExceeded
            | Self::MethodNotAllowed
            | Self::MediaType
            | Self::NotSupported => "invalid_request_error",
            Self::Forbidden => "permission_error",
            Self::Authentication => "authentication_error",
            Self::NotFound => "not_found_error",
            Self::Timeout => "timeout_error",
            Self::TooLarge => "request_too_large",
            Self::QueueFull => "rate_limit_error",
            Self::Unavailable => "overloaded_error",
            Self::Internal => "api_error",
        }
    }
}

/// The API of a route: each has its own form of errors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Api {
    OpenAi,
    Anthropic,
    Ollama,
}

impl Api {
    /// The API that `path` belongs to. Routes of llama.cpp have the errors of `OpenAI`.
    pub(crate) fn of(path: &str) -> Self {
        if path.starts_with("/v1/messages") {
            Self::Anthropic
        } else if path.starts_with("/api/") {
            Self::Ollama
        } else {
            Self::OpenAi
        }
    }
}

/// Why a request failed.
#[derive(Clone, Debug)]
pub(crate) struct ApiError {
    pub(crate) kind: ApiErrorKind,
    pub(crate) message: String,
    /// The field, such as `messages[0].content`.
    pub(crate) param: Option<String>,
    code: Option<&'static str>,
    /// Tokens of a prompt that is too long, and those of the context.
    tokens: Option<(usize, usize)>,
    /// The seconds after which the client may try again, if not the default ones.
    retry_after: Option<u64>,
}

impl ApiError {
    pub(crate) fn new(kind: ApiErrorKind, message: impl Into<String>) -> Self {
        let (param, code) = (None, kind.openai_code());
        Self { kind, message: message.into(), param, code, tokens: None, retry_after: None }
    }

    /// A prompt that is too long. Agents make theirs shorter if the message is that of the server
    /// that they know, so it has the words of Anthropic, llama.cpp and `OpenAI`.
    pub(crate) fn prompt_too_long(prompt_tokens: usize, most_tokens: usize) -> Self {
        Self::too_long(prompt_tokens, most_tokens, "")
    }

    /// A prompt that was not tokenized, because it has more bytes than the tokens of the context
    /// can have.
    pub(crate) fn prompt_bytes_too_long(
        bytes: usize,
        fewest_tokens: usize,
        most_tokens: usize,
    ) -> Self {
        let note = format!(" (at least: {bytes} bytes were not tokenized)");
        Self::too_long(fewest_tokens, most_tokens, &note)
    }

    fn too_long(prompt_tokens: usize, most_tokens: usize, note: &str) -> Self {
        let message = format!(
            "prompt is too long: {prompt_tokens} tokens > {most_tokens} maximum{note}; the request \
             exceeds the available context size: the maximum context length is {most_tokens} \
             tokens; use a shorter prompt, or a larger context and KV cache"
        );
        let tokens = Some((prompt_tokens, most_tokens));
        Self { tokens, ..Self::new(ApiErrorKind::ContextExceeded, message) }
    }

    /// Sets the time after which the client may try again.
    pub(crate) fn retry_after(mut self, wait: Duration) -> Self {
        self.retry_after = Some(wait.as_secs_f64().ceil() as u64);
        self
    }

    /// A request that cannot be answered as it is.
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ApiErrorKind::InvalidRequest, message)
    }

    /// A field with a wrong value. The message says what is wrong with it.
    pub(crate) fn field(name: impl Into<String>, message: impl std::fmt::Display) -> Self {
        let name = name.into();
        let mut error = Self::invalid(format!("`{name}`: {message}"));
        error.param = Some(name);
        error
    }

    /// The error as that of a field, which the message names first.
    pub(crate) fn of_field(self, name: String) -> Self {
        Self { message: format!("`{name}`: {}", self.message), param: Some(name), ..self }
    }

    /// The error with another kind.
    pub(crate) fn of_kind(self, kind: ApiErrorKind) -> Self {
        Self { kind, ..self }
    }

    /// The error with this code for programs.
    pub(crate) fn with_code(self, code: &'static str) -> Self {
        Self { code: Some(code), ..self }
    }

    pub(crate) fn unknown_model(name: &str, known: &[&str]) -> Self {
        let known = known.join(", ");
        let name: String = name.chars().take(100).flat_map(char::escape_debug).collect();
        let message = format!("the model `{name}` does not exist: this server has {known}");
        let mut error = Self::new(ApiErrorKind::NotFound, message);
        error.param = Some("model".to_owned());
        error.code = Some("model_not_found");
        error
    }

    /// A model that the key of the request may not use.
    pub(crate) fn may_not_use(id: &str) -> Self {
        Self::new(ApiErrorKind::Forbidden, format!("this API key may not use the model `{id}`"))
    }

    /// A model that could not be loaded.
    pub(crate) fn load_failed(id: &str, failure: &str) -> Self {
        let message = format!("the model `{id}` could not be loaded: {failure}");
        let mut error = Self::new(ApiErrorKind::Unavailable, message);
        error.code = Some("model_load_failed");
        error
    }

    /// A fault of the server. The cause is for its log.
    pub(crate) fn internal(cause: &dyn std::fmt::Display) -> Self {
        tracing::error!(%cause, "a request failed");
        Self::new(ApiErrorKind::Internal, "the server failed to answer; its log has the cause")
    }

    /// What a log may tell of it: its kind and the name of the field. The message may quote the
    /// request.
    pub(crate) fn summary(&self) -> String {
        let kind = self.kind.openai_type();
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        match self.param.as_deref().and_then(|path| path.split(|c| !is_name(c)).next()) {
            Some(field) if !field.is_empty() => format!("{kind} in `{field}`"),
            _ => kind.to_owned(),
        }
    }

    /// The body of the error.
    pub(crate) fn body(&self, api: Api) -> ErrorBody<'_> {
        let message = self.message.as_str();
        match api {
            Api::OpenAi => ErrorBody::OpenAi {
                error: OpenAiError {
                    message,
                    kind: self.kind.openai_type(),
                    param: self.param.as_deref(),
                    code: self.code,
                    n_prompt_tokens: self.tokens.map(|(prompt, _)| prompt),
                    n_ctx: self.tokens.map(|(_, most)| most),
                },
            },
            Api::Anthropic => ErrorBody::Anthropic {
                kind: "error",
                error: AnthropicError { kind: self.kind.anthropic_type(), message },
            },
            Api::Ollama => ErrorBody::Ollama { error: message },
        }
    }

    /// The response in the form of `api`.
    pub(crate) fn response(&self, api: Api) -> Response {
        let mut response = (self.kind.status(), Json(self.body(api))).into_response();
        let headers = response.headers_mut();
        match self.kind {
            ApiErrorKind::QueueFull | ApiErrorKind::Unavailable => {
                headers.insert(
                    RETRY_AFTER,
                    HeaderValue::from(self.retry_after.unwrap_or(RETRY_AFTER_SECONDS)),
                );
            }
            ApiErrorKind::Authentication => {
                headers.insert(WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            _ => {}
        }
        response
    }
}

/// Refuses a list with more than `most` entries.
pub(crate) fn check_count(name: &'static str, count: usize, most: usize) -> Result<(), ApiError> {
    if count > most {
        return Err(ApiError::field(name, format!("{count} entries; the maximum is {most}")));
    }
    Ok(())
}

/// The body of an error, in the form of each API.
#[derive(Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum ErrorBody<'a> {
    OpenAi {
        error: OpenAiError<'a>,
    },
    Anthropic {
        #[serde(rename = "type")]
        kind: &'static str,
        error: AnthropicError<'a>,
    },
    Ollama {
        error: &'a str,
    },
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct OpenAiError<'a> {
    message: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
    /// The field, such as `messages[0].content`.
    param: Option<&'a str>,
    code: Option<&'static str>,
    /// Tokens of a prompt that is too long; the fewest that it can have if it was not tokenized.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_prompt_tokens: Option<usize>,
    /// Tokens of the context that the prompt is too long for.
    #[serde(skip_serializing_if = "Option::is_none")]
    n_ctx: Option<usize>,
}

#[derive(Debug, Serialize, JsonSchema)]
pub(crate) struct AnthropicError<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    message: &'a str,
}

/// Requests leave the queue within about this time on a busy server.
const RETRY_AFTER_SECONDS: u64 = 1;

/// The response carries the error, and the outermost layer, which knows the API, gives it a body.
impl From<QueryRejection> for ApiError {
    fn from(rejection: QueryRejection) -> Self {
        Self::invalid(rejection.body_text())
    }
}

impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        Self::invalid(rejection.body_text())
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = self.kind.status().into_response();
        response.extensions_mut().insert(self);
        response
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn each_api_has_its_own_form() {
        let error = ApiError::field("messages[0].role", "expected a string");
        assert_eq!(
            json!(error.body(Api::of("/v1/chat/completions"))),
            json!({ "error": {
                "message": "`messages[0].role`: expected a string",
                "type": "invalid_request_error",
                "param": "messages[0].role",
                "code": null,
            }})
        );
        assert_eq!(
            json!(error.body(Api::of("/v1/messages/count_tokens"))),
            json!({ "type": "error", "error": {
                "type": "invalid_request_error",
                "message": "`messages[0].role`: expected a string",
            }})
        );
        assert_eq!(
            json!(error.body(Api::of("/api/chat"))),
            json!({ "error": "`messages[0].role`: expected a string" })
        );
    }
}
