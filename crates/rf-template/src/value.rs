//! Values of a running template.
//!
//! Values do not change, as in the sandbox of `transformers`, and refer to each other without
//! cycles. Lists and mappings know their depth, which is limited, so that recursion over a value,
//! dropping it included, takes a known amount of stack. A namespace, which does change, is a number
//! here; the run owns its fields.

use std::cmp::Ordering;
use std::sync::Arc;

use indexmap::IndexMap;

use crate::error::Error;
use crate::meter::{LIST_ELEMENT_BYTES, Meter};

/// The depth of lists and mappings within each other.
pub(crate) const MAX_VALUE_DEPTH: u16 = 150;

/// The meter charges a list at least the size of its values.
const _: () = assert!(size_of::<Value>() <= LIST_ELEMENT_BYTES);

#[derive(Debug, Clone)]
pub(crate) enum Value {
    Undefined,
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(Arc<str>),
    List(Arc<List>),
    Map(Arc<Map>),
    /// The index of a namespace of the run.
    Namespace(usize),
    /// The index of a macro of the template.
    Macro(usize),
    /// The body of the call block with this index.
    Caller(usize),
    /// The index of a loop of the run.
    Loop(usize),
    /// A function by its name.
    Function(&'static str),
}

/// A list, and how deep its elements nest.
#[derive(Debug)]
pub(crate) struct List {
    pub(crate) items: Vec<Value>,
    /// True for a tuple, which prints and formats in another way.
    pub(crate) is_tuple: bool,
    depth: u16,
}

/// A mapping in order of insertion, and how deep its values nest.
#[derive(Debug)]
pub(crate) struct Map {
    pub(crate) entries: IndexMap<Key, Value>,
    depth: u16,
}

/// A key of a mapping. Numbers that are whole are equal to integers, as in Python.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum Key {
    None,
    Bool(bool),
    Int(i128),
    Text(Arc<str>),
}

impl Value {
    pub(crate) fn text(text: impl Into<Arc<str>>) -> Self {
        Self::Text(text.into())
    }

    /// A list of `items`, whose memory the caller has charged.
    pub(crate) fn list(items: Vec<Self>) -> Result<Self, Error> {
        Self::sequence(items, false)
    }

    /// A tuple of `items`, whose memory the caller has charged.
    pub(crate) fn tuple(items: Vec<Self>) -> Result<Self, Error> {
        Self::sequence(items, true)
    }

    fn sequence(items: Vec<Self>, is_tuple: bool) -> Result<Self, Error> {
        let depth = items.iter().map(Self::depth).max().unwrap_or(0) + 1;
        check_depth(depth)?;
        Ok(Self::List(Arc::new(List { items, is_tuple, depth })))
    }

    /// A mapping, whose memory the caller has charged.
    pub(crate) fn map(entries: IndexMap<Key, Self>) -> Result<Self, Error> {
        let depth = entries.values().map(Self::depth).max().unwrap_or(0) + 1;
        check_depth(depth)?;
        Ok(Self::Map(Arc::new(Map { entries, depth })))
    }

    fn depth(&self) -> u16 {
        match self {
            Self::List(list) => list.depth,
            Self::Map(map) => map.depth,
            _ => 0,
        }
    }

    /// Converts JSON. Returns the bytes of its texts, too.
    pub(crate) fn from_json(json: &serde_json::Value) -> Result<(Self, u64), Error> {
        let mut bytes = 0;
        let value = convert(json, &mut bytes, MAX_VALUE_DEPTH)?;
        Ok((value, bytes))
    }

    /// Returns the truth of the value in Python: undefined, none, zero and what is empty are false.
    pub(crate) fn is_true(&self) -> bool {
        match self {
            Self::Undefined | Self::None => false,
            Self::Bool(value) => *value,
            Self::Int(value) => *value != 0,
            Self::Float(value) => *value != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Map(map) => !map.entries.is_empty(),
            _ => true,
        }
    }

    pub(crate) fn as_text(&self) -> Option<&Arc<str>> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    /// The value as an integer, booleans included as in Python.
    pub(crate) fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(value) => Some(*value),
            Self::Bool(value) => Some(i128::from(*value)),
            _ => None,
        }
    }

    pub(crate) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(value) => Some(*value),
            _ => self.as_int().map(|value| value as f64),
        }
    }

    /// The name of the type, for messages.
    pub(crate) fn kind(&self) -> &'static str {
        match self {
            Self::Undefined => "undefined",
            Self::None => "none",
            Self::Bool(_) => "boolean",
            Self::Int(_) => "integer",
            Self::Float(_) => "float",
            Self::Text(_) => "string",
            Self::List(_) => "list",
            Self::Map(_) => "mapping",
            Self::Namespace(_) => "namespace",
            Self::Macro(_) | Self::Caller(_) => "macro",
            Self::Loop(_) => "loop",
            Self::Function(_) => "function",
        }
    }

    /// The value as a key of a mapping.
    pub(crate) fn to_key(&self) -> Result<Key, Error> {
        match self {
            Self::None => Ok(Key::None),
            Self::Bool(value) => Ok(Key::Bool(*value)),
            Self::Int(value) => Ok(Key::Int(*value)),
            Self::Float(value) if value.fract() == 0.0 && value.abs() < 1e30 => {
                Ok(Key::Int(*value as i128))
            }
            Self::Text(text) => Ok(Key::Text(Arc::clone(text))),
            _ => Err(Error::failed(format!("a {} cannot be a key", self.kind()))),
        }
    }

    /// Returns true if two values are equal, as in Python.
    pub(crate) fn equals(&self, other: &Self, meter: &Meter) -> Result<bool, Error> {
        meter.step(1)?;
        Ok(match (self, other) {
            (Self::Undefined, Self::Undefined) | (Self::None, Self::None) => true,
            (Self::Text(a), Self::Text(b)) => {
                meter.scan(a.len().min(b.len()))?;
                a == b
            }
            (Self::List(a), Self::List(b)) => {
                if a.items.len() != b.items.len() {
                    return Ok(false);
                }
                for (a, b) in a.items.iter().zip(&b.items) {
                    if !a.equals(b, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Map(a), Self::Map(b)) => {
                if a.entries.len() != b.entries.len() {
                    return Ok(false);
                }
                for (key, a) in &a.entries {
                    let Some(b) = b.entries.get(key) else { return Ok(false) };
                    if !a.equals(b, meter)? {
                        return Ok(false);
                    }
                }
                true
            }
            (Self::Namespace(a), Self::Namespace(b))
            | (Self::Macro(a), Self::Macro(b))
            | (Self::Caller(a), Self::Caller(b))
            | (Self::Loop(a), Self::Loop(b)) => a == b,
            (Self::Function(a), Self::Function(b)) => a == b,
            _ => match (self.as_int(), other.as_int()) {
                (Some(a), Some(b)) => a == b,
                #[expect(clippy::float_cmp, reason = "equality as in Python")]
                _ => match (self.as_float(), other.as_float()) {
                    (Some(a), Some(b)) => a == b,
                    _ => false,
                },
            },
        })
    }

    /// The order of two numbers, texts or lists.
    pub(crate) fn compare(&self, other: &Self, meter: &Meter) -> Result<Ordering, Error> {
        meter.step(1)?;
        let unordered =
            || Error::failed(format!("a {} and a {} have no order", self.kind(), other.kind()));
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => {
                meter.scan(a.len().min(b.len()))?;
                Ok(a.cmp(b))
            }
            (Self::List(a), Self::List(b)) => {
                for (a, b) in a.items.iter().zip(&b.items) {
                    let order = a.compare(b, meter)?;
                    if order.is_ne() {
                        return Ok(order);
                    }
                }
                Ok(a.items.len().cmp(&b.items.len()))
            }
            _ => match (self.as_int(), other.as_int()) {
                (Some(a), Some(b)) => Ok(a.cmp(&b)),
                _ => match (self.as_float(), other.as_float()) {
                    (Some(a), Some(b)) => a.partial_cmp(&b).ok_or_else(unordered),
                    _ => Err(unordered()),
                },
            },
        }
    }
}

impl Key {
    pub(crate) fn to_value(&self) -> Value {
        match self {
            Self::None => Value::None,
            Self::Bool(value) => Value::Bool(*value),
            Self::Int(value) => Value::Int(*value),
            Self::Text(text) => Value::Text(Arc::clone(text)),
        }
    }
}

fn check_depth(depth: u16) -> Result<(), Error> {
    if depth > MAX_VALUE_DEPTH { Err(too_deep()) } else { Ok(()) }
}

fn too_deep() -> Error {
    Error::failed(format!("lists and mappings nest deeper than {MAX_VALUE_DEPTH}"))
}

fn convert(json: &serde_json::Value, bytes: &mut u64, depth: u16) -> Result<Value, Error> {
    let below = || depth.checked_sub(1).ok_or_else(too_deep);
    *bytes += size_of::<Value>() as u64;
    Ok(match json {
        serde_json::Value::Null => Value::None,
        serde_json::Value::Bool(value) => Value::Bool(*value),
        serde_json::Value::Number(number) => match (number.as_i64(), number.as_u64()) {
            (Some(value), _) => Value::Int(value.into()),
            (None, Some(value)) => Value::Int(value.into()),
            (None, None) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
        },
        serde_json::Value::String(text) => {
            *bytes += text.len() as u64;
            Value::text(text.as_str())
        }
        serde_json::Value::Array(items) => {
            let depth = below()?;
            let items = items.iter().map(|item| convert(item, bytes, depth));
            Value::list(items.collect::<Result<_, _>>()?)?
        }
        serde_json::Value::Object(fields) => {
            let depth = below()?;
            let mut entries = IndexMap::with_capacity(fields.len());
            for (key, value) in fields {
                *bytes += key.len() as u64;
                entries.insert(Key::Text(key.as_str().into()), convert(value, bytes, depth)?);
            }
            Value::map(entries)?
        }
    })
}
