//! JSON bodies of requests: limits, syntax, and types with the path of the wrong field.

use std::sync::Arc;
use std::time::Duration;

use axum::body::to_bytes;
use axum::extract::{FromRequest, Request};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::{ApiError, Kind};
use crate::state::App;

/// The time for sending a body. A client that stops in the middle holds nothing but a socket.
const TIMEOUT: Duration = Duration::from_mins(1);

/// The object in the body of a request.
pub(crate) struct Fields(Value);

impl Fields {
    /// Reads the fields of `T`. The others are ignored.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        serde_path_to_error::deserialize(&self.0).map_err(|error| {
            let path = error.path().to_string();
            match path.as_str() {
                "." => ApiError::invalid(error.inner().to_string()),
                _ => ApiError::field(path, error.inner()),
            }
        })
    }

    fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        // Clients may send nothing where all fields are optional.
        if bytes.is_empty() {
            return Ok(Self(Value::Object(Map::new())));
        }
        match serde_json::from_slice(bytes) {
            Ok(value @ Value::Object(_)) => Ok(Self(value)),
            Ok(_) => Err(ApiError::invalid("the body is not a JSON object")),
            Err(error) => Err(ApiError::invalid(format!("the body is not valid JSON: {error}"))),
        }
    }
}

impl FromRequest<Arc<App>> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let limit = app.options().max_body_bytes;
        let body = tokio::time::timeout(TIMEOUT, to_bytes(request.into_body(), limit));
        let bytes = body.await.map_err(|_| {
            ApiError::new(Kind::Timeout, format!("the body did not arrive in {TIMEOUT:?}"))
        })?;
        let bytes = bytes.map_err(|error| {
            if is_length_limit(&error) {
                let message = format!("the body is larger than {limit} bytes");
                return ApiError::new(Kind::TooLarge, message);
            }
            ApiError::invalid(format!("the body cannot be read: {error}"))
        })?;
        Self::parse(&bytes)
    }
}

fn is_length_limit(error: &axum::Error) -> bool {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
    while let Some(error) = cause {
        if error.is::<http_body_util::LengthLimitError>() {
            return true;
        }
        cause = error.source();
    }
    false
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Deserialize, Debug)]
    struct Outer {
        #[serde(default)]
        #[expect(dead_code, reason = "only its type matters")]
        items: Vec<Inner>,
    }

    #[derive(Deserialize, Debug)]
    struct Inner {
        #[expect(dead_code, reason = "only its type matters")]
        count: Option<u32>,
    }

    #[test]
    fn a_wrong_type_is_named_by_its_path() {
        let fields = Fields::parse(br#"{"items":[{},{"count":"x"}],"unknown":1}"#).unwrap();
        let error = fields.read::<Outer>().unwrap_err();
        assert_eq!(error.param.as_deref(), Some("items[1].count"));
        assert_eq!(error.message, r#"`items[1].count`: invalid type: string "x", expected u32"#);
    }

    #[test]
    fn only_objects_are_bodies() {
        assert!(Fields::parse(b"").unwrap().read::<Outer>().is_ok());
        for bad in [&b"[]"[..], b"{", b"{\"a\":\xff}", b"nul", &[b'['; 1000]] {
            assert_eq!(Fields::parse(bad).err().unwrap().kind, Kind::InvalidRequest);
        }
    }
}
