//! Pictures and sounds in requests: their bytes, and the marks that stand for them in messages.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
use rocmforge::messages::{Conversation, Message};
use rocmforge::{Media, MediaKind, media_marker};
use serde_json::Value;

use crate::error::ApiError;

/// A picture or a sound of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Attachment {
    Sent(Media),
    /// A URL of a picture in the web, and the field with it.
    Url {
        url: String,
        path: String,
    },
}

impl Attachment {
    /// Bytes that it occupies.
    pub(crate) fn bytes(&self) -> usize {
        match self {
            Self::Sent(file) => file.bytes().len(),
            Self::Url { url, path } => url.len() + path.len(),
        }
    }

    /// Whether the file is a picture or a sound.
    pub(crate) fn kind(&self) -> MediaKind {
        match self {
            Self::Sent(file) => file.kind(),
            Self::Url { .. } => MediaKind::Image,
        }
    }
}

/// Messages, with their pictures and sounds in their order. Each message has marks for its own.
#[derive(Clone, Debug, Default)]
pub(crate) struct IllustratedMessages {
    pub(crate) messages: Vec<Message>,
    pub(crate) attachments: Vec<Attachment>,
}

/// A conversation, with the pictures and sounds of its messages in their order. Each message has
/// marks for its own.
pub(crate) struct IllustratedConversation {
    pub(crate) conversation: Conversation,
    pub(crate) attachments: Vec<Attachment>,
    /// The field of the request that has the messages, for errors.
    pub(crate) field: &'static str,
}

impl From<Conversation> for IllustratedConversation {
    fn from(conversation: Conversation) -> Self {
        Self { conversation, attachments: Vec::new(), field: "messages" }
    }
}

impl IllustratedConversation {
    /// The conversation, for an endpoint that reads text only.
    pub(crate) fn into_text(self) -> Result<Conversation, ApiError> {
        match self.attachments.as_slice() {
            [] => Ok(self.conversation),
            _ => Err(ApiError::field(
                self.field,
                "pictures and sounds cannot be read here: send text",
            )),
        }
    }
}

/// The texts of the parts of a message, of which pictures and sounds have marks instead. Texts
/// after one another are on lines of their own where `lines` is true.
pub(crate) struct MarkedText {
    pub(crate) text: String,
    lines: bool,
    after_mark: bool,
}

impl MarkedText {
    pub(crate) fn new(lines: bool) -> Self {
        Self { text: String::new(), lines, after_mark: false }
    }

    pub(crate) fn push(&mut self, text: &str) {
        if self.lines && !self.text.is_empty() && !self.after_mark {
            self.text.push('\n');
        }
        self.text.push_str(text);
        self.after_mark = false;
    }

    pub(crate) fn push_mark(&mut self) {
        self.text.push_str(media_marker());
        self.after_mark = true;
    }
}

/// The picture of a value of `image_url`: a text, or an object with a `url`.
pub(crate) fn from_url(value: Option<&Value>, path: &str) -> Result<Attachment, ApiError> {
    let url = value.and_then(|value| value.as_str().or_else(|| value.get("url")?.as_str()));
    let Some(url) = url else {
        return Err(ApiError::field(format!("{path}.image_url"), "expected an object with a url"));
    };
    let path = format!("{path}.image_url.url");
    let Some((scheme, rest)) = url.split_once(':') else { return from_base64(url, &path) };
    if !scheme.eq_ignore_ascii_case("data") {
        return Ok(Attachment::Url { url: url.to_owned(), path });
    }
    match rest.split_once(',') {
        Some((media, data)) if media.starts_with("image/") && media.ends_with(";base64") => {
            from_base64(data, &path)
        }
        _ => Err(ApiError::field(path, "expected data:image/TYPE;base64,DATA")),
    }
}

/// The picture of a `source` in the form of Anthropic.
pub(crate) fn from_source(source: Option<&Value>, path: &str) -> Result<Attachment, ApiError> {
    let field = |name: &str| source.and_then(|source| source.get(name)).and_then(Value::as_str);
    let path = format!("{path}.source");
    let missing = |name: &str| ApiError::field(format!("{path}.{name}"), "expected a string");
    match field("type") {
        Some("base64") => {
            let data = field("data").ok_or_else(|| missing("data"))?;
            from_base64(data, &format!("{path}.data"))
        }
        Some("url") => {
            let url = field("url").ok_or_else(|| missing("url"))?;
            Ok(Attachment::Url { url: url.to_owned(), path: format!("{path}.url") })
        }
        _ => Err(ApiError::field(format!("{path}.type"), "expected base64 or url")),
    }
}

/// The picture of base64 text.
pub(crate) fn from_base64(data: &str, path: &str) -> Result<Attachment, ApiError> {
    Ok(Attachment::Sent(Media::image(decoded(data, path, "the picture")?)))
}

/// The sound of a value of `input_audio`: base64 text in `data`, or a data URL there. Its format
/// follows from its first bytes.
pub(crate) fn from_audio(value: Option<&Value>, path: &str) -> Result<Attachment, ApiError> {
    let path = format!("{path}.input_audio.data");
    let data = value.and_then(|value| value.get("data")).and_then(Value::as_str);
    let data =
        data.ok_or_else(|| ApiError::field(&*path, "expected base64 of a WAV or MP3 file"))?;
    let data = match data.strip_prefix("data:audio/").and_then(|rest| rest.split_once(";base64,")) {
        Some((_, data)) => data,
        None => data,
    };
    Ok(Attachment::Sent(Media::audio(decoded(data, &path, "the sound")?)))
}

fn decoded(data: &str, path: &str, what: &str) -> Result<Vec<u8>, ApiError> {
    let data = data.trim();
    let decoded = STANDARD.decode(data).or_else(|_| STANDARD_NO_PAD.decode(data));
    match decoded {
        Ok(bytes) if !bytes.is_empty() => Ok(bytes),
        Ok(_) => Err(ApiError::field(path, format!("{what} is empty"))),
        Err(error) => Err(ApiError::field(path, format!("{what} is not base64: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(result: Result<Attachment, ApiError>) -> String {
        result.map_or_else(|error| error.message, |_| String::new())
    }

    #[test]
    fn data_urls_and_base64_are_pictures_and_other_urls_are_names() {
        let image = Attachment::Sent(Media::image(vec![1, 2, 3]));
        for url in ["data:image/png;base64,AQID", "DATA:image/x;base64,AQID", "AQID"] {
            assert_eq!(from_url(Some(&json!({ "url": url })), "p").ok(), Some(image.clone()));
            assert_eq!(from_url(Some(&json!(url)), "p").ok(), Some(image.clone()));
        }
        for (url, expected) in [
            ("data:text/plain;base64,AQID", "expected data:image"),
            ("data:image/png,AQID", "expected data:image"),
            ("data:image/png;base64,*", "not base64"),
            ("data:image/png;base64,", "empty"),
        ] {
            let problem = problem(from_url(Some(&json!(url)), "p"));
            assert!(problem.contains(expected), "{url}: {problem}");
        }
        assert!(problem(from_url(None, "p")).contains("expected an object"));
        let url = "https://example.com/a.png".to_owned();
        let named = Attachment::Url { url: url.clone(), path: "p.image_url.url".to_owned() };
        assert_eq!(from_url(Some(&json!(url)), "p").ok(), Some(named));
    }

    #[test]
    fn sources_have_the_picture_or_its_url() {
        let source = json!({ "type": "base64", "media_type": "image/png", "data": "AQID" });
        let image = Attachment::Sent(Media::image(vec![1, 2, 3]));
        assert_eq!(from_source(Some(&source), "p").ok(), Some(image));
        let url = json!({ "type": "url", "url": "https://example.com/a.png" });
        let path = "p.source.url".to_owned();
        let named = Attachment::Url { url: "https://example.com/a.png".to_owned(), path };
        assert_eq!(from_source(Some(&url), "p").ok(), Some(named));
        assert!(problem(from_source(Some(&json!({ "type": "url" })), "p")).contains("string"));
        assert!(
            problem(from_source(Some(&json!({ "type": "file" })), "p")).contains("base64 or url")
        );
        assert!(problem(from_source(Some(&json!({ "type": "base64" })), "p")).contains("string"));
    }

    #[test]
    fn sounds_are_base64_or_data_urls() {
        let sound = Attachment::Sent(Media::audio(vec![1, 2, 3]));
        for data in ["AQID", "data:audio/wav;base64,AQID"] {
            let value = json!({ "data": data, "format": "wav" });
            assert_eq!(from_audio(Some(&value), "p").ok(), Some(sound.clone()));
        }
        for (value, expected) in [
            (json!({}), "expected base64"),
            (json!({ "data": "" }), "the sound is empty"),
            (json!({ "data": "*" }), "the sound is not base64"),
        ] {
            let problem = problem(from_audio(Some(&value), "p"));
            assert!(problem.contains(expected), "{value}: {problem}");
        }
    }

    #[test]
    fn texts_are_on_lines_of_their_own_and_marks_within_lines() {
        let mark = media_marker();
        let mut text = MarkedText::new(true);
        text.push("a");
        text.push("b");
        text.push_mark();
        text.push("c");
        assert_eq!(text.text, format!("a\nb{mark}c"));
    }
}
