//! JSON schemas: their parts, limits, and the place of an error.

mod measure;
mod rewrite;

use std::time::{Duration, Instant};

use serde_json::Value;

pub(crate) use self::measure::{measure, measure_all};
pub(crate) use self::rewrite::{Purpose, has_references, part_of, prepared};

/// The most parts of a schema that are tried.
const MAX_PARTS: usize = 500;
/// The time for finding the part that fails.
const LOCATE_TIMEOUT: Duration = Duration::from_secs(1);

/// Keywords whose value is a schema.
const SCHEMAS: [&str; 11] = [
    "items",
    "additionalItems",
    "additionalProperties",
    "not",
    "propertyNames",
    "contains",
    "if",
    "then",
    "else",
    "unevaluatedItems",
    "unevaluatedProperties",
];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 5] = ["prefixItems", "items", "anyOf", "oneOf", "allOf"];
/// Keywords whose value is an object of schemas.
const MAPS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// The JSON pointer of the smallest part of `schema` that fails, and its error. `check` says why a
/// schema fails, if it does; `schema` does.
pub(crate) fn locate(
    schema: &Value,
    problem: String,
    check: impl Fn(&Value) -> Option<String>,
) -> (String, String) {
    let started = Instant::now();
    let mut place = ("#".to_owned(), problem);
    let mut part = schema;
    let mut parts = 0;
    'part: loop {
        for (path, child) in children(part) {
            parts += 1;
            if parts > MAX_PARTS || started.elapsed() > LOCATE_TIMEOUT {
                return place;
            }
            if let Some(problem) = check(&part_of(child, schema)) {
                place = (format!("{}/{path}", place.0), problem);
                part = child;
                continue 'part;
            }
        }
        return place;
    }
}

/// The schemas directly within a schema, with their paths.
fn children(schema: &Value) -> Vec<(String, &Value)> {
    let Some(schema) = schema.as_object() else { return Vec::new() };
    let mut children = Vec::new();
    for (keyword, value) in schema {
        let keyword = keyword.as_str();
        match value {
            Value::Object(map) if MAPS.contains(&keyword) => {
                let escape = |name: &str| name.replace('~', "~0").replace('/', "~1");
                children.extend(map.iter().map(|(k, v)| (format!("{keyword}/{}", escape(k)), v)));
            }
            Value::Array(list) if LISTS.contains(&keyword) => {
                children
                    .extend(list.iter().enumerate().map(|(i, v)| (format!("{keyword}/{i}"), v)));
            }
            _ if SCHEMAS.contains(&keyword) => children.push((keyword.to_owned(), value)),
            _ => {}
        }
    }
    children
}

/// The schemas directly within a schema.
fn children_mut(schema: &mut Value) -> Vec<&mut Value> {
    let Some(schema) = schema.as_object_mut() else { return Vec::new() };
    let mut children = Vec::new();
    for (keyword, value) in schema {
        let keyword = keyword.as_str();
        if SCHEMAS.contains(&keyword) && !value.is_array() {
            children.push(value);
            continue;
        }
        match value {
            Value::Object(map) if MAPS.contains(&keyword) => children.extend(map.values_mut()),
            Value::Array(list) if LISTS.contains(&keyword) => children.extend(list),
            _ => {}
        }
    }
    children
}

/// The schema that a reference refers to, if it is a part of `root`.
fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    match reference.strip_prefix('#')? {
        "" | "/" => Some(root),
        pointer => root.pointer(pointer),
    }
}
