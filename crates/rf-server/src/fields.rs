//! Fields that clients send in more than one JSON type.

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// A text, or a list of `T`. Unlike with an untagged enum, errors keep the path of the element.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum TextOr<T> {
    Text(String),
    List(Vec<T>),
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for TextOr<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct TextOrList<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for TextOrList<T> {
            type Value = TextOr<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or a list")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Self::Value, E> {
                Ok(TextOr::Text(text.to_owned()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(TextOr::List)
            }
        }

        deserializer.deserialize_any(TextOrList(PhantomData))
    }
}

impl<T: JsonSchema> JsonSchema for TextOr<T> {
    fn schema_name() -> Cow<'static, str> {
        format!("TextOr{}s", T::schema_name()).into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let items = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [{ "type": "string" }, { "type": "array", "items": items }] })
    }
}

impl TextOr<String> {
    /// The texts; one text is a list of one.
    pub(crate) fn into_vec(self) -> Vec<String> {
        match self {
            Self::Text(text) => vec![text],
            Self::List(list) => list,
        }
    }
}

/// The token of a [`LogitBias`]: an id, or a text whose tokens all get the bias.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum BiasedToken {
    Id(u32),
    Text(String),
}

/// `{"15043": -100}` as in `OpenAI`'s API, or `[[15043, 1.5], ["text", false]]` as in llama.cpp's.
/// `false` rules the token out.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LogitBias(pub(crate) Vec<(BiasedToken, f32)>);

impl JsonSchema for LogitBias {
    fn schema_name() -> Cow<'static, str> {
        "LogitBias".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        let pair = json_schema!({
            "type": "array",
            "prefixItems": [{ "type": ["integer", "string"] }, { "type": ["number", "boolean"] }],
            "minItems": 2,
            "maxItems": 2,
        });
        json_schema!({
            "anyOf": [
                { "type": "object", "additionalProperties": { "type": ["number", "boolean"] } },
                { "type": "array", "items": pair },
            ],
        })
    }
}

impl<'de> Deserialize<'de> for LogitBias {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Pairs;

        impl<'de> Visitor<'de> for Pairs {
            type Value = LogitBias;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object of token ids and biases, or a list of [token, bias]")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LogitBias, A::Error> {
                let mut pairs = Vec::new();
                while let Some((key, Bias(bias))) = map.next_entry::<String, Bias>()? {
                    let id = key
                        .parse()
                        .map_err(|_| A::Error::custom(format_args!("{key:?} is not a token id")))?;
                    pairs.push((BiasedToken::Id(id), bias));
                }
                Ok(LogitBias(pairs))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<LogitBias, A::Error> {
                let mut pairs = Vec::new();
                while let Some((token, Bias(bias))) = list.next_element::<(BiasedToken, Bias)>()? {
                    pairs.push((token, bias));
                }
                Ok(LogitBias(pairs))
            }
        }

        deserializer.deserialize_any(Pairs)
    }
}

impl<'de> Deserialize<'de> for BiasedToken {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Token;

        impl Visitor<'_> for Token {
            type Value = BiasedToken;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a token id or a text")
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<BiasedToken, E> {
                let id = id.try_into().map_err(|_| E::custom("the token id is too large"))?;
                Ok(BiasedToken::Id(id))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<BiasedToken, E> {
                Ok(BiasedToken::Text(text.to_owned()))
            }
        }

        deserializer.deserialize_any(Token)
    }
}

struct Bias(f32);

impl<'de> Deserialize<'de> for Bias {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Number;

        impl Visitor<'_> for Number {
            type Value = Bias;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a number, or false to rule the token out")
            }

            fn visit_f64<E: Error>(self, value: f64) -> Result<Bias, E> {
                Ok(Bias(value as f32))
            }

            fn visit_u64<E: Error>(self, value: u64) -> Result<Bias, E> {
                Ok(Bias(value as f32))
            }

            fn visit_i64<E: Error>(self, value: i64) -> Result<Bias, E> {
                Ok(Bias(value as f32))
            }

            fn visit_bool<E: Error>(self, value: bool) -> Result<Bias, E> {
                if value { Err(E::custom("true is no bias")) } else { Ok(Bias(f32::NEG_INFINITY)) }
            }
        }

        deserializer.deserialize_any(Number)
    }
}

/// A number of log probabilities: `true` is `1`, as clients of different APIs send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logprobs {
    Flag(bool),
    Count(usize),
}

impl JsonSchema for Logprobs {
    fn schema_name() -> Cow<'static, str> {
        "Logprobs".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": ["boolean", "integer"], "minimum": 0 })
    }
}

impl<'de> Deserialize<'de> for Logprobs {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct FlagOrCount;

        impl Visitor<'_> for FlagOrCount {
            type Value = Logprobs;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("true, false or a count")
            }

            fn visit_bool<E: Error>(self, flag: bool) -> Result<Logprobs, E> {
                Ok(Logprobs::Flag(flag))
            }

            fn visit_u64<E: Error>(self, count: u64) -> Result<Logprobs, E> {
                Ok(Logprobs::Count(usize::try_from(count).unwrap_or(usize::MAX)))
            }
        }

        deserializer.deserialize_any(FlagOrCount)
    }
}

/// The prompt of a completion: a text, texts, ids, or lists of ids.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum PromptItem {
    Text(String),
    Ids(Vec<u32>),
    /// An element of a single list of ids.
    Id(u32),
}

impl JsonSchema for PromptItem {
    fn schema_name() -> Cow<'static, str> {
        "PromptItem".into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let id = generator.subschema_for::<u32>();
        json_schema!({
            "anyOf": [{ "type": "string" }, id, { "type": "array", "items": id }],
        })
    }
}

impl<'de> Deserialize<'de> for PromptItem {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Item;

        impl<'de> Visitor<'de> for Item {
            type Value = PromptItem;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string, a token id or a list of token ids")
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<PromptItem, E> {
                Ok(PromptItem::Text(text.to_owned()))
            }

            fn visit_u64<E: Error>(self, id: u64) -> Result<PromptItem, E> {
                let id = id.try_into().map_err(|_| E::custom("the token id is too large"))?;
                Ok(PromptItem::Id(id))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<PromptItem, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(PromptItem::Ids)
            }
        }

        deserializer.deserialize_any(Item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_logit_bias_has_two_forms() {
        let bias = |json| serde_json::from_str::<LogitBias>(json);
        let expected = vec![(BiasedToken::Id(7), -100.0), (BiasedToken::Id(9), 1.5)];
        assert_eq!(bias(r#"{"7": -100, "9": 1.5}"#).unwrap().0, expected);
        let expected =
            vec![(BiasedToken::Id(7), f32::NEG_INFINITY), (BiasedToken::Text("x".into()), 2.0)];
        assert_eq!(bias(r#"[[7, false], ["x", 2]]"#).unwrap().0, expected);
        for bad in [r#"{"x": 1}"#, "[[7]]", "[[7, true]]", "[[-7, 1]]", "3"] {
            bias(bad).unwrap_err();
        }
    }

    #[test]
    fn a_text_or_a_list_names_what_it_expected() {
        let read = |json| serde_json::from_str::<TextOr<u32>>(json);
        assert_eq!(read(r#""a""#).unwrap(), TextOr::Text("a".into()));
        assert_eq!(read("[1, 2]").unwrap(), TextOr::List(vec![1, 2]));
        let message = read("3").unwrap_err().to_string();
        assert!(message.contains("expected a string or a list"), "{message}");
    }
}
