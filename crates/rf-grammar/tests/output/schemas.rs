//! Random schemas: what fits the constraint is valid.

use rf_grammar::{Error, Grammar};
use rf_testing::SplitMix64 as Random;
use serde_json::{Map, Value, json};

use crate::sampling::{COMPILER, sample};

/// A random schema. References refer to the two definitions of the root.
fn schema(random: &mut Random, depth: usize) -> Value {
    let kinds = if depth == 0 { 7 } else { 12 };
    match random.below(kinds) {
        0 => json!({"type": "string"}),
        1 => json!({"type": "string", "minLength": 2, "maxLength": 5}),
        2 => json!({"type": "string", "pattern": "^[a-zà-ÿ]{1,3}-[0-9]+$"}),
        3 => json!({"enum": ["red", "grün", 7, null, "a\"b\\c\n", "日本"]}),
        4 => json!({"type": "integer", "minimum": -5, "maximum": 1200}),
        5 => json!({"type": "number", "exclusiveMinimum": 0.25, "maximum": 9.5}),
        6 => json!({"type": ["boolean", "null"]}),
        7 => json!({"$ref": "#/$defs/leaf"}),
        8 => json!({"$ref": "#/$defs/tree"}),
        9 => {
            let items = schema(random, depth - 1);
            json!({"type": "array", "items": items, "minItems": 1, "maxItems": 3})
        }
        10 => json!({"anyOf": [schema(random, depth - 1), schema(random, depth - 1)]}),
        _ => {
            let mut properties = Map::new();
            let mut required = Vec::new();
            for name in ["id", "naïve name", "🦙", "x\"y"].iter().take(1 + random.below(4)) {
                properties.insert((*name).to_owned(), schema(random, depth - 1));
                if random.below(2) == 0 {
                    required.push(*name);
                }
            }
            json!({
                "type": "object",
                "properties": properties,
                "required": required,
                "additionalProperties": if random.below(4) == 0 {
                    json!({"type": "string"})
                } else {
                    json!(false)
                },
            })
        }
    }
}

#[test]
fn what_fits_the_constraint_is_valid() {
    let mut random = Random::new(14);
    for index in 0..1000 {
        let mut root = json!({"type": "object", "additionalProperties": false});
        root["properties"] =
            json!({"value": schema(&mut random, 3), "other": schema(&mut random, 1)});
        root["required"] = json!(["value"]);
        root["$defs"] = json!({
            "leaf": {"type": "string", "maxLength": 3},
            "tree": {
                "type": "object",
                "properties": {"left": {"$ref": "#/$defs/tree"}, "leaf": {"$ref": "#/$defs/leaf"}},
                "required": ["leaf"],
                "additionalProperties": false,
            },
        });
        let constraint = COMPILER.compile(&Grammar::JsonSchema(root.clone())).unwrap();
        let text = sample(constraint, &mut random);
        let value: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{index}: {error} in {text} for {root}"));
        let valid = jsonschema::validate(&root, &value);
        assert!(valid.is_ok(), "{index}: {valid:?} in {text} for {root}");
    }
}

#[test]
fn any_object_is_json() {
    let mut random = Random::new(1);
    for _ in 0..20 {
        let text = sample(COMPILER.compile(&Grammar::JsonObject).unwrap(), &mut random);
        match serde_json::from_str::<Map<String, Value>>(&text) {
            Ok(_) => {}
            // JSON has larger numbers than f64.
            Err(error) => assert!(error.to_string().contains("number out of range"), "{text}"),
        }
    }
}

#[test]
fn errors_name_the_place_in_the_schema() {
    let reject = |schema: Value| match COMPILER.compile(&Grammar::JsonSchema(schema)) {
        Err(Error::Schema { pointer, .. }) => pointer,
        other => panic!("{other:?}"),
    };
    assert_eq!(reject(json!({"type": "strin"})), "#");
    assert_eq!(
        reject(json!({"type": "object", "properties": {"a/b": {"items": {"type": 5}}}})),
        "#/properties/a~1b/items"
    );
    assert_eq!(
        reject(json!({"anyOf": [{"type": "null"}, {"type": "string", "pattern": "("}]})),
        "#/anyOf/1"
    );
    assert_eq!(reject(json!({"properties": {"a": {"$ref": "#/$defs/none"}}})), "#/properties/a");
    assert_eq!(
        reject(json!({"properties": {"b": {"type": 5}}, "items": {"$ref": "#/properties/b"}})),
        "#/properties/b"
    );
    assert_eq!(reject(json!({"$ref": "https://example.com/schema.json"})), "#");
    assert_eq!(reject(json!({"type": "integer", "minimum": 5, "maximum": 1})), "#");
    assert_eq!(reject(json!([])), "#");
}

#[test]
fn a_keyword_that_is_not_supported_is_named_with_its_place() {
    for (keyword, value) in [
        ("uniqueItems", json!(true)),
        ("not", json!({"type": "null"})),
        ("propertyNames", json!({"pattern": "a"})),
        ("dependentRequired", json!({"a": ["b"]})),
    ] {
        let schema = json!({"type": "object", "properties": {"x": {keyword: value}}});
        let error = COMPILER.compile(&Grammar::JsonSchema(schema)).unwrap_err().to_string();
        assert!(error.contains("#/properties/x") && error.contains(keyword), "{error}");
    }
}

#[test]
fn keywords_without_their_companion_are_ignored() {
    let compile = |schema| COMPILER.compile(&Grammar::JsonSchema(schema));
    for schema in [
        json!({"type": "integer", "then": {"minimum": 1}, "else": false}),
        json!({"type": "array", "maxContains": 1, "minContains": 2}),
    ] {
        assert!(compile(schema.clone()).is_ok(), "{schema}");
    }
    for (keyword, schema) in [
        ("then", json!({"type": "integer", "if": {"minimum": 0}, "then": {"minimum": 1}})),
        ("minContains", json!({"type": "array", "contains": {}, "minContains": 2})),
        ("unevaluatedProperties", json!({"type": "object", "unevaluatedProperties": false})),
        ("unevaluatedItems", json!({"type": "array", "unevaluatedItems": false})),
    ] {
        let error = compile(schema).unwrap_err().to_string();
        assert!(error.contains("at #: ") && error.contains(keyword), "{error}");
    }
}

/// The schema of pydantic for `list[Annotated[Cat | Dog, Field(discriminator="kind")]]`.
fn pets(cat: &str, dog: &str) -> Value {
    let pet = |kind: &str| {
        json!({
            "type": "object", "title": kind, "required": ["kind", "age"],
            "properties": {
                "kind": {"const": kind, "title": "Kind", "type": "string"},
                "age": {"title": "Age", "type": "integer"},
            },
        })
    };
    json!({
        "$defs": {"Cat": pet(cat), "Dog": pet(dog)},
        "type": "object", "title": "Pets", "required": ["pets"],
        "properties": {"pets": {"type": "array", "maxItems": 3, "items": {
            "discriminator": {
                "mapping": {cat: "#/$defs/Cat", dog: "#/$defs/Dog"}, "propertyName": "kind",
            },
            "oneOf": [{"$ref": "#/$defs/Cat"}, {"$ref": "#/$defs/Dog"}],
        }}},
        "additionalProperties": false,
    })
}

#[test]
fn one_of_is_exactly_one() {
    let mut random = Random::new(5);
    let schema = pets("cat", "dog");
    for _ in 0..20 {
        let constraint = COMPILER.compile(&Grammar::JsonSchema(schema.clone())).unwrap();
        let text = sample(constraint, &mut random);
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(jsonschema::validate(&schema, &value).is_ok(), "{text}");
    }
    let integers = json!({"oneOf": [{"type": "integer"}, {"type": "integer", "minimum": 2}]});
    for (schema, place) in
        [(integers, "#/oneOf"), (pets("cat", "cat"), "#/properties/pets/items/oneOf")]
    {
        match COMPILER.compile(&Grammar::JsonSchema(schema)) {
            Err(Error::Schema { pointer, .. }) => assert_eq!(pointer, place),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_format_is_enforced_or_an_annotation() {
    let enforced = |format: &str| {
        let schema = json!({"type": "string", "format": format});
        let constraint = COMPILER.compile(&Grammar::JsonSchema(schema)).unwrap();
        let mut random = Random::new(4);
        serde_json::from_str::<String>(&sample(constraint, &mut random)).unwrap()
    };
    assert_eq!(enforced("date").len(), "2026-01-01".len());
    assert_eq!(enforced("uuid").len(), 36);
    for format in ["time", "date-time", "duration", "email", "hostname", "ipv4", "ipv6", "uri"] {
        assert!(!enforced(format).is_empty(), "{format}");
    }
    for format in ["password", "base64", "uri-reference", "int32"] {
        enforced(format);
    }
}
