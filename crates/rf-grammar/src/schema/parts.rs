//! The parts of a schema that are schemas.

use serde_json::Value;

/// Keywords whose value is a schema.
pub(super) const SCHEMAS: [&str; 11] = [
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
pub(super) const LISTS: [&str; 5] = ["prefixItems", "items", "anyOf", "oneOf", "allOf"];
/// Keywords whose value is an object of schemas.
pub(super) const MAPS: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// The schemas directly within a schema, with their paths.
pub(super) fn children(schema: &Value) -> Vec<(String, &Value)> {
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
pub(super) fn children_mut(schema: &mut Value) -> Vec<&mut Value> {
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

/// The schema that a reference refers to, if it is a part of `root`. The matcher takes the names of
/// a pointer as they are: it does not decode `~1` and `%25`.
pub(super) fn target<'a>(root: &'a Value, reference: &str) -> Option<&'a Value> {
    let pointer = reference.strip_prefix('#')?;
    if matches!(pointer, "" | "/") {
        return Some(root);
    }
    pointer.strip_prefix('/')?.split('/').try_fold(root, |value, name| match value {
        Value::Array(list) => list.get(name.parse::<usize>().ok()?),
        value => value.get(name),
    })
}
