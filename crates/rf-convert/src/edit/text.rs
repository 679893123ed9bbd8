//! Values of metadata as text.

use std::str::FromStr;

use rf_gguf::{Array, StringArray, Value, ValueKind};
use serde_json::Value as Json;

use crate::edit_problem::EditProblem;

/// The value of a text. The type is that of the old value, or else named before the text.
pub(super) fn parsed(old: Option<&Value>, text: &str) -> Result<Value, EditProblem> {
    let (kind, text) = match (old.map(Kind::of).transpose()?, named_kind(text)) {
        // A string may begin with anything.
        (Some(Kind { kind: ValueKind::String, is_array: false }), _) => (Kind::STRING, text),
        (Some(kind), Some((named, text))) if named == kind => (kind, text),
        (Some(kind), _) => (kind, text),
        (None, Some((named, text))) => (named, text),
        (None, None) => return Err(EditProblem::NoType),
    };
    let wrong = || EditProblem::WrongValue { expected: kind.in_words(), text: text.to_owned() };
    if kind.is_array {
        array(kind.kind, text).map(Value::Array).ok_or_else(wrong)
    } else {
        scalar(kind.kind, text).ok_or_else(wrong)
    }
}

/// The type of a value: a scalar, or an array of scalars.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Kind {
    kind: ValueKind,
    is_array: bool,
}

impl Kind {
    const STRING: Self = Self { kind: ValueKind::String, is_array: false };

    fn of(value: &Value) -> Result<Self, EditProblem> {
        match value.as_array() {
            Some(Array::Array(_)) => Err(EditProblem::Nested),
            Some(array) => Ok(Self { kind: array.element_kind(), is_array: true }),
            None => Ok(Self { kind: value.kind(), is_array: false }),
        }
    }

    fn in_words(self) -> String {
        if self.is_array {
            return format!("a JSON list of {}", self.kind);
        }
        match self.kind {
            ValueKind::Bool => "true or false".to_owned(),
            kind => format!("a {kind}"),
        }
    }
}

/// The type before a text, as in `u32:5` and `string[]:["a"]`, and the rest.
fn named_kind(text: &str) -> Option<(Kind, &str)> {
    let (name, rest) = text.split_once(':')?;
    let (name, is_array) = match name.strip_suffix("[]") {
        Some(name) => (name, true),
        None => (name, false),
    };
    let kind = match name {
        "str" => ValueKind::String,
        name => ValueKind::ALL.into_iter().find(|kind| kind.to_string() == name)?,
    };
    (kind != ValueKind::Array).then_some((Kind { kind, is_array }, rest))
}

fn scalar(kind: ValueKind, text: &str) -> Option<Value> {
    fn number<T: FromStr + Into<Value>>(text: &str) -> Option<Value> {
        text.trim().parse::<T>().ok().map(Into::into)
    }
    match kind {
        ValueKind::U8 => number::<u8>(text),
        ValueKind::I8 => number::<i8>(text),
        ValueKind::U16 => number::<u16>(text),
        ValueKind::I16 => number::<i16>(text),
        ValueKind::U32 => number::<u32>(text),
        ValueKind::I32 => number::<i32>(text),
        ValueKind::F32 => number::<f32>(text),
        ValueKind::Bool => number::<bool>(text),
        ValueKind::String => Some(text.into()),
        ValueKind::U64 => number::<u64>(text),
        ValueKind::I64 => number::<i64>(text),
        ValueKind::F64 => number::<f64>(text),
        ValueKind::Array => None,
    }
}

fn array(kind: ValueKind, text: &str) -> Option<Array> {
    fn numbers<T: FromStr>(items: &[Json]) -> Option<Vec<T>> {
        items.iter().map(|item| item.to_string().parse().ok()).collect()
    }
    let items: Vec<Json> = serde_json::from_str(text).ok()?;
    Some(match kind {
        ValueKind::U8 => Array::U8(numbers(&items)?),
        ValueKind::I8 => Array::I8(numbers(&items)?),
        ValueKind::U16 => Array::U16(numbers(&items)?),
        ValueKind::I16 => Array::I16(numbers(&items)?),
        ValueKind::U32 => Array::U32(numbers(&items)?),
        ValueKind::I32 => Array::I32(numbers(&items)?),
        ValueKind::F32 => Array::F32(numbers(&items)?),
        ValueKind::Bool => Array::Bool(numbers(&items)?),
        ValueKind::String => {
            let texts: Option<StringArray> = items.iter().map(Json::as_str).collect();
            Array::String(texts?)
        }
        ValueKind::U64 => Array::U64(numbers(&items)?),
        ValueKind::I64 => Array::I64(numbers(&items)?),
        ValueKind::F64 => Array::F64(numbers(&items)?),
        ValueKind::Array => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_keeps_its_type_or_names_it() {
        let value = |old: Value, text| parsed(Some(&old), text);
        assert_eq!(value(1_u32.into(), "5"), Ok(5_u32.into()));
        assert_eq!(value(1_u32.into(), "u32:5"), Ok(5_u32.into()));
        assert_eq!(value(1.0_f32.into(), "1e-5"), Ok(1e-5_f32.into()));
        assert_eq!(value(true.into(), "false"), Ok(false.into()));
        assert_eq!(value("x".into(), "u32:5"), Ok("u32:5".into()));
        assert_eq!(value(vec![1_i32].into(), "[-1, 2]"), Ok(vec![-1_i32, 2].into()));
        assert_eq!(value(vec![1.0_f32].into(), "[0.5, 2]"), Ok(vec![0.5_f32, 2.0].into()));
        let texts: StringArray = ["a", "b,\""].iter().collect();
        assert_eq!(value(texts.clone().into(), r#"["a", "b,\""]"#), Ok(texts.into()));
        assert_eq!(parsed(None, "u8:200"), Ok(200_u8.into()));
        assert_eq!(parsed(None, "str:a:b"), Ok("a:b".into()));
        assert_eq!(parsed(None, "bool[]:[true]"), Ok(vec![true].into()));
    }

    #[test]
    fn wrong_values_are_errors_that_name_the_type() {
        let problem = |old: Value, text| parsed(Some(&old), text).unwrap_err().to_string();
        assert_eq!(problem(1_u32.into(), "-5"), "a u32 is expected, and '-5' is none");
        assert_eq!(problem(1_u32.into(), "i32:5"), "a u32 is expected, and 'i32:5' is none");
        assert_eq!(problem(1_u8.into(), "256"), "a u8 is expected, and '256' is none");
        assert_eq!(problem(true.into(), "1"), "true or false is expected, and '1' is none");
        let list = vec![1_i32];
        for text in ["5", "[1.5]", "[\"1\"]", "[1", "{}", "[null]"] {
            let expected =
                format!("a JSON list of i32 is expected, and '{}' is none", text.escape_debug());
            assert_eq!(problem(list.clone().into(), text), expected);
        }
        let nested = Value::Array(Array::Array(vec![Array::U8(vec![1])]));
        assert_eq!(parsed(Some(&nested), "[[1]]"), Err(EditProblem::Nested));
        for text in ["5", "word:5", "array:[]", ""] {
            assert_eq!(parsed(None, text), Err(EditProblem::NoType));
        }
    }
}
