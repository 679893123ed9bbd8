//! The size of a schema, with the parts that its references repeat.

use std::collections::HashMap;

use serde_json::{Map, Number, Value};

use super::parts::{LISTS, MAPS, SCHEMAS, target};
use crate::Error;
use crate::limits::{
    MAX_MERGED_PATTERNS, MAX_MERGED_SUBSCHEMAS, MAX_MULTIPLES, MAX_OPTIONAL_PROPERTIES,
    MAX_PATTERN_PROPERTIES, MAX_REFERENCES, MAX_SCHEMA_DEPTH, MAX_SUBSCHEMAS, at_most,
};
use crate::operators::check_regex;

/// Keywords that restrict nothing. A reference beside them is one rule for all its uses; beside
/// others, its target is merged with them at each use.
const ANNOTATIONS: [&str; 16] = [
    "$anchor",
    "$comment",
    "$defs",
    "$id",
    "$schema",
    "contentEncoding",
    "contentMediaType",
    "default",
    "definitions",
    "deprecated",
    "description",
    "examples",
    "id",
    "readOnly",
    "title",
    "writeOnly",
];

/// Checks the limits of a schema.
pub(crate) fn measure(schema: &Value) -> Result<(), Error> {
    measure_all(std::iter::once(schema))
}

/// Checks the limits of some schemas together.
pub(crate) fn measure_all<'a>(schemas: impl Iterator<Item = &'a Value>) -> Result<(), Error> {
    let mut counts = Counts::default();
    let mut merged = 0usize;
    for root in schemas {
        check_integers(root)?;
        let mut measure = Measure { root, counts, targets: HashMap::new() };
        measure.targets.insert(root, None);
        let extent = measure.visit(root, 0)?;
        let targets = measure.targets.values().flatten().map(|extent| extent.total);
        merged = targets.fold(merged.saturating_add(extent.total), usize::saturating_add);
        at_most("the number of merged subschemas", merged, MAX_MERGED_SUBSCHEMAS)?;
        counts = measure.counts;
    }
    Ok(())
}

/// Refuses integers that are -2^63 as an `f64`. The matcher negates them, which overflows, and then
/// recurses without end.
fn check_integers(schema: &Value) -> Result<(), Error> {
    let mut values = vec![schema];
    while let Some(value) = values.pop() {
        match value {
            Value::Number(number)
                if number.as_i64().is_some_and(|n| n as f64 <= i64::MIN as f64) =>
            {
                let problem = format!("the integer {number} is too small");
                return Err(Error::Schema { pointer: "#".to_owned(), problem });
            }
            Value::Array(items) => values.extend(items),
            Value::Object(fields) => values.extend(fields.values()),
            _ => {}
        }
    }
    Ok(())
}

/// Counts over whole schemas.
#[derive(Clone, Copy, Default)]
struct Counts {
    subschemas: usize,
    references: usize,
    pattern_properties: usize,
    multiples: usize,
}

/// The size of a schema after merging.
#[derive(Clone, Copy)]
struct Extent {
    alternatives: usize,
    /// Subschemas of the largest alternative.
    largest: usize,
    /// Subschemas of all alternatives.
    total: usize,
    /// The `pattern`s that apply to the same value, in the alternative that has the most.
    patterns: usize,
    /// The product of the `multipleOf`s that apply to the same value, in the alternative with the
    /// largest.
    multiple: usize,
}

struct Measure<'a> {
    root: &'a Value,
    counts: Counts,
    /// The extents of referenced schemas by address; `None` while they are measured.
    targets: HashMap<*const Value, Option<Extent>>,
}

impl<'a> Measure<'a> {
    fn visit(&mut self, schema: &'a Value, depth: usize) -> Result<Extent, Error> {
        self.counts.subschemas += 1;
        at_most("the number of subschemas", self.counts.subschemas, MAX_SUBSCHEMAS)?;
        at_most("the depth of the schema, through its references,", depth, MAX_SCHEMA_DEPTH)?;
        let Some(object) = schema.as_object() else { return Ok(Extent::ONE) };
        self.check_properties(object)?;
        let depth = depth + 1;
        let merges = merges(object);
        let mut own = 1usize;
        let mut extent = Extent { largest: 0, total: 0, ..Extent::ONE };
        for (keyword, value) in object {
            match (keyword.as_str(), value) {
                ("$ref", Value::String(reference)) => {
                    let target = self.target(reference, depth)?;
                    extent = extent.and(if merges { target } else { Extent::ONE });
                }
                ("anyOf" | "oneOf", Value::Array(list)) => {
                    let mut union = Extent { alternatives: 0, largest: 0, total: 0, ..Extent::ONE };
                    for branch in list {
                        union = union.or(self.branch(branch, merges, depth)?);
                    }
                    extent = extent.and(union);
                }
                ("allOf", Value::Array(list)) => {
                    for branch in list {
                        extent = extent.and(self.branch(branch, merges, depth)?);
                    }
                }
                ("pattern", Value::String(pattern)) => {
                    check_regex(pattern)?;
                    extent.patterns += 1;
                }
                ("multipleOf", Value::Number(number)) => {
                    let multiple = multiple(number);
                    extent.multiple = extent.multiple.saturating_mul(multiple);
                    self.counts.multiples = self.counts.multiples.saturating_add(multiple);
                    at_most("the sum of multipleOf", self.counts.multiples, MAX_MULTIPLES)?;
                }
                // Definitions count where they are used.
                ("$defs" | "definitions", _) => {}
                (keyword, Value::Object(map)) if MAPS.contains(&keyword) => {
                    for child in map.values() {
                        own = own.saturating_add(self.visit(child, depth)?.total);
                    }
                }
                (keyword, Value::Array(list)) if LISTS.contains(&keyword) => {
                    for child in list {
                        own = own.saturating_add(self.visit(child, depth)?.total);
                    }
                }
                (keyword, child) if SCHEMAS.contains(&keyword) => {
                    own = own.saturating_add(self.visit(child, depth)?.total);
                }
                _ => {}
            }
        }
        extent.largest = extent.largest.saturating_add(own);
        extent.alternatives = extent.alternatives.max(1);
        extent.total = if merges {
            extent.alternatives.saturating_mul(extent.largest)
        } else {
            extent.total.saturating_add(own)
        };
        at_most("the number of merged subschemas", extent.total, MAX_MERGED_SUBSCHEMAS)?;
        at_most("the number of merged patterns", extent.patterns, MAX_MERGED_PATTERNS)?;
        at_most("the product of merged multipleOf", extent.multiple, MAX_MULTIPLES)?;
        Ok(extent)
    }

    fn check_properties(&mut self, object: &Map<String, Value>) -> Result<(), Error> {
        let count = |keyword| object.get(keyword).and_then(Value::as_object).map_or(0, Map::len);
        let required = object.get("required").and_then(Value::as_array).map_or(0, Vec::len);
        let optional = count("properties").saturating_sub(required);
        at_most(
            "the number of optional properties of an object",
            optional,
            MAX_OPTIONAL_PROPERTIES,
        )?;
        let patterns = object.get("patternProperties").and_then(Value::as_object);
        patterns.into_iter().flat_map(Map::keys).try_for_each(|pattern| check_regex(pattern))?;
        self.counts.pattern_properties += count("patternProperties");
        let found = self.counts.pattern_properties;
        at_most("the number of patternProperties", found, MAX_PATTERN_PROPERTIES)
    }

    /// A branch of a keyword that applies in place. If it is merged with others, so is the target
    /// of its reference.
    fn branch(&mut self, branch: &'a Value, merges: bool, depth: usize) -> Result<Extent, Error> {
        let extent = self.visit(branch, depth)?;
        match branch.get("$ref").and_then(Value::as_str) {
            Some(reference) if merges => Ok(extent.and(self.target(reference, depth)?)),
            _ => Ok(extent),
        }
    }

    /// The extent of a referenced schema, which is measured once.
    fn target(&mut self, reference: &str, depth: usize) -> Result<Extent, Error> {
        self.counts.references += 1;
        at_most("the number of references", self.counts.references, MAX_REFERENCES)?;
        // The matcher says that the reference leads nowhere.
        let Some(target) = target(self.root, reference) else { return Ok(Extent::ONE) };
        let key = std::ptr::from_ref(target);
        match self.targets.get(&key) {
            Some(Some(extent)) => Ok(*extent),
            // It refers to itself.
            Some(None) => Ok(Extent::ONE),
            None => {
                self.targets.insert(key, None);
                let extent = self.visit(target, depth)?;
                self.targets.insert(key, Some(extent));
                Ok(extent)
            }
        }
    }
}

impl Extent {
    const ONE: Self = Self { alternatives: 1, largest: 1, total: 1, patterns: 0, multiple: 1 };

    /// Both apply.
    fn and(self, other: Self) -> Self {
        Self {
            alternatives: self.alternatives.saturating_mul(other.alternatives),
            largest: self.largest.saturating_add(other.largest),
            total: self.total.saturating_add(other.total),
            patterns: self.patterns.saturating_add(other.patterns),
            multiple: self.multiple.saturating_mul(other.multiple),
        }
    }

    /// The measure of an alternative: one of the two schemas applies.
    fn or(self, other: Self) -> Self {
        Self {
            alternatives: self.alternatives.saturating_add(other.alternatives),
            largest: self.largest.max(other.largest),
            total: self.total.saturating_add(other.total),
            patterns: self.patterns.max(other.patterns),
            multiple: self.multiple.max(other.multiple),
        }
    }
}

/// A `multipleOf` without its sign and decimal point: 25 for 0.25. Powers of ten are 1: they only
/// demand zeros. So is 0, of which the matcher says that it is not allowed.
fn multiple(number: &Number) -> usize {
    let text = number.to_string();
    let (mantissa, exponent) = text.split_once(['e', 'E']).unwrap_or((&text, "0"));
    let digits: String = mantissa.chars().filter(char::is_ascii_digit).collect();
    let (_, fraction) = mantissa.split_once('.').unwrap_or((mantissa, ""));
    let significant = digits.trim_matches('0');
    if matches!(significant, "" | "1") {
        return 1;
    }
    // An integer keeps the zeros at its end.
    let shift = exponent.parse::<i64>().unwrap_or(i64::MAX).saturating_sub(fraction.len() as i64);
    let zeros = digits.len() - digits.trim_end_matches('0').len();
    let zeros = shift.saturating_add(zeros as i64).clamp(0, 20) as u32;
    let significant = significant.parse::<usize>().unwrap_or(usize::MAX);
    significant.saturating_mul(10usize.saturating_pow(zeros))
}

/// Returns true if a schema has two parts that apply to the same value.
fn merges(object: &Map<String, Value>) -> bool {
    let parts = object.iter().map(|(keyword, value)| match (keyword.as_str(), value) {
        ("allOf", Value::Array(list)) => list.len(),
        (keyword, _) if ANNOTATIONS.contains(&keyword) => 0,
        _ => 1,
    });
    parts.sum::<usize>() > 1
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn problem(schema: &Value) -> Option<String> {
        measure(schema).err().map(|error| error.to_string())
    }

    /// A schema whose definitions refer to each other in a row.
    fn chain(length: usize, link: impl Fn(Value) -> Value) -> Value {
        let mut definitions = Map::new();
        for index in 0..length {
            let next = json!({ "$ref": format!("#/$defs/d{}", index + 1) });
            definitions.insert(format!("d{index}"), link(next));
        }
        definitions.insert(format!("d{length}"), json!({ "type": "integer" }));
        json!({ "$defs": definitions, "$ref": "#/$defs/d0" })
    }

    #[test]
    fn the_depth_counts_references() {
        for link in [
            |next| next,
            |next| json!({ "properties": { "a": next } }),
            |next| json!({ "anyOf": [next, { "type": "null" }] }),
        ] {
            assert_eq!(problem(&chain(400, link)), None);
            let problem = problem(&chain(1100, link)).unwrap();
            assert!(problem.contains("depth") && problem.contains("1000"), "{problem}");
        }
    }

    #[test]
    fn targets_count_once_unless_they_are_merged() {
        let twice = |next: Value| json!({ "properties": { "a": next, "b": next } });
        assert_eq!(problem(&chain(30, twice)), None);
        let merged = |next: Value| {
            let reference = next["$ref"].clone();
            let next = json!({ "$ref": reference, "properties": { "z": {} } });
            json!({ "properties": { "a": next, "b": next } })
        };
        assert_eq!(problem(&chain(8, merged)), None);
        assert!(problem(&chain(30, merged)).unwrap().contains("merged"));
        let union = json!({ "anyOf": vec![json!({ "minimum": 1 }); 40] });
        assert_eq!(problem(&json!({ "allOf": [union, union] })), None);
        assert!(problem(&json!({ "allOf": [union, union, union] })).unwrap().contains("merged"));
    }

    #[test]
    fn a_schema_may_refer_to_itself() {
        let tree = json!({ "properties": { "next": { "$ref": "#", "minProperties": 1 } } });
        assert_eq!(problem(&tree), None);
        assert_eq!(problem(&json!({ "$ref": "#" })), None);
    }

    #[test]
    fn multiples_are_integers_without_their_point() {
        let multiple = |value: Value| multiple(value.as_number().unwrap());
        for one in
            [json!(0), json!(1), json!(1000), json!(0.01), json!(1e-9), json!(1e9), json!(1e300)]
        {
            assert_eq!(multiple(one.clone()), 1, "{one}");
        }
        for (value, expected) in
            [(json!(0.25), 25), (json!(99.99), 9999), (json!(10.0), 1), (json!(7000), 7000)]
        {
            assert_eq!(multiple(value.clone()), expected, "{value}");
        }
        assert_eq!(multiple(json!(7e9)), 7_000_000_000);
        assert_eq!(multiple(json!(7.5e9)), 7_500_000_000);
        assert_eq!(multiple(json!(-0.5)), 5);
        assert!(multiple(json!(7e300)) > MAX_MULTIPLES);
    }

    #[test]
    fn properties_and_parts_are_counted() {
        let properties: Map<_, _> = (0..501).map(|i| (format!("p{i}"), json!({}))).collect();
        let names: Vec<_> = properties.keys().collect();
        let (one, all) = (&names[..1], &names);
        assert_eq!(problem(&json!({ "properties": properties, "required": all })), None);
        assert_eq!(problem(&json!({ "properties": properties, "required": one })), None);
        let optional = json!({ "properties": properties });
        assert!(problem(&optional).unwrap().contains("optional properties of an object"));
        let patterns: Map<_, _> = (0..101).map(|i| (format!("^{i}$"), json!({}))).collect();
        let patterns = json!({ "patternProperties": patterns });
        assert!(problem(&patterns).unwrap().contains("patternProperties"));
        let many = json!({ "anyOf": vec![json!({}); 10_001] });
        assert!(problem(&many).unwrap().contains("number of subschemas"));
        let references = json!({ "anyOf": vec![json!({ "$ref": "#/x" }); 4_001] });
        assert!(problem(&references).unwrap().contains("references"));
    }
}
