//! An argument whose text has no quotes, converted to JSON by its schema.

use serde_json::Value as Json;

use super::json::push_json_char;
use super::sink::Sink;
use crate::tool::Tool;

/// The deepest chain of references that is followed.
const MAX_REFERENCES: usize = 16;

/// A value being read. Strings are passed on as they come, others are collected, because only
/// their whole text tells whether they are what the schema says.
#[derive(Debug)]
pub(super) struct ValueReader {
    types: Types,
    text: String,
}

impl ValueReader {
    /// A value of a tool's argument: the tool, if it is known, and the argument's schema, if the
    /// tool has the argument.
    pub(super) fn new(schema: Option<(&Tool, Option<&Json>)>) -> Self {
        let types = match schema {
            Some((tool, Some(schema))) => Types::of(schema, &tool.parameters),
            // As the templates write strings without quotes, text is most likely one.
            _ => Types::TEXT,
        };
        Self { types, text: String::new() }
    }

    /// A text.
    pub(super) fn text() -> Self {
        Self { types: Types::TEXT, text: String::new() }
    }

    /// A value that the model marked as JSON. Only a schema of texts alone makes it one.
    pub(super) fn json(schema: Option<(&Tool, Option<&Json>)>) -> Self {
        let types = match schema {
            Some((tool, Some(schema))) => Types::of(schema, &tool.parameters),
            _ => Types::ANY,
        };
        Self { types, text: String::new() }
    }

    /// Before the first character.
    pub(super) fn begin(&self, sink: &mut Sink) {
        if self.types.is_text() {
            sink.argument('"');
        }
    }

    /// A character of the value.
    pub(super) fn push(&mut self, c: char, sink: &mut Sink) {
        if self.types.is_text() {
            let mut json = String::new();
            push_json_char(c, &mut json);
            sink.arguments(&json);
        } else {
            self.text.push(c);
        }
    }

    /// At the end of a text in which the value does not end.
    pub(super) fn cut_off(&self, sink: &mut Sink) {
        if !self.types.is_text() && !self.text.is_empty() {
            sink.arguments(&self.types.json(&self.text));
        }
    }

    /// After the last character.
    pub(super) fn end(&self, sink: &mut Sink) {
        if self.types.is_text() {
            sink.argument('"');
        } else {
            sink.arguments(&self.types.json(&self.text));
        }
    }
}

/// The JSON types that a schema allows: a set of bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Types(u8);

impl Types {
    const NONE: Self = Self(0);
    const TEXT: Self = Self(1);
    const NULL: Self = Self(2);
    const BOOLEAN: Self = Self(4);
    const NUMBER: Self = Self(8);
    const OBJECT: Self = Self(16);
    const ARRAY: Self = Self(32);
    const ANY: Self = Self(63);

    fn is_text(self) -> bool {
        self == Self::TEXT
    }

    fn allow_text(self) -> bool {
        self.or(Self::TEXT) == self
    }

    /// The types that `schema` allows; `root` is the schema that its references refer to.
    fn of(schema: &Json, root: &Json) -> Self {
        Self::within(schema, root, MAX_REFERENCES)
    }

    fn within(schema: &Json, root: &Json, depth: usize) -> Self {
        let Some(depth) = depth.checked_sub(1) else { return Self::ANY };
        if let Some(reference) = schema.get("$ref").and_then(Json::as_str) {
            let target = reference.strip_prefix('#').and_then(|pointer| root.pointer(pointer));
            return target.map_or(Self::ANY, |target| Self::within(target, root, depth));
        }
        let any_of = |schemas: &[Json]| {
            let types = schemas.iter().map(|schema| Self::within(schema, root, depth));
            types.fold(Self::NONE, Self::or)
        };
        if let Some(value) = schema.get("const") {
            return Self::of_value(value);
        }
        if let Some(Json::Array(values)) = schema.get("enum") {
            return values.iter().map(Self::of_value).fold(Self::NONE, Self::or);
        }
        match schema.get("type") {
            Some(Json::String(name)) => return Self::named(name),
            Some(Json::Array(names)) => {
                let names = names.iter().filter_map(Json::as_str);
                return names.map(Self::named).fold(Self::NONE, Self::or);
            }
            _ => {}
        }
        for key in ["anyOf", "oneOf", "allOf"] {
            if let Some(Json::Array(schemas)) = schema.get(key) {
                return any_of(schemas);
            }
        }
        if schema.get("properties").is_some() {
            return Self::named("object");
        }
        if schema.get("items").is_some() { Self::named("array") } else { Self::ANY }
    }

    fn named(name: &str) -> Self {
        match name {
            "string" => Self::TEXT,
            "null" => Self::NULL,
            "boolean" => Self::BOOLEAN,
            "number" | "integer" => Self::NUMBER,
            "object" => Self::OBJECT,
            "array" => Self::ARRAY,
            _ => Self::ANY,
        }
    }

    fn of_value(value: &Json) -> Self {
        Self::named(match value {
            Json::Null => "null",
            Json::Bool(_) => "boolean",
            Json::Number(_) => "number",
            Json::String(_) => "string",
            Json::Array(_) => "array",
            Json::Object(_) => "object",
        })
    }

    fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    fn allow(self, value: &Json) -> bool {
        self.or(Self::of_value(value)) == self
    }

    /// `text` as JSON: as it is if it is JSON of an allowed type, otherwise as a string.
    fn json(self, text: &str) -> String {
        let trimmed = text.trim();
        let words = match trimmed {
            // Templates in Python write these.
            "True" => Some(Json::Bool(true)),
            "False" => Some(Json::Bool(false)),
            "None" => Some(Json::Null),
            _ => None,
        };
        if let Some(word) = words.filter(|word| self.allow(word)) {
            return word.to_string();
        }
        match serde_json::from_str::<Json>(trimmed) {
            Ok(value) if self.allow(&value) && !value.is_string() => trimmed.to_owned(),
            // Text that may be a string is one; text that must not be is JSON, if it can be.
            Ok(value) if !self.allow_text() && !value.is_string() => trimmed.to_owned(),
            _ => Json::from(text).to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn text_becomes_what_the_schema_allows() {
        let root = json!({"$defs": {"n": {"type": "integer"}, "loop": {"$ref": "#/$defs/loop"}}});
        for (schema, text, expected) in [
            (json!({"type": "string"}), "5", r#""5""#),
            (json!({"type": "integer"}), " 5 ", "5"),
            (json!({"type": "integer"}), "five", r#""five""#),
            (json!({"type": ["string", "integer"]}), "5", "5"),
            (json!({"type": ["string", "null"]}), "null", "null"),
            (json!({"type": ["string", "null"]}), "5", r#""5""#),
            (json!({"type": "boolean"}), "True", "true"),
            (json!({"type": "boolean"}), "None", r#""None""#),
            (json!({"$ref": "#/$defs/n"}), "7", "7"),
            (json!({"$ref": "#/$defs/loop"}), "7", "7"),
            (json!({"$ref": "http://example.com/x"}), "x", r#""x""#),
            (json!({"enum": ["1", "2"]}), "1", r#""1""#),
            (json!({"anyOf": [{"type": "number"}, {"type": "string"}]}), "x\ny", r#""x\ny""#),
            (json!({"type": "array"}), "[1, \"a\"]", "[1, \"a\"]"),
            (json!({"type": "object"}), "{\"a\": 1", r#""{\"a\": 1""#),
            (json!({}), "[1]", "[1]"),
            (json!({"properties": {}}), "{}", "{}"),
        ] {
            let types = Types::of(&schema, &root);
            assert_eq!(types.json(text), expected, "{schema} {text}");
        }
    }
}
