//! `oneOf` in the schema of an answer. The matcher reads it as `anyOf`, which is the same where no
//! value fits two of its schemas.

use std::collections::{HashMap, HashSet};
use std::ptr;

use serde_json::Value;

use super::parts::{children, target};
use crate::Error;

/// The most comparisons of two schemas or values.
const MAX_COMPARISONS: usize = 500_000;
/// The most references and nested schemas through which two schemas are compared.
const MAX_COMPARISON_DEPTH: usize = 32;
/// The types of values as bits.
const NUMBER: u8 = 4;
const OBJECT: u8 = 32;
const ALL_TYPES: u8 = 63;
/// The schemas of properties that an object does not describe.
static ANYTHING: Value = Value::Bool(true);
static NOTHING: Value = Value::Bool(false);

/// Checks that no value fits two schemas of a `oneOf`.
///
/// Disjoint are schemas with different types, constants or ranges of numbers, and objects with a
/// required property whose schemas are disjoint. Other schemas are refused, although some of them
/// are disjoint, too.
pub(crate) fn check_one_of(root: &Value) -> Result<(), Error> {
    let mut check =
        OneOfCheck { root, visited: HashSet::new(), results: HashMap::new(), comparisons: 0 };
    let Some(path) = check.overlap(root) else { return Ok(()) };
    let pointer = if path.starts_with('#') { path } else { format!("#{path}") };
    let problem = "a value may fit several schemas of `oneOf`: give them different types or \
                   constants, or a required property with different constants, or use `anyOf`";
    Err(Error::Schema { pointer, problem: problem.to_owned() })
}

struct OneOfCheck<'a> {
    root: &'a Value,
    /// The schemas that are checked, by address.
    visited: HashSet<*const Value>,
    /// The pairs that are compared, by address: true if they are disjoint. A pair that is still
    /// compared is false, which ends recursion.
    results: HashMap<[*const Value; 2], bool>,
    comparisons: usize,
}

impl<'a> OneOfCheck<'a> {
    /// The path to the first `oneOf` whose schemas may overlap. It is absolute (`#…`) if a
    /// reference leads there.
    fn overlap(&mut self, schema: &'a Value) -> Option<String> {
        if !self.visited.insert(ptr::from_ref(schema)) {
            return None;
        }
        let branches = list(schema, "oneOf");
        for (index, branch) in branches.iter().enumerate() {
            if !branches[..index].iter().all(|other| self.disjoint(branch, other, 0)) {
                return Some("/oneOf".to_owned());
            }
        }
        let from = |place: String, rest: String| {
            if rest.starts_with('#') { rest } else { place + &rest }
        };
        if let Some((reference, target)) = self.referenced(schema)
            && let Some(rest) = self.overlap(target)
        {
            return Some(from(reference.to_owned(), rest));
        }
        // Definitions matter where they are used.
        let is_used = |path: &str| !path.starts_with("$defs/") && !path.starts_with("definitions/");
        let used = children(schema).into_iter().filter(|(path, _)| is_used(path));
        for (path, child) in used {
            if let Some(rest) = self.overlap(child) {
                return Some(from(format!("/{path}"), rest));
            }
        }
        None
    }

    fn referenced(&self, schema: &'a Value) -> Option<(&'a str, &'a Value)> {
        let reference = schema.get("$ref")?.as_str()?;
        Some((reference, target(self.root, reference)?))
    }

    /// Returns true if certainly no value fits both schemas.
    fn disjoint(&mut self, a: &'a Value, b: &'a Value, depth: usize) -> bool {
        let count = |schema| values(schema).map_or(1, |values| values.len().max(1));
        self.comparisons = self.comparisons.saturating_add(count(a).saturating_mul(count(b)));
        if self.comparisons > MAX_COMPARISONS || depth > MAX_COMPARISON_DEPTH || ptr::eq(a, b) {
            return false;
        }
        let common = types(a) & types(b);
        if common == 0 || values_differ(a, b) {
            return true;
        }
        if common == NUMBER && (is_above(a, b) || is_above(b, a)) {
            return true;
        }
        let pair = [ptr::from_ref(a), ptr::from_ref(b)];
        if let Some(result) = self.results.get(&pair) {
            return *result;
        }
        self.results.insert(pair, false);
        let depth = depth + 1;
        let result = (common == OBJECT && self.properties_differ(a, b, depth))
            || self.parts_differ(a, b, depth)
            || self.parts_differ(b, a, depth);
        self.results.insert(pair, result);
        result
    }

    /// Returns true if the objects differ in a property that one of them requires.
    fn properties_differ(&mut self, a: &'a Value, b: &'a Value, depth: usize) -> bool {
        let required = list(a, "required").iter().chain(list(b, "required"));
        required
            .filter_map(Value::as_str)
            .any(|name| self.disjoint(property(a, name), property(b, name), depth))
    }

    /// Returns true if no value fits `other` and the schemas that `schema` is composed of, by
    /// `$ref`, `allOf`, `anyOf` and `oneOf`.
    fn parts_differ(&mut self, schema: &'a Value, other: &'a Value, depth: usize) -> bool {
        let target = self.referenced(schema).map(|(_, target)| target);
        let mut all = target.into_iter().chain(list(schema, "allOf"));
        if all.any(|part| self.disjoint(part, other, depth)) {
            return true;
        }
        ["anyOf", "oneOf"].iter().any(|keyword| {
            let branches = list(schema, keyword);
            !branches.is_empty() && branches.iter().all(|part| self.disjoint(part, other, depth))
        })
    }
}

fn list<'a>(schema: &'a Value, keyword: &str) -> &'a [Value] {
    schema.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// The values of a schema that lists them.
fn values(schema: &Value) -> Option<&[Value]> {
    let constant = schema.get("const").map(std::slice::from_ref);
    constant.or_else(|| schema.get("enum")?.as_array().map(Vec::as_slice))
}

/// The types of the values that may fit a schema.
fn types(schema: &Value) -> u8 {
    let bit = |name: &str| match name {
        "null" => 1,
        "boolean" => 2,
        // An integer is a number.
        "number" | "integer" => NUMBER,
        "string" => 8,
        "array" => 16,
        "object" => OBJECT,
        _ => ALL_TYPES,
    };
    let named = match schema {
        Value::Bool(false) => 0,
        _ => match schema.get("type") {
            Some(Value::String(name)) => bit(name),
            Some(Value::Array(names)) => {
                names.iter().map(|name| name.as_str().map_or(ALL_TYPES, bit)).fold(0, |a, b| a | b)
            }
            _ => ALL_TYPES,
        },
    };
    let of_value = |value: &Value| match value {
        Value::Null => 1,
        Value::Bool(_) => 2,
        Value::Number(_) => NUMBER,
        Value::String(_) => 8,
        Value::Array(_) => 16,
        Value::Object(_) => OBJECT,
    };
    let listed = values(schema);
    named & listed.map_or(ALL_TYPES, |list| list.iter().map(of_value).fold(0, |a, b| a | b))
}

/// Returns true if both schemas list values, of which none are equal.
fn values_differ(a: &Value, b: &Value) -> bool {
    let (Some(a), Some(b)) = (values(a), values(b)) else { return false };
    !a.iter().any(|a| b.iter().any(|b| equal(a, b)))
}

/// Equality of JSON Schema: 1 is 1.0.
fn equal(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        (Value::Array(a), Value::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equal(a, b))
        }
        (Value::Object(a), Value::Object(b)) => {
            let has_equal = |(name, a)| b.get(name).is_some_and(|b| equal(a, b));
            a.len() == b.len() && a.iter().all(has_equal)
        }
        (a, b) => a == b,
    }
}

/// Returns true if the numbers of one schema are above those of the other.
fn is_above(upper: &Value, lower: &Value) -> bool {
    let number = |schema: &Value, keyword| schema.get(keyword).and_then(Value::as_f64);
    let bounds = |schema: &Value, inclusive, exclusive| {
        let constant = number(schema, inclusive).or_else(|| number(schema, "const"));
        [(constant, false), (number(schema, exclusive), true)]
    };
    let minima = bounds(upper, "minimum", "exclusiveMinimum");
    bounds(lower, "maximum", "exclusiveMaximum").into_iter().any(|(maximum, excludes_maximum)| {
        minima.into_iter().any(|(minimum, excludes_minimum)| {
            let (Some(minimum), Some(maximum)) = (minimum, maximum) else { return false };
            // Larger integers are rounded, so they may differ from the bound.
            let is_exact = f64::abs(minimum) < 9e15;
            let excludes = is_exact && (excludes_minimum || excludes_maximum);
            minimum > maximum || (excludes && minimum >= maximum)
        })
    })
}

/// The schema of a property of an object.
fn property<'a>(schema: &'a Value, name: &str) -> &'a Value {
    let described = schema.get("properties").and_then(|properties| properties.get(name));
    let is_closed = schema.get("additionalProperties") == Some(&NOTHING)
        && schema.get("patternProperties").is_none();
    described.unwrap_or(if is_closed { &NOTHING } else { &ANYTHING })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// The pointer of the `oneOf` that is refused.
    fn refused(schema: &Value) -> Option<String> {
        match check_one_of(schema) {
            Ok(()) => None,
            Err(Error::Schema { pointer, .. }) => Some(pointer),
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn disjoint_schemas_are_recognised() {
        let object = |kind: Value| {
            json!({ "type": "object", "properties": { "kind": kind },
                "required": ["kind"] })
        };
        let tagged = |name: &str| {
            json!({ "type": "object", "properties": { name: {} }, "required": [name],
                "additionalProperties": false })
        };
        let only = |kind: &str| object(json!({ "const": kind }));
        let both = json!({ "oneOf": [only("a"), object(json!({ "enum": ["b", "c"] }))] });
        for [a, b] in [
            [json!({ "type": "string" }), json!({ "type": ["integer", "null"] })],
            [json!({ "const": "a" }), json!({ "enum": ["b", 1] })],
            [json!({ "const": 1 }), json!({ "type": "string", "minLength": 1 })],
            [json!({ "const": { "a": 1 } }), json!({ "const": { "a": 2 } })],
            [json!({ "type": "integer", "maximum": 1 }), json!({ "type": "number", "minimum": 2 })],
            [json!({ "type": "number", "exclusiveMaximum": 1 }), json!({ "const": 1 })],
            [only("a"), object(json!({ "enum": ["b", "c"] }))],
            [tagged("a"), tagged("b")],
            [both, json!({ "allOf": [only("d"), { "minProperties": 2 }] })],
            [json!({ "type": "null" }), json!({ "anyOf": [only("a"), { "type": "string" }] })],
            [json!(false), json!(true)],
        ] {
            assert_eq!(refused(&json!({ "oneOf": [a, b] })), None, "{a} {b}");
            assert_eq!(refused(&json!({ "oneOf": [b, a] })), None, "{a} {b}");
        }
        assert_eq!(refused(&json!({ "oneOf": [{ "minimum": 1 }] })), None);
    }

    #[test]
    fn schemas_that_may_overlap_are_refused() {
        let object = |kind: Value, required: Value| {
            json!({ "type": "object", "properties": { "kind": kind },
                "required": required })
        };
        for [a, b] in [
            [json!({ "type": "integer" }), json!({ "type": "integer", "minimum": 2 })],
            [json!({ "type": "integer" }), json!({ "type": "number" })],
            [json!({ "const": "a", "type": "string" }), json!({ "const": "a", "type": "string" })],
            [json!({ "const": 1 }), json!({ "enum": [2, 1.0] })],
            [json!({ "maximum": 1 }), json!({ "minimum": 2 })],
            [json!({ "type": "number", "maximum": 1 }), json!({ "type": "number", "minimum": 1 })],
            [object(json!({ "const": 1 }), json!([])), object(json!({ "const": 2 }), json!([]))],
            [object(json!({ "const": 1 }), json!(["kind"])), object(json!({}), json!(["kind"]))],
            [json!({ "$ref": "#" }), json!({ "$ref": "#/" })],
            [json!({ "anyOf": [] }), json!({ "allOf": [] })],
            [json!(true), json!({ "type": "null" })],
        ] {
            assert_eq!(refused(&json!({ "oneOf": [a, b] })).unwrap(), "#/oneOf", "{a} {b}");
        }
    }

    #[test]
    fn references_are_followed() {
        let schema = json!({
            "properties": { "x": { "$ref": "#/$defs/Pet" }, "y": { "items": { "oneOf": [
                { "$ref": "#/$defs/Cat" }, { "type": "string" }, { "$ref": "#/$defs/Dog" },
            ] } } },
            "$defs": {
                "Pet": { "oneOf": [{ "$ref": "#/$defs/Dog" }, { "$ref": "#/$defs/Cat" }] },
                "Cat": { "type": "object", "required": ["child", "kind"], "properties": {
                    "kind": { "const": "cat" }, "child": { "$ref": "#/$defs/Pet" },
                } },
                "Dog": { "type": "object", "required": ["child", "kind"], "properties": {
                    "kind": { "enum": ["dog"] }, "child": { "$ref": "#/$defs/Pet" },
                } },
                "unused": { "oneOf": [{}, {}] },
            },
        });
        assert_eq!(refused(&schema), None);
        let mut same = schema;
        same["$defs"]["Dog"]["properties"]["kind"] = json!({ "type": "string" });
        assert_eq!(refused(&same).unwrap(), "#/$defs/Pet/oneOf");
        same["properties"]["x"] = json!(true);
        assert_eq!(refused(&same).unwrap(), "#/properties/y/items/oneOf");
    }

    #[test]
    fn the_work_is_limited() {
        let constants = |count: usize| {
            let branches: Vec<_> = (0..count).map(|value| json!({ "const": value })).collect();
            refused(&json!({ "oneOf": branches }))
        };
        assert_eq!(constants(900), None);
        assert_eq!(constants(9_000).unwrap(), "#/oneOf");
        let values: Vec<_> = (0..30_000).collect();
        let many = json!({ "oneOf": [{ "enum": values }, { "enum": values }] });
        assert_eq!(refused(&many).unwrap(), "#/oneOf");
    }
}
