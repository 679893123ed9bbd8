//! The place of an error in a JSON schema.

use serde_json::{Map, Value};

/// The most parts of a schema that are tried.
const MAX_PARTS: usize = 500;

/// Keywords whose value is a schema.
const SCHEMAS: [&str; 5] = ["items", "additionalProperties", "not", "propertyNames", "contains"];
/// Keywords whose value is a list of schemas.
const LISTS: [&str; 4] = ["prefixItems", "anyOf", "oneOf", "allOf"];
/// Keywords whose value is an object of schemas.
const MAPS: [&str; 4] = ["properties", "patternProperties", "$defs", "definitions"];

/// The JSON pointer of the smallest part of `schema` that fails, and its error. `check` says why a
/// schema fails, if it does; `schema` does.
pub(crate) fn locate(
    schema: &Value,
    problem: String,
    check: impl Fn(&Value) -> Option<String>,
) -> (String, String) {
    let mut place = ("#".to_owned(), problem);
    let mut part = schema;
    let mut parts = 0;
    'part: loop {
        for (path, child) in children(part) {
            parts += 1;
            if parts > MAX_PARTS {
                return place;
            }
            if let Some(problem) = check(&with_definitions(child, schema)) {
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

/// A part of a schema with the definitions that its references need.
fn with_definitions(part: &Value, root: &Value) -> Value {
    let Some(part) = part.as_object() else { return part.clone() };
    let mut whole: Map<_, _> = part.clone();
    for keyword in ["$defs", "definitions"] {
        if let Some(definitions) = root.get(keyword) {
            whole.entry(keyword).or_insert_with(|| definitions.clone());
        }
    }
    Value::Object(whole)
}
