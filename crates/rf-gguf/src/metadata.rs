//! The key-value section: ordered, with lookup by name and typed accessors.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::{Error, Problem, Subject};
use crate::value::{Array, StringArray, Value};

/// The metadata of a model, in the order of the file.
///
/// The typed accessors return `Ok(None)` for a missing key and an error that names the key for a
/// value of another kind. Integers are accepted in any width that fits, because writers choose
/// different ones. The `required_` forms return an error for a missing key.
#[derive(Clone, Debug, Default)]
pub struct Metadata {
    entries: Vec<MetadataEntry>,
    // Indices into `entries`, sorted by key.
    by_key: Vec<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct MetadataEntry {
    pub(crate) key: Box<str>,
    pub(crate) value: Value,
    /// The offset of the key in the file.
    pub(crate) offset: u64,
    /// Whether the key was looked up, for an entry that the file does not have. Clones share it.
    pub(crate) looked_up: Option<Arc<AtomicBool>>,
}

/// A name that occurs a second time, by its index among the items.
pub(crate) struct Duplicate(pub(crate) usize);

macro_rules! accessors {
    ($($name:ident, $required:ident -> $type:ty, $what:literal;)+) => {$(
        #[doc = concat!("The ", $what, " at `key`, if there is one.")]
        ///
        /// # Errors
        ///
        /// When the value is of another kind or does not fit.
        pub fn $name(&self, key: &str) -> Result<Option<$type>, Error> {
            self.get(key).map(|value| <$type>::read(key, value)).transpose()
        }

        #[doc = concat!("The ", $what, " at `key`.")]
        ///
        /// # Errors
        ///
        /// When the key is missing, or the value is of another kind or does not fit.
        pub fn $required(&self, key: &str) -> Result<$type, Error> {
            self.$name(key)?.ok_or_else(|| Error::MissingKey { key: key.to_owned() })
        }
    )+};
}

impl Metadata {
    /// Keeps the entries and indexes their keys, each of which must occur once.
    pub(crate) fn new(entries: Vec<MetadataEntry>) -> Result<Self, Error> {
        let by_key = index_by_name(&entries, |entry| &entry.key).map_err(|Duplicate(index)| {
            let MetadataEntry { key, offset, .. } = &entries[index];
            Error::Malformed {
                offset: *offset,
                subject: Subject::Key(key.to_string()),
                problem: Problem::DuplicateKey,
            }
        })?;
        Ok(Self { entries, by_key })
    }

    /// Keys and values in the order of the file.
    pub fn iter(
        &self,
    ) -> impl ExactSizeIterator<Item = (&str, &Value)> + DoubleEndedIterator + Clone {
        self.entries.iter().map(|entry| (&*entry.key, &entry.value))
    }

    /// The value at `key`, whatever its kind.
    pub fn get(&self, key: &str) -> Option<&Value> {
        self.entry(key).map(|entry| &entry.value)
    }

    /// Keys that [`Gguf::override_metadata`](crate::Gguf::override_metadata) added to those of the
    /// file, and that nothing has looked up so far. Such a key has no effect: it may be misspelt.
    pub fn unused_overrides(&self) -> impl Iterator<Item = &str> {
        let is_unused = |entry: &&MetadataEntry| {
            entry.looked_up.as_ref().is_some_and(|looked_up| !looked_up.load(Ordering::Relaxed))
        };
        self.entries.iter().filter(is_unused).map(|entry| &*entry.key)
    }

    /// Returns true if the key exists.
    pub fn contains(&self, key: &str) -> bool {
        self.entry(key).is_some()
    }

    accessors! {
        u32, required_u32 -> u32, "unsigned integer";
        u64, required_u64 -> u64, "unsigned integer";
        i64, required_i64 -> i64, "integer";
        f32, required_f32 -> f32, "number, rounded to `f32`";
        bool, required_bool -> bool, "bool";
        str, required_str -> &str, "string";
        strings, required_strings -> &StringArray, "array of strings";
        u32s, required_u32s -> Cow<'_, [u32]>, "array of unsigned integers";
        i32s, required_i32s -> Cow<'_, [i32]>, "array of integers";
        f32s, required_f32s -> Cow<'_, [f32]>, "array of numbers, rounded to `f32`";
    }

    /// Replaces the value at `key`, or adds it at the end.
    pub(crate) fn set(&mut self, key: &str, value: Value) {
        let compare = |&index: &usize| (*self.entries[index].key).cmp(key);
        match self.by_key.binary_search_by(compare) {
            Ok(place) => self.entries[self.by_key[place]].value = value,
            Err(place) => {
                self.by_key.insert(place, self.entries.len());
                self.entries.push(MetadataEntry {
                    key: key.into(),
                    value,
                    offset: 0,
                    looked_up: Some(Arc::default()),
                });
            }
        }
    }

    pub(crate) fn entry(&self, key: &str) -> Option<&MetadataEntry> {
        let find = |&index: &usize| (*self.entries[index].key).cmp(key);
        let place = self.by_key.binary_search_by(find).ok()?;
        let entry = &self.entries[self.by_key[place]];
        if let Some(looked_up) = &entry.looked_up {
            looked_up.store(true, Ordering::Relaxed);
        }
        Some(entry)
    }
}

/// Indices of `items` sorted by name, or the later one of two with the same name.
pub(crate) fn index_by_name<T>(
    items: &[T],
    name: impl Fn(&T) -> &str,
) -> Result<Vec<usize>, Duplicate> {
    let mut order: Vec<usize> = (0..items.len()).collect();
    order.sort_unstable_by(|&a, &b| name(&items[a]).cmp(name(&items[b])).then(a.cmp(&b)));
    match order.windows(2).find(|pair| name(&items[pair[0]]) == name(&items[pair[1]])) {
        Some(pair) => Err(Duplicate(pair[1])),
        None => Ok(order),
    }
}

/// Conversion of a value to the type of an accessor.
trait Read<'a>: Sized {
    fn read(key: &str, value: &'a Value) -> Result<Self, Error>;
}

fn wrong_kind(key: &str, expected: &'static str, value: &Value) -> Error {
    Error::WrongKind { key: key.to_owned(), expected, found: value.kind() }
}

fn fit<T: TryFrom<i128>>(key: &str, value: i128, expected: &'static str) -> Result<T, Error> {
    T::try_from(value).map_err(|_| Error::OutOfRange { key: key.to_owned(), value, expected })
}

macro_rules! read_integer {
    ($($type:ident)+) => {$(
        impl Read<'_> for $type {
            fn read(key: &str, value: &Value) -> Result<Self, Error> {
                let number = value.as_integer().ok_or_else(|| wrong_kind(key, "an integer", value))?;
                fit(key, number, stringify!($type))
            }
        }
    )+};
}

read_integer!(u32 u64 i64);

impl Read<'_> for f32 {
    fn read(key: &str, value: &Value) -> Result<Self, Error> {
        let number = value.as_float().ok_or_else(|| wrong_kind(key, "a number", value))?;
        Ok(number as Self)
    }
}

impl Read<'_> for bool {
    fn read(key: &str, value: &Value) -> Result<Self, Error> {
        match value {
            Value::Bool(value) => Ok(*value),
            _ => Err(wrong_kind(key, "a bool", value)),
        }
    }
}

impl<'a> Read<'a> for &'a str {
    fn read(key: &str, value: &'a Value) -> Result<Self, Error> {
        value.as_str().ok_or_else(|| wrong_kind(key, "a string", value))
    }
}

impl<'a> Read<'a> for &'a StringArray {
    fn read(key: &str, value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Array(Array::String(strings)) => Ok(strings),
            _ => Err(wrong_element(key, "an array of strings", value)),
        }
    }
}

macro_rules! read_integers {
    ($($type:ident $variant:ident)+) => {$(
        impl<'a> Read<'a> for Cow<'a, [$type]> {
            fn read(key: &str, value: &'a Value) -> Result<Self, Error> {
                let array =
                    value.as_array().ok_or_else(|| wrong_kind(key, "an array", value))?;
                if let Array::$variant(items) = array {
                    return Ok(Cow::Borrowed(items));
                }
                let items = array
                    .integers()
                    .ok_or_else(|| wrong_element(key, "an array of integers", value))?;
                items.map(|item| fit(key, item, stringify!($type))).collect()
            }
        }
    )+};
}

read_integers!(u32 U32 i32 I32);

impl<'a> Read<'a> for Cow<'a, [f32]> {
    fn read(key: &str, value: &'a Value) -> Result<Self, Error> {
        match value {
            Value::Array(Array::F32(items)) => Ok(Cow::Borrowed(items)),
            Value::Array(Array::F64(items)) => Ok(items.iter().map(|&item| item as f32).collect()),
            _ => Err(wrong_element(key, "an array of floats", value)),
        }
    }
}

/// As [`wrong_kind`]. For an array, the error names the kind of its elements.
fn wrong_element(key: &str, expected: &'static str, value: &Value) -> Error {
    match value {
        Value::Array(array) => {
            Error::WrongElementKind { key: key.to_owned(), expected, found: array.element_kind() }
        }
        _ => wrong_kind(key, expected, value),
    }
}
