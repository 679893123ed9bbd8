//! Schemas as the matcher reads them.

use serde_json::{Value, json};

use super::parts::{children, children_mut};

/// The formats that the matcher enforces. All others are annotations.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// White space between two parts of JSON: at most one blank. Models write `{"a": 1, "b": 2}`; where
/// more is allowed, a small one spends its budget on it.
const SPACE: &str = "[ ]";
/// The definition that holds the whole schema of a part.
const ROOT: &str = "#/$defs/root";

/// The use of a schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The form of an answer. Keywords that are not supported are an error.
    Answer,
    /// The arguments of a tool, whose schema its user cannot change. Keywords that are not
    /// supported are left out.
    Arguments,
}

/// The schema with the options of the conversion, and without the formats that are annotations.
pub(crate) fn prepared(schema: &Value, purpose: Purpose) -> Value {
    let mut schema = schema.clone();
    remove_annotations(&mut schema);
    if let Some(object) = schema.as_object_mut() {
        let options = json!({
            "whitespace_pattern": SPACE,
            "coerce_one_of": true,
            "lenient": purpose == Purpose::Arguments,
        });
        object.insert("x-guidance".to_owned(), options);
    }
    schema
}

fn remove_annotations(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        let is_annotation =
            |format: &Value| format.as_str().is_some_and(|format| !FORMATS.contains(&format));
        if object.get("format").is_some_and(is_annotation) {
            object.shift_remove("format");
        }
    }
    children_mut(schema).into_iter().for_each(remove_annotations);
}

/// A part of a schema as a separate schema: references to the whole still find it.
pub(crate) fn part_of(part: &Value, root: &Value) -> Value {
    let mut part = part.clone();
    if !has_references(&part) {
        return part;
    }
    move_references(&mut part);
    let mut root = root.clone();
    move_references(&mut root);
    if let Some(object) = part.as_object_mut() {
        if let Some(draft) = root.get("$schema") {
            object.insert("$schema".to_owned(), draft.clone());
        }
        object.insert("$defs".to_owned(), json!({ "root": root }));
    }
    part
}

/// Returns true if a schema has references to the whole that it is a part of.
pub(crate) fn has_references(schema: &Value) -> bool {
    schema.get("$ref").is_some() || children(schema).iter().any(|(_, child)| has_references(child))
}

fn move_references(schema: &mut Value) {
    if let Some(Value::String(reference)) = schema.get_mut("$ref")
        && let Some(pointer) = reference.strip_prefix('#')
    {
        *reference = format!("{ROOT}{}", if pointer == "/" { "" } else { pointer });
    }
    children_mut(schema).into_iter().for_each(move_references);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_of_a_part_find_the_whole() {
        let root = json!({
            "properties": { "$ref": { "items": { "$ref": "#" } }, "b": { "type": "string" } },
            "default": { "$ref": "#/x" },
        });
        let part = &root["properties"]["$ref"];
        assert_eq!(
            part_of(part, &root),
            json!({ "items": { "$ref": "#/$defs/root" }, "$defs": { "root": {
                "properties": {
                    "$ref": { "items": { "$ref": "#/$defs/root" } }, "b": { "type": "string" },
                },
                "default": { "$ref": "#/x" },
            }}})
        );
        assert_eq!(part_of(&root["properties"]["b"], &root), json!({ "type": "string" }));
    }

    #[test]
    fn unknown_formats_are_annotations() {
        let schema = json!({
            "properties": {
                "format": { "format": "password" },
                "b": { "anyOf": [{ "format": "int32" }, { "format": "date" }] },
            },
            "const": { "format": "password" },
        });
        let prepared = prepared(&schema, Purpose::Answer);
        assert_eq!(prepared["properties"]["format"], json!({}));
        assert_eq!(prepared["properties"]["b"], json!({ "anyOf": [{}, { "format": "date" }] }));
        assert_eq!(prepared["const"], schema["const"]);
        assert_eq!(prepared["x-guidance"]["lenient"], false);
    }
}
