//! Schemas as the matcher reads them.

use std::collections::BTreeSet;
use std::sync::{Mutex, PoisonError};

use llguidance::derivre::RegexBuilder;
use llguidance::panic_utils::catch_unwind;
use llguidance::regex_to_lark;
use serde_json::{Value, json};

use super::parts::{children, children_mut, target};

/// The formats that the matcher enforces. All others are annotations.
const FORMATS: [&str; 10] =
    ["date-time", "time", "date", "duration", "email", "hostname", "ipv4", "ipv6", "uuid", "uri"];
/// Keywords that the matcher leaves out of the parameters of tools.
const LEFT_OUT: [&str; 18] = [
    "$dynamicAnchor",
    "$dynamicRef",
    "$recursiveAnchor",
    "$recursiveRef",
    "contains",
    "dependencies",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxContains",
    "minContains",
    "not",
    "propertyNames",
    "then",
    "unevaluatedItems",
    "unevaluatedProperties",
    "uniqueItems",
];
/// Keywords without effect unless another one is present.
const COMPANIONS: [(&str, &str); 4] =
    [("then", "if"), ("else", "if"), ("minContains", "contains"), ("maxContains", "contains")];
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

/// The schema with the options of the conversion, and without keywords that have no effect. In the
/// parameters of tools, patterns and references that are not supported are left out.
pub(crate) fn prepared(schema: &Value, purpose: Purpose) -> Value {
    let mut schema = schema.clone();
    remove_annotations(&mut schema);
    if purpose == Purpose::Arguments {
        remove_patterns(&mut schema);
        if has_references(&schema) {
            let root = schema.clone();
            open_references(&mut schema, &root);
        }
    }
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
        for (keyword, companion) in COMPANIONS {
            if !object.contains_key(companion) {
                object.shift_remove(keyword);
            }
        }
    }
    children_mut(schema).into_iter().for_each(remove_annotations);
}

/// Removes patterns that the matcher lacks, such as those with look-around.
fn remove_patterns(schema: &mut Value) {
    if let Some(object) = schema.as_object_mut() {
        let pattern = object.get("pattern").and_then(Value::as_str);
        if pattern.is_some_and(|pattern| !is_supported(pattern)) {
            object.shift_remove("pattern");
            name_left_out("pattern");
        }
        if let Some(Value::Object(patterns)) = object.get_mut("patternProperties") {
            let count = patterns.len();
            patterns.retain(|pattern, _| is_supported(pattern));
            if patterns.len() < count {
                // The names that would match are not known, so none is an additional one.
                object.shift_remove("additionalProperties");
                name_left_out("patternProperties");
            }
        }
    }
    children_mut(schema).into_iter().for_each(remove_patterns);
}

/// Returns true if the matcher can read a regular expression.
fn is_supported(pattern: &str) -> bool {
    let pattern = regex_to_lark(pattern, "dw");
    catch_unwind(|| RegexBuilder::new().mk_regex_for_serach(&pattern)).is_ok()
}

/// Removes references that lead nowhere, so that they allow any value.
fn open_references(schema: &mut Value, root: &Value) {
    if let Some(object) = schema.as_object_mut() {
        let reference = object.get("$ref").and_then(Value::as_str);
        if reference.is_some_and(|reference| target(root, reference).is_none()) {
            object.shift_remove("$ref");
            name_left_out("$ref");
        }
    }
    for child in children_mut(schema) {
        open_references(child, root);
    }
}

/// Names the keywords of a warning of the matcher in the log.
pub(crate) fn name_warning(warning: &str) {
    tracing::debug!(warning, "a part of a schema is not enforced");
    let is_named = |keyword: &&str| warning.contains(&format!("{keyword:?}"));
    LEFT_OUT.into_iter().filter(is_named).for_each(name_left_out);
    if warning.starts_with("oneOf ") {
        name_left_out("oneOf");
    } else if warning.starts_with("min/maxProperties ") {
        name_left_out("minProperties, maxProperties");
    }
}

/// Names a keyword in the log, once per process.
fn name_left_out(keyword: &'static str) {
    static NAMED: Mutex<BTreeSet<&str>> = Mutex::new(BTreeSet::new());
    if NAMED.lock().unwrap_or_else(PoisonError::into_inner).insert(keyword) {
        tracing::warn!(keyword, "a keyword of the schema of a tool is not enforced");
    }
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
    use std::fmt::{Debug, Write as _};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;

    /// Collects the events of a thread: `level field=value …`.
    struct Events(Mutex<Vec<String>>);

    struct Fields<'a>(&'a mut String);

    impl Visit for Fields<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            write!(self.0, " {field}={value:?}").unwrap();
        }
    }

    impl Subscriber for Events {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, _: &Attributes<'_>) -> Id {
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, _: &Record<'_>) {}

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, event: &Event<'_>) {
            let mut text = event.metadata().level().to_string();
            event.record(&mut Fields(&mut text));
            self.0.lock().unwrap().push(text);
        }

        fn enter(&self, _: &Id) {}

        fn exit(&self, _: &Id) {}
    }

    #[test]
    fn the_log_names_a_keyword_once() {
        let events = std::sync::Arc::new(Events(Mutex::default()));
        tracing::subscriber::with_default(std::sync::Arc::clone(&events), || {
            for _ in 0..2 {
                name_warning(r#"Unimplemented keys: ["$recursiveRef", "dependencies"] (2 times)"#);
            }
        });
        let events = events.0.lock().unwrap();
        let warnings: Vec<_> = events.iter().filter(|event| event.starts_with("WARN")).collect();
        let message = "message=a keyword of the schema of a tool is not enforced keyword";
        assert_eq!(
            warnings,
            [
                &format!("WARN {message}=\"$recursiveRef\""),
                &format!("WARN {message}=\"dependencies\""),
            ]
        );
    }

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
    fn tools_lose_patterns_and_references_that_are_not_supported() {
        let schema = json!({
            "properties": {
                "mail": { "type": "string", "pattern": r"^(?!\.)(?!.*\.\.)[a-z.]+@[a-z]+$" },
                "code": { "pattern": r"^[A-Z]{2}\d+$" },
                "map": {
                    "patternProperties": { "^(?!x)": { "type": "null" }, "^x": {} },
                    "additionalProperties": false,
                },
                "far": { "$ref": "https://example.com/a.json", "title": "a" },
                "none": { "items": { "$ref": "#/$defs/none" } },
                "near": { "$ref": "#/properties/code" },
            },
        });
        let tool = prepared(&schema, Purpose::Arguments);
        assert_eq!(tool["properties"]["mail"], json!({ "type": "string" }));
        assert_eq!(tool["properties"]["map"], json!({ "patternProperties": { "^x": {} } }));
        assert_eq!(tool["properties"]["far"], json!({ "title": "a" }));
        assert_eq!(tool["properties"]["none"], json!({ "items": {} }));
        for name in ["code", "near"] {
            assert_eq!(tool["properties"][name], schema["properties"][name]);
        }
        assert_eq!(prepared(&schema, Purpose::Answer)["properties"], schema["properties"]);
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
