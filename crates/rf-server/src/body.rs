//! JSON bodies of requests: limits, syntax, and types with the path of the wrong field.

mod memory;
mod receive;

use std::sync::Arc;

use axum::extract::{FromRequest, MatchedPath, Request};
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::block_in_place;

pub(crate) use self::memory::BodyMemory;
use self::memory::MemoryPermit;
pub(crate) use self::receive::{ReceivedBody, receive};
use crate::error::{ApiError, ApiErrorKind};
use crate::known_fields::{note_unknown, refuse_unsupported};
use crate::state::App;

/// The most values of a body. Each takes up to about 250 bytes of memory, whatever its length.
const MAX_VALUES: usize = 500_000;
/// The size from which the values of a body are counted beside the threads that serve sockets.
const LARGE_BODY: usize = 1 << 20;
/// Fields whose values are objects of numbers.
const OPTIONS: [&str; 3] = ["options", "thinking", "stream_options"];

/// The object in the body of a request. A route that computes an answer drops it before.
pub(crate) struct Fields(ParsedBody);

/// The list in the body of a request.
pub(crate) struct List(ParsedBody);

/// The value of a body, and the memory that it takes.
struct ParsedBody {
    value: Value,
    memory: MemoryPermit,
}

impl List {
    /// Reads items of `T`.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<Vec<T>, ApiError> {
        self.0.read()
    }
}

/// Reads a value. An error names the path of the wrong part.
fn read<T: DeserializeOwned>(value: &Value) -> Result<T, ApiError> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        match path.as_str() {
            "." => ApiError::invalid(error.inner().to_string()),
            _ => ApiError::field(path, error.inner()),
        }
    })
}

/// The JSON value in a body, which may be any.
fn parse(bytes: &[u8]) -> Result<Value, ApiError> {
    // Clients may send nothing where all fields are optional.
    if bytes.is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    serde_json::from_slice(bytes)
        .map_err(|error| ApiError::invalid(format!("the body is not valid JSON: {error}")))
}

/// The number of values of a body, at most.
fn checked_num_values(bytes: &[u8]) -> Result<usize, ApiError> {
    let num_values = num_values(bytes);
    if num_values > MAX_VALUES {
        let message = format!("the body has more than {MAX_VALUES} values");
        return Err(ApiError::new(ApiErrorKind::TooLarge, message));
    }
    Ok(num_values)
}

impl Fields {
    /// The fields of a body.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Self, ApiError> {
        checked_num_values(bytes)?;
        Self::of(parse(bytes)?, None)
    }

    /// The fields of a form.
    pub(crate) fn of_form(fields: Map<String, Value>) -> Self {
        Self(ParsedBody { value: Value::Object(fields), memory: None }).with_integers()
    }

    /// Reads the fields of `T`. The others are ignored.
    pub(crate) fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        self.0.read()
    }

    /// Numbers such as `16.0` are integers, as JSON has one type of numbers only.
    fn with_integers(mut self) -> Self {
        if let Some(fields) = self.0.value.as_object_mut() {
            for (name, value) in fields {
                match value {
                    Value::Object(options) if OPTIONS.contains(&name.as_str()) => {
                        options.values_mut().for_each(make_integer);
                    }
                    Value::Array(adapters) if name == "lora" => make_members_integers(adapters),
                    value => make_integers(value),
                }
            }
        }
        self
    }

    /// Refuses fields that are not supported, and names the others that a route does not know in
    /// the log.
    pub(crate) fn check_known(&self, route: &str) -> Result<(), ApiError> {
        let Value::Object(fields) = &self.0.value else { return Ok(()) };
        refuse_unsupported(route, fields)?;
        note_unknown(route, fields);
        Ok(())
    }

    fn of(value: Value, memory: MemoryPermit) -> Result<Self, ApiError> {
        match value {
            value @ Value::Object(_) => Ok(Self(ParsedBody { value, memory }).with_integers()),
            _ => Err(ApiError::invalid("the body is not a JSON object")),
        }
    }
}

impl FromRequest<Arc<App>> for Fields {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let route = route(&request);
        let (value, memory) = receive_json(request, app).await?;
        in_place(memory.is_some(), || {
            let fields = Self::of(value, memory)?;
            fields.check_known(&route)?;
            Ok(fields)
        })
    }
}

impl FromRequest<Arc<App>> for List {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let (value, memory) = receive_json(request, app).await?;
        match value {
            Value::Array(mut items) => {
                make_members_integers(&mut items);
                Ok(Self(ParsedBody { value: Value::Array(items), memory }))
            }
            _ => Err(ApiError::invalid("the body is not a JSON array")),
        }
    }
}

/// The pattern of the route that takes a request, such as `/slots/{id}`.
pub(crate) fn route(request: &Request) -> String {
    request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str).to_owned()
}

/// Receives the JSON value in the body of a request. A large one waits for its memory.
async fn receive_json(request: Request, app: &App) -> Result<(Value, MemoryPermit), ApiError> {
    let body = receive(request, app).await?;
    let is_large = body.bytes.len() >= LARGE_BODY;
    let count = |body: ReceivedBody| checked_num_values(&body.bytes).map(|count| (count, body));
    let (num_values, body) = if is_large { aside(move || count(body)).await } else { count(body) }?;
    let memory = app.body_memory().parse(body.bytes.len(), num_values).await?;
    let value = match memory {
        Some(_) => aside(move || parse(&body.bytes)).await?,
        None => parse(&body.bytes)?,
    };
    Ok((value, memory))
}

impl ParsedBody {
    fn read<T: DeserializeOwned>(&self) -> Result<T, ApiError> {
        in_place(self.memory.is_some(), || read(&self.value))
    }
}

impl Drop for ParsedBody {
    fn drop(&mut self) {
        in_place(self.memory.is_some(), || self.value = Value::Null);
    }
}

/// Runs a function, which takes long for a large body. Another thread serves the sockets of this
/// one meanwhile, if the runtime has others.
fn in_place<T>(is_large: bool, run: impl FnOnce() -> T) -> T {
    let has_others = |runtime: Handle| runtime.runtime_flavor() == RuntimeFlavor::MultiThread;
    if is_large && Handle::try_current().is_ok_and(has_others) {
        block_in_place(run)
    } else {
        run()
    }
}

/// Runs a function beside the threads that serve sockets.
async fn aside<T: Send + 'static>(
    run: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    tokio::task::spawn_blocking(run).await.map_err(|error| ApiError::internal(&error))?
}

/// An upper bound of the number of values of a document, from its punctuation.
fn num_values(bytes: &[u8]) -> usize {
    let (mut values, mut in_text, mut is_escaped) = (1, false, false);
    for byte in bytes {
        match byte {
            _ if is_escaped => is_escaped = false,
            b'\\' => is_escaped = in_text,
            b'"' => in_text = !in_text,
            b',' | b':' | b'[' | b'{' if !in_text => values += 1,
            _ => {}
        }
    }
    values
}

/// Turns whole numbers into integers, also those in lists. Objects in lists may be schemas.
fn make_integers(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(make_integers),
        value => make_integer(value),
    }
}

/// Turns the whole numbers of objects into integers.
fn make_members_integers(objects: &mut [Value]) {
    let members = objects.iter_mut().filter_map(Value::as_object_mut).flat_map(Map::values_mut);
    members.for_each(make_integer);
}

/// Turns a whole number with a fraction or an exponent into an integer.
fn make_integer(value: &mut Value) {
    /// Above it, not all integers are floats.
    const MAX: f64 = 9_007_199_254_740_992.0;
    if let Some(float) = value.as_f64().filter(|_| value.is_f64())
        && float.fract() == 0.0
        && float.abs() <= MAX
    {
        *value = Value::from(float as i64);
    }
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
    fn whole_floats_are_integers() {
        let fields = Fields::parse(
            br#"{"a":16.0,"b":1e1,"c":16.5,"d":-0.0,"e":1e300,"options":{"f":2.0},"g":[[1.0]],
                "lora":[{"id":1.0}],"tools":[{"minimum":1.0}]}"#,
        );
        let text = fields.unwrap().0.value.to_string();
        let expected = concat!(
            r#"{"a":16,"b":10,"c":16.5,"d":0,"e":1e+300,"options":{"f":2},"g":[[1]],"#,
            r#""lora":[{"id":1}],"tools":[{"minimum":1.0}]}"#,
        );
        assert_eq!(text, expected);
    }

    #[test]
    fn bodies_with_too_many_values_are_not_parsed() {
        let body = |count: usize| format!("{{\"zzz\":[0{}]}}", ",0".repeat(count));
        assert!(Fields::parse(body(MAX_VALUES - 10).as_bytes()).is_ok());
        let error = Fields::parse(body(MAX_VALUES).as_bytes()).err().unwrap();
        assert_eq!(error.kind, ApiErrorKind::TooLarge);
        // Text counts as one value.
        let text = format!("{{\"a\":\"{}\\\"\"}}", ",[{:".repeat(MAX_VALUES));
        assert!(Fields::parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn only_objects_are_bodies() {
        assert!(Fields::parse(b"").unwrap().read::<Outer>().is_ok());
        for bad in [&b"[]"[..], b"{", b"{\"a\":\xff}", b"nul", &[b'['; 1000]] {
            assert_eq!(Fields::parse(bad).err().unwrap().kind, ApiErrorKind::InvalidRequest);
        }
    }
}
