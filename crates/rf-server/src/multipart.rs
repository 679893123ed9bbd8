//! Bodies of `multipart/form-data` (RFC 7578): the fields and the files of a form.

use axum::body::Bytes;
use axum::extract::{FromRequest, Request};
use axum::http::header::CONTENT_TYPE;
use memchr::memmem;
use serde_json::{Map, Value};
use std::sync::Arc;

use crate::body::{Fields, ReceivedBody, receive, route};
use crate::error::{ApiError, ApiErrorKind};
use crate::state::App;

/// The most parts of a form.
const MAX_PARTS: usize = 64;
/// The most bytes of the boundary between parts, by RFC 2046.
const MAX_BOUNDARY: usize = 70;
/// Fields whose values are texts, even those that look like numbers.
const TEXTS: [&str; 5] = ["model", "prompt", "language", "response_format", "stop"];

/// A form: the fields as an object of JSON, and its files.
pub(crate) struct Form {
    pub(crate) fields: Fields,
    files: Vec<Part>,
    /// The memory of the files.
    _body: ReceivedBody,
}

impl Form {
    /// The bytes of the file of this name, and the error where there is none.
    pub(crate) fn file(&self, name: &str) -> Result<Vec<u8>, ApiError> {
        let file = self.files.iter().find(|file| file.name == name);
        match file {
            Some(file) if !file.data.is_empty() => Ok(file.data.to_vec()),
            Some(_) => Err(ApiError::field(name, "the file is empty")),
            None => Err(ApiError::field(name, "expected a file in the form")),
        }
    }

    fn parse(body: ReceivedBody, boundary: &str) -> Result<Self, ApiError> {
        let (mut fields, mut files) = (Map::new(), Vec::new());
        for part in parts(&body.bytes, boundary)? {
            if part.is_file {
                files.push(part);
                continue;
            }
            // Clients write the brackets after the names of lists.
            let (name, is_list) = match part.name.strip_suffix("[]") {
                Some(name) => (name, true),
                None => (&*part.name, false),
            };
            let text = str::from_utf8(&part.data)
                .map_err(|_| ApiError::field(name, "expected text in UTF-8"))?;
            let value = value(name, text);
            if !is_list {
                fields.insert(name.to_owned(), value);
            } else if let Value::Array(list) =
                fields.entry(name).or_insert_with(|| Value::Array(Vec::new()))
            {
                list.push(value);
            }
        }
        Ok(Self { fields: Fields::of_form(fields), files, _body: body })
    }
}

impl FromRequest<Arc<App>> for Form {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &Arc<App>) -> Result<Self, ApiError> {
        let content_type =
            request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let Some(boundary) = content_type.and_then(boundary) else {
            let message = "expected a form with a file: `content-type: multipart/form-data` with \
                           its boundary";
            return Err(ApiError::new(ApiErrorKind::MediaType, message));
        };
        let route = route(&request);
        let form = Self::parse(receive(request, app).await?, &boundary)?;
        form.fields.check_known(&route)?;
        Ok(form)
    }
}

/// A field or a file.
struct Part {
    name: String,
    is_file: bool,
    data: Bytes,
}

/// Reads numbers and truth values, which forms send as text.
fn value(name: &str, text: &str) -> Value {
    let scalar = || serde_json::from_str(text).ok().filter(|value: &Value| !value.is_string());
    let is_text = TEXTS.contains(&name);
    (!is_text).then(scalar).flatten().unwrap_or_else(|| Value::from(text))
}

/// The boundary that the content type of a form names.
fn boundary(content_type: &str) -> Option<String> {
    let (essence, rest) = content_type.split_once(';')?;
    if !essence.trim().eq_ignore_ascii_case("multipart/form-data") {
        return None;
    }
    let boundary = parameter(rest, "boundary")?;
    (1..=MAX_BOUNDARY).contains(&boundary.len()).then_some(boundary)
}

/// The value of a parameter in `a=b; c="d \" e"`.
fn parameter(mut rest: &str, wanted: &str) -> Option<String> {
    while let Some((name, after)) = rest.split_once('=') {
        let mut value = String::new();
        let end = if let Some(quoted) = after.strip_prefix('"') {
            let mut characters = quoted.char_indices();
            loop {
                match characters.next()? {
                    (at, '"') => break at + 2,
                    (_, '\\') => value.push(characters.next()?.1),
                    (_, character) => value.push(character),
                }
            }
        } else {
            let end = after.find(';').unwrap_or(after.len());
            value.push_str(after[..end].trim());
            end
        };
        if name.trim_matches([';', ' ', '\t']).eq_ignore_ascii_case(wanted) {
            return Some(value);
        }
        rest = &after[end..];
    }
    None
}

/// Splits a body at its boundaries.
fn parts(body: &Bytes, boundary: &str) -> Result<Vec<Part>, ApiError> {
    let wrong = |what: &str| ApiError::invalid(format!("the form is not valid: {what}"));
    let delimiter = format!("\r\n--{boundary}");
    let finder = memmem::Finder::new(&delimiter);
    // The first boundary may begin the body.
    let first = &delimiter.as_bytes()[2..];
    let mut at = if body.starts_with(first) {
        first.len()
    } else {
        finder.find(body).ok_or_else(|| wrong("its boundary is missing"))? + delimiter.len()
    };
    let mut parts = Vec::new();
    while !body[at..].starts_with(b"--") {
        if parts.len() == MAX_PARTS {
            return Err(wrong(&format!("it has more than {MAX_PARTS} parts")));
        }
        let blanks = body[at..].iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let start = at + blanks;
        // The header of a part ends with an empty line.
        if !body[start..].starts_with(b"\r\n") {
            return Err(wrong("a boundary does not end its line"));
        }
        let length = finder.find(&body[start..]).ok_or_else(|| wrong("its end is missing"))?;
        let part = body.slice(start..start + length);
        let header =
            memmem::find(&part, b"\r\n\r\n").ok_or_else(|| wrong("a part has no header"))?;
        let lines = str::from_utf8(&part[..header]).map_err(|_| wrong("a header is not UTF-8"))?;
        let disposition = lines.split("\r\n").find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.trim().eq_ignore_ascii_case("content-disposition").then_some(value)
        });
        // What precedes the first parameter is the word `form-data`.
        let parameters = disposition.and_then(|value| value.split_once(';')).unwrap_or_default().1;
        let name = parameter(parameters, "name").ok_or_else(|| wrong("a part has no name"))?;
        let is_file = parameter(parameters, "filename").is_some();
        parts.push(Part { name, is_file, data: part.slice(header + 4..) });
        at = start + length + delimiter.len();
    }
    Ok(parts)
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    const FORM: &str = "preamble\r\n--b\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\n7\
        \r\n--b \r\ncontent-disposition: form-data; name=temperature\r\n\r\n0.5\
        \r\n--b\r\nContent-Disposition: form-data; name=\"include[]\"\r\n\r\nlogprobs\
        \r\n--b\r\nContent-Type: audio/wav\r\nContent-Disposition: form-data; \
        filename=\"a \\\"b\\\"; name=c.wav\"; name=\"file\"\r\n\r\n\0\r\n--\r\n\
        \r\n--b--\r\nepilogue";

    #[derive(Deserialize)]
    struct Read {
        model: String,
        temperature: f32,
        include: Vec<String>,
    }

    fn problem(form: &str) -> String {
        let form = Form::parse(Bytes::copy_from_slice(form.as_bytes()).into(), "b");
        form.err().map_or_else(String::new, |error| error.message)
    }

    #[test]
    fn a_form_has_fields_and_files() {
        let form = Form::parse(Bytes::from_static(FORM.as_bytes()).into(), "b").unwrap();
        let fields: Read = form.fields.read().unwrap();
        assert_eq!((&*fields.model, fields.temperature), ("7", 0.5));
        assert_eq!(fields.include, ["logprobs"]);
        assert_eq!(form.file("file").unwrap(), b"\0\r\n--\r\n");
        let missing = form.file("image").unwrap_err();
        assert_eq!(missing.param.as_deref(), Some("image"));
    }

    #[test]
    fn every_cut_of_a_form_is_an_error() {
        let end = FORM.find("--b--").unwrap() + "--b".len();
        for length in 0..end {
            assert!(problem(&FORM[..length]).starts_with("the form is not valid"), "{length}");
        }
        for (form, expected) in [
            ("--bad\r\n", "does not end its line"),
            ("--b\r\nContent-Disposition: form-data\r\n\r\n\r\n--b--", "has no name"),
            ("--b\r\nContent-Disposition: form-data; name=\"a\r\n\r\n\r\n--b--", "has no name"),
            ("--b\r\n\r\n--b--", "has no header"),
        ] {
            assert!(problem(form).contains(expected), "{form}: {}", problem(form));
        }
        let part = "--b\r\nContent-Disposition: form-data; name=a\r\n\r\n\r\n";
        let many = format!("{}--b--", part.repeat(MAX_PARTS + 1));
        assert!(problem(&many).contains("more than 64 parts"));
        assert_eq!(problem(&format!("{}--b--", part.repeat(MAX_PARTS))), "");
    }

    #[test]
    fn the_boundary_is_a_parameter_of_the_content_type() {
        for (content_type, expected) in [
            ("multipart/form-data; boundary=a-b", Some("a-b")),
            ("Multipart/Form-Data;charset=\"x;boundary=y\"; BOUNDARY=\"a b\"", Some("a b")),
            ("multipart/form-data", None),
            ("multipart/form-data; boundary=", None),
            ("multipart/form-data; boundary=\"a", None),
            ("application/json; boundary=a", None),
        ] {
            assert_eq!(boundary(content_type).as_deref(), expected, "{content_type}");
        }
        let long = format!("multipart/form-data; boundary={}", "a".repeat(MAX_BOUNDARY + 1));
        assert_eq!(boundary(&long), None);
    }
}
