//! Metadata values: the thirteen kinds of the format, owned.

use std::fmt;

/// A metadata value.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the value types of the format, by name")]
pub enum Value {
    U8(u8),
    I8(i8),
    U16(u16),
    I16(i16),
    U32(u32),
    I32(i32),
    F32(f32),
    Bool(bool),
    String(String),
    Array(Array),
    U64(u64),
    I64(i64),
    F64(f64),
}

impl Value {
    /// The kind of the value.
    pub const fn kind(&self) -> ValueKind {
        match self {
            Self::U8(_) => ValueKind::U8,
            Self::I8(_) => ValueKind::I8,
            Self::U16(_) => ValueKind::U16,
            Self::I16(_) => ValueKind::I16,
            Self::U32(_) => ValueKind::U32,
            Self::I32(_) => ValueKind::I32,
            Self::F32(_) => ValueKind::F32,
            Self::Bool(_) => ValueKind::Bool,
            Self::String(_) => ValueKind::String,
            Self::Array(_) => ValueKind::Array,
            Self::U64(_) => ValueKind::U64,
            Self::I64(_) => ValueKind::I64,
            Self::F64(_) => ValueKind::F64,
        }
    }

    /// The number, if the value is an integer of any width.
    pub const fn as_integer(&self) -> Option<i128> {
        Some(match *self {
            Self::U8(value) => value as i128,
            Self::I8(value) => value as i128,
            Self::U16(value) => value as i128,
            Self::I16(value) => value as i128,
            Self::U32(value) => value as i128,
            Self::I32(value) => value as i128,
            Self::U64(value) => value as i128,
            Self::I64(value) => value as i128,
            _ => return None,
        })
    }

    /// The number as a float, if the value is a number of any type.
    pub const fn as_float(&self) -> Option<f64> {
        match *self {
            Self::F32(value) => Some(value as f64),
            Self::F64(value) => Some(value),
            _ => match self.as_integer() {
                Some(value) => Some(value as f64),
                None => None,
            },
        }
    }

    /// The text, if the value is a string.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::String(text) => Some(text),
            _ => None,
        }
    }

    /// The elements, if the value is an array.
    pub const fn as_array(&self) -> Option<&Array> {
        match self {
            Self::Array(array) => Some(array),
            _ => None,
        }
    }
}

/// A metadata array with elements of one kind.
#[derive(Clone, Debug, PartialEq)]
#[expect(missing_docs, reason = "the variants are the element types of the format, by name")]
pub enum Array {
    U8(Vec<u8>),
    I8(Vec<i8>),
    U16(Vec<u16>),
    I16(Vec<i16>),
    U32(Vec<u32>),
    I32(Vec<i32>),
    F32(Vec<f32>),
    Bool(Vec<bool>),
    String(StringArray),
    Array(Vec<Self>),
    U64(Vec<u64>),
    I64(Vec<i64>),
    F64(Vec<f64>),
}

impl Array {
    /// The kind of the elements.
    pub const fn element_kind(&self) -> ValueKind {
        match self {
            Self::U8(_) => ValueKind::U8,
            Self::I8(_) => ValueKind::I8,
            Self::U16(_) => ValueKind::U16,
            Self::I16(_) => ValueKind::I16,
            Self::U32(_) => ValueKind::U32,
            Self::I32(_) => ValueKind::I32,
            Self::F32(_) => ValueKind::F32,
            Self::Bool(_) => ValueKind::Bool,
            Self::String(_) => ValueKind::String,
            Self::Array(_) => ValueKind::Array,
            Self::U64(_) => ValueKind::U64,
            Self::I64(_) => ValueKind::I64,
            Self::F64(_) => ValueKind::F64,
        }
    }

    /// The number of elements.
    pub const fn len(&self) -> usize {
        match self {
            Self::U8(items) => items.len(),
            Self::I8(items) => items.len(),
            Self::U16(items) => items.len(),
            Self::I16(items) => items.len(),
            Self::U32(items) => items.len(),
            Self::I32(items) => items.len(),
            Self::F32(items) => items.len(),
            Self::Bool(items) => items.len(),
            Self::String(items) => items.len(),
            Self::Array(items) => items.len(),
            Self::U64(items) => items.len(),
            Self::I64(items) => items.len(),
            Self::F64(items) => items.len(),
        }
    }

    /// Returns true if the array is empty.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The elements, if they are integers of any width.
    pub fn integers(&self) -> Option<Box<dyn Iterator<Item = i128> + '_>> {
        Some(match self {
            Self::U8(items) => Box::new(items.iter().map(|&item| item.into())),
            Self::I8(items) => Box::new(items.iter().map(|&item| item.into())),
            Self::U16(items) => Box::new(items.iter().map(|&item| item.into())),
            Self::I16(items) => Box::new(items.iter().map(|&item| item.into())),
            Self::U32(items) => Box::new(items.iter().map(|&item| item.into())),
            Self::I32(items) => Box::new(items.iter().map(|&item| item.into())),
            Self::U64(items) => Box::new(items.iter().map(|&item| item.into())),
            Self::I64(items) => Box::new(items.iter().map(|&item| item.into())),
            _ => return None,
        })
    }

    /// One element as a separate value; `None` past the end.
    pub fn value(&self, index: usize) -> Option<Value> {
        Some(match self {
            Self::U8(items) => Value::U8(*items.get(index)?),
            Self::I8(items) => Value::I8(*items.get(index)?),
            Self::U16(items) => Value::U16(*items.get(index)?),
            Self::I16(items) => Value::I16(*items.get(index)?),
            Self::U32(items) => Value::U32(*items.get(index)?),
            Self::I32(items) => Value::I32(*items.get(index)?),
            Self::F32(items) => Value::F32(*items.get(index)?),
            Self::Bool(items) => Value::Bool(*items.get(index)?),
            Self::String(items) => Value::String(items.get(index)?.to_owned()),
            Self::Array(items) => Value::Array(items.get(index)?.clone()),
            Self::U64(items) => Value::U64(*items.get(index)?),
            Self::I64(items) => Value::I64(*items.get(index)?),
            Self::F64(items) => Value::F64(*items.get(index)?),
        })
    }
}

/// Many strings in one allocation. A vocabulary has about 150 000 of them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct StringArray {
    text: Box<str>,
    // ends[i] is where string i ends and string i + 1 starts; always a character boundary.
    ends: Box<[u32]>,
}

impl StringArray {
    /// The ends must ascend, lie on character boundaries, and end with the length of the text.
    pub(crate) fn from_parts(text: String, ends: Vec<u32>) -> Self {
        Self { text: text.into(), ends: ends.into() }
    }

    /// The number of strings.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Returns true if the array is empty.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`; `None` past the end.
    pub fn get(&self, index: usize) -> Option<&str> {
        let end = *self.ends.get(index)? as usize;
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before] as usize);
        self.text.get(start..end)
    }

    /// The strings in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + DoubleEndedIterator + Clone {
        (0..self.len()).map(|index| self.get(index).unwrap_or_default())
    }

    /// The total length of the strings.
    pub const fn text_bytes(&self) -> usize {
        self.text.len()
    }
}

impl<S: AsRef<str>> FromIterator<S> for StringArray {
    /// # Panics
    ///
    /// When the strings take more than 4 GiB together. The reader refuses such arrays.
    fn from_iter<I: IntoIterator<Item = S>>(strings: I) -> Self {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for string in strings {
            text.push_str(string.as_ref());
            ends.push(u32::try_from(text.len()).expect("the strings of an array fit in 4 GiB"));
        }
        Self::from_parts(text, ends)
    }
}

impl fmt::Debug for StringArray {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

/// The kinds of values, with their ids in the format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u32)]
#[expect(missing_docs, reason = "the variants are the value types of the format, by name")]
pub enum ValueKind {
    U8 = 0,
    I8 = 1,
    U16 = 2,
    I16 = 3,
    U32 = 4,
    I32 = 5,
    F32 = 6,
    Bool = 7,
    String = 8,
    Array = 9,
    U64 = 10,
    I64 = 11,
    F64 = 12,
}

impl ValueKind {
    /// Every kind, by id.
    pub const ALL: [Self; 13] = [
        Self::U8,
        Self::I8,
        Self::U16,
        Self::I16,
        Self::U32,
        Self::I32,
        Self::F32,
        Self::Bool,
        Self::String,
        Self::Array,
        Self::U64,
        Self::I64,
        Self::F64,
    ];

    /// The kind with this id.
    pub fn from_id(id: u32) -> Option<Self> {
        Self::ALL.get(usize::try_from(id).ok()?).copied()
    }

    /// The id in the file.
    pub const fn id(self) -> u32 {
        self as u32
    }

    /// The minimum size of a value of this kind in a file.
    pub(crate) const fn min_bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }
}

impl fmt::Display for ValueKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::U16 => "u16",
            Self::I16 => "i16",
            Self::U32 => "u32",
            Self::I32 => "i32",
            Self::F32 => "f32",
            Self::Bool => "bool",
            Self::String => "string",
            Self::Array => "array",
            Self::U64 => "u64",
            Self::I64 => "i64",
            Self::F64 => "f64",
        })
    }
}

macro_rules! value_from {
    ($($variant:ident $scalar:ty),+ $(,)?) => {$(
        impl From<$scalar> for Value {
            fn from(value: $scalar) -> Self {
                Self::$variant(value)
            }
        }

        impl From<Vec<$scalar>> for Value {
            fn from(items: Vec<$scalar>) -> Self {
                Self::Array(Array::$variant(items))
            }
        }
    )+};
}

value_from!(U8 u8, I8 i8, U16 u16, I16 i16, U32 u32, I32 i32, F32 f32, Bool bool, U64 u64, I64 i64, F64 f64);

impl From<&str> for Value {
    fn from(text: &str) -> Self {
        Self::String(text.to_owned())
    }
}

impl From<String> for Value {
    fn from(text: String) -> Self {
        Self::String(text)
    }
}

impl From<StringArray> for Value {
    fn from(strings: StringArray) -> Self {
        Self::Array(Array::String(strings))
    }
}

impl From<Array> for Value {
    fn from(array: Array) -> Self {
        Self::Array(array)
    }
}
