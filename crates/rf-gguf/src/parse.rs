//! Parses one file: header, metadata, tensor table. Each field is checked before use.

use std::sync::Arc;

use crate::cursor::{Cursor, Fault};
use crate::data::FileBytes;
use crate::error::{Error, Problem, Subject};
use crate::metadata::{Metadata, MetadataEntry};
use crate::tensor::{MAX_DIMENSIONS, TensorInfo, TensorShape};
use crate::tensor_type::TensorType;
use crate::value::{Array, StringArray, Value, ValueKind};

pub(crate) const MAGIC: [u8; 4] = *b"GGUF";
pub(crate) const ALIGNMENT_KEY: &str = "general.alignment";
pub(crate) const DEFAULT_ALIGNMENT: u64 = 32;
/// Larger padding is useless and would let a tiny file describe a huge one.
pub(crate) const MAX_ALIGNMENT: u64 = 1 << 20;
/// The nesting limit of arrays, which bounds the recursion. No known file nests arrays.
pub(crate) const MAX_ARRAY_DEPTH: usize = 4;

/// The minimum size of a metadata entry (key of one byte, value type, value of one byte) and of a
/// tensor entry (name of one byte, one axis).
const MIN_ENTRY_BYTES: u64 = 8 + 1 + 4 + 1;
const MIN_TENSOR_BYTES: u64 = 8 + 1 + 4 + 8 + 4 + 8;

/// The contents of a file.
pub(crate) struct Parsed {
    pub(crate) version: u32,
    pub(crate) alignment: u64,
    pub(crate) metadata: Metadata,
    pub(crate) tensors: Vec<TensorInfo>,
}

/// Parses one file.
pub(crate) fn parse(source: &Arc<FileBytes>) -> Result<Parsed, Error> {
    let mut cursor = Cursor::new(source, 0);
    let version = version(&mut cursor, source)?;
    let header = |fault: Fault| fault.about(Subject::Header);
    let tensor_count = cursor.count(MIN_TENSOR_BYTES).map_err(header)?;
    let entry_count = cursor.count(MIN_ENTRY_BYTES).map_err(header)?;

    let metadata = metadata(&mut cursor, entry_count)?;
    let alignment = alignment(&metadata)?;

    let mut entries = Vec::new();
    for index in 0..tensor_count {
        reserve_next(&mut entries, tensor_count);
        entries.push(tensor_entry(&mut cursor, index, alignment)?);
    }
    let data_start = cursor.offset().next_multiple_of(alignment);
    let tensors = place_tensors(&entries, data_start, source)?;
    Ok(Parsed { version, alignment, metadata, tensors })
}

/// Reserves memory for the next of `count` items. It reserves in steps, so that a false count
/// allocates little, and never more than `count`.
fn reserve_next<T>(items: &mut Vec<T>, count: u64) {
    if items.len() == items.capacity() {
        let missing = count.saturating_sub(items.len() as u64) as usize;
        items.reserve_exact(missing.min(items.len().max(64)));
    }
}

fn version(cursor: &mut Cursor<'_>, bytes: &[u8]) -> Result<u32, Error> {
    if bytes.is_empty() {
        return Err(Error::Empty);
    }
    let magic = &bytes[..bytes.len().min(MAGIC.len())];
    if magic != &MAGIC[..magic.len()] {
        let mut found = [0; 16];
        for (to, from) in found.iter_mut().zip(bytes) {
            *to = *from;
        }
        return Err(Error::NotGguf { found });
    }
    let header = |fault: Fault| fault.about(Subject::Header);
    cursor.take(MAGIC.len() as u64).map_err(header)?;
    let version = cursor.u32().map_err(header)?;
    match version {
        2 | 3 => Ok(version),
        // No version is a multiple of 65536, so the low half reveals the byte order.
        _ if version != 0 && version.trailing_zeros() >= 16 => {
            Err(Error::BigEndian { version: version.swap_bytes() })
        }
        _ => Err(Error::Version { version }),
    }
}

fn metadata(cursor: &mut Cursor<'_>, count: u64) -> Result<Metadata, Error> {
    let mut entries = Vec::new();
    for index in 0..count {
        reserve_next(&mut entries, count);
        let offset = cursor.offset();
        let key = cursor.name().map_err(|fault| fault.about(Subject::Entry(index)))?;
        let value = value(cursor).map_err(|fault| fault.about(Subject::Key(key.to_owned())))?;
        entries.push(MetadataEntry { key: key.into(), value, offset, looked_up: None });
    }
    Metadata::new(entries)
}

fn value(cursor: &mut Cursor<'_>) -> Result<Value, Fault> {
    Ok(match value_kind(cursor)? {
        ValueKind::U8 => Value::U8(cursor.u8()?),
        ValueKind::I8 => Value::I8(cursor.u8()?.cast_signed()),
        ValueKind::U16 => Value::U16(cursor.u16()?),
        ValueKind::I16 => Value::I16(cursor.u16()?.cast_signed()),
        ValueKind::U32 => Value::U32(cursor.u32()?),
        ValueKind::I32 => Value::I32(cursor.u32()?.cast_signed()),
        ValueKind::F32 => Value::F32(f32::from_bits(cursor.u32()?)),
        ValueKind::Bool => Value::Bool(cursor.bool()?),
        ValueKind::String => Value::String(cursor.text()?.to_owned()),
        ValueKind::Array => Value::Array(array(cursor, 1)?),
        ValueKind::U64 => Value::U64(cursor.u64()?),
        ValueKind::I64 => Value::I64(cursor.u64()?.cast_signed()),
        ValueKind::F64 => Value::F64(f64::from_bits(cursor.u64()?)),
    })
}

fn value_kind(cursor: &mut Cursor<'_>) -> Result<ValueKind, Fault> {
    let offset = cursor.offset();
    let id = cursor.u32()?;
    ValueKind::from_id(id).ok_or(Fault { offset, problem: Problem::UnknownValueKind { id } })
}

fn array(cursor: &mut Cursor<'_>, depth: usize) -> Result<Array, Fault> {
    let offset = cursor.offset();
    if depth > MAX_ARRAY_DEPTH {
        return Err(Fault { offset, problem: Problem::ArrayTooDeep { limit: MAX_ARRAY_DEPTH } });
    }
    let kind = value_kind(cursor)?;
    let count = cursor.count(kind.min_bytes())?;
    Ok(match kind {
        ValueKind::U8 => Array::U8(cursor.take(count)?.to_vec()),
        ValueKind::I8 => Array::I8(numbers(cursor, count, i8::from_le_bytes)?),
        ValueKind::U16 => Array::U16(numbers(cursor, count, u16::from_le_bytes)?),
        ValueKind::I16 => Array::I16(numbers(cursor, count, i16::from_le_bytes)?),
        ValueKind::U32 => Array::U32(numbers(cursor, count, u32::from_le_bytes)?),
        ValueKind::I32 => Array::I32(numbers(cursor, count, i32::from_le_bytes)?),
        ValueKind::F32 => Array::F32(numbers(cursor, count, f32::from_le_bytes)?),
        ValueKind::U64 => Array::U64(numbers(cursor, count, u64::from_le_bytes)?),
        ValueKind::I64 => Array::I64(numbers(cursor, count, i64::from_le_bytes)?),
        ValueKind::F64 => Array::F64(numbers(cursor, count, f64::from_le_bytes)?),
        ValueKind::Bool => {
            Array::Bool((0..count).map(|_| cursor.bool()).collect::<Result<_, _>>()?)
        }
        ValueKind::String => Array::String(strings(cursor, count)?),
        ValueKind::Array => {
            let mut items = Vec::new();
            for _ in 0..count {
                reserve_next(&mut items, count);
                items.push(array(cursor, depth + 1)?);
            }
            Array::Array(items)
        }
    })
}

fn numbers<T, const N: usize>(
    cursor: &mut Cursor<'_>,
    count: u64,
    decode: fn([u8; N]) -> T,
) -> Result<Vec<T>, Fault> {
    // `count` has been checked against the rest of the file: no overflow.
    let bytes = cursor.take(count * N as u64)?;
    Ok(bytes.as_chunks::<N>().0.iter().map(|&chunk| decode(chunk)).collect())
}

/// Reads the lengths first, so that text and ends are each allocated and checked once. A vocabulary
/// and its merges are half a million strings.
fn strings(cursor: &mut Cursor<'_>, count: u64) -> Result<StringArray, Fault> {
    let start = cursor.offset();
    let mut walk = cursor.clone();
    let mut ends = Vec::with_capacity(count as usize);
    let mut length_bytes = 0;
    for _ in 0..count {
        let length = walk.u64()?;
        length_bytes += walk.take(length)?.len() as u64;
        let end = u32::try_from(length_bytes).map_err(|_| Fault {
            offset: start,
            problem: Problem::ArrayTooLarge { length_bytes },
        })?;
        ends.push(end);
    }
    let mut text = Vec::with_capacity(length_bytes as usize);
    for _ in 0..count {
        let length = cursor.u64()?;
        text.extend_from_slice(cursor.take(length)?);
    }
    // If the whole is UTF-8 and every string ends where a character does, each string is UTF-8.
    let invalid = match String::from_utf8(text) {
        Ok(text) => match ends.iter().position(|&end| !text.is_char_boundary(end as usize)) {
            None => return Ok(StringArray::from_parts(text, ends)),
            Some(index) => index,
        },
        Err(error) => {
            let valid = error.utf8_error().valid_up_to();
            // An earlier string may end inside a character that the next one completes.
            let text = error.into_bytes();
            let boundary = |&end: &u32| {
                let end = end as usize;
                end < valid && text.get(end).is_some_and(|byte| (0x80..0xc0).contains(byte))
            };
            let split = ends.iter().position(boundary);
            split.unwrap_or_else(|| ends.partition_point(|&end| end as usize <= valid))
        }
    };
    let before = invalid.checked_sub(1).map_or(0, |index| u64::from(ends[index]));
    let offset = start + before + 8 * (invalid as u64 + 1);
    Err(Fault { offset, problem: Problem::InvalidUtf8 })
}

fn alignment(metadata: &Metadata) -> Result<u64, Error> {
    let Some(entry) = metadata.entry(ALIGNMENT_KEY) else {
        return Ok(DEFAULT_ALIGNMENT);
    };
    let alignment = entry.value.as_integer().ok_or_else(|| Error::WrongKind {
        key: ALIGNMENT_KEY.to_owned(),
        expected: "an integer",
        found: entry.value.kind(),
    })?;
    check_alignment(alignment).map_err(|problem| Error::Malformed {
        offset: entry.offset,
        subject: Subject::Key(ALIGNMENT_KEY.to_owned()),
        problem,
    })
}

pub(crate) fn check_alignment(alignment: i128) -> Result<u64, Problem> {
    match u64::try_from(alignment) {
        Ok(bytes) if bytes.is_power_of_two() && bytes <= MAX_ALIGNMENT => Ok(bytes),
        _ => Err(Problem::BadAlignment { alignment, limit: MAX_ALIGNMENT }),
    }
}

/// A checked row of the tensor table.
struct TensorEntry<'a> {
    name: &'a str,
    shape: TensorShape,
    ty: TensorType,
    /// The offset of the data in the data section.
    data_offset: u64,
    /// `None` for a type of unknown block size.
    size_bytes: Option<u64>,
    entry_offset: u64,
}

fn tensor_entry<'a>(
    cursor: &mut Cursor<'a>,
    index: u64,
    alignment: u64,
) -> Result<TensorEntry<'a>, Error> {
    let entry_offset = cursor.offset();
    let name = cursor.name().map_err(|fault| fault.about(Subject::TensorEntry(index)))?;
    let read = |cursor: &mut Cursor<'a>| {
        let count = cursor.u32()?;
        if count == 0 || count as usize > MAX_DIMENSIONS {
            return Err(cursor.fault(Problem::DimensionCount { count: count.into() }));
        }
        let mut lengths = [0; MAX_DIMENSIONS];
        for length in &mut lengths[..count as usize] {
            *length = cursor.u64()?;
        }
        let shape = TensorShape::new(&lengths[..count as usize]);
        let ty = TensorType::from_id(cursor.u32()?);
        let data_offset = cursor.u64()?;
        let rule = |problem| Fault { offset: entry_offset, problem };
        let size_bytes = check_tensor(shape.as_slice(), ty).map_err(rule)?;
        if !data_offset.is_multiple_of(alignment) {
            return Err(rule(Problem::MisalignedData { data_offset, alignment }));
        }
        Ok(TensorEntry { name, shape, ty, data_offset, size_bytes, entry_offset })
    };
    read(cursor).map_err(|fault| fault.about(Subject::Tensor(name.to_owned())))
}

/// Checks shape and type together and returns the size of the data, if the type has a known one.
pub(crate) fn check_tensor(shape: &[u64], ty: TensorType) -> Result<Option<u64>, Problem> {
    if shape.is_empty() || shape.len() > MAX_DIMENSIONS {
        return Err(Problem::DimensionCount { count: shape.len() as u64 });
    }
    if let Some(axis) = shape.iter().position(|&length| length == 0) {
        return Err(Problem::ZeroDimension { axis });
    }
    let overflow = || Problem::SizeOverflow { shape: shape.to_vec() };
    let fits = |&size: &u64| i64::try_from(size).is_ok();
    let elements = shape.iter().try_fold(1_u64, |product, &length| product.checked_mul(length));
    let elements = elements.filter(fits).ok_or_else(overflow)?;
    let Some((block_elements, block_bytes)) = ty.block() else {
        return Ok(None);
    };
    let columns = shape[0];
    if !columns.is_multiple_of(block_elements) {
        return Err(Problem::PartialBlock { columns, block_elements, ty });
    }
    let size_bytes = (elements / block_elements).checked_mul(block_bytes).filter(fits);
    size_bytes.map(Some).ok_or_else(overflow)
}

/// Locates the data of every tensor inside the file and checks that tensors do not overlap.
fn place_tensors(
    entries: &[TensorEntry<'_>],
    data_start: u64,
    source: &Arc<FileBytes>,
) -> Result<Vec<TensorInfo>, Error> {
    let file_bytes = source.len() as u64;
    let mut order: Vec<usize> = (0..entries.len()).collect();
    order.sort_unstable_by_key(|&index| (entries[index].data_offset, index));
    let mut next_in_data = vec![None; entries.len()];
    for pair in order.windows(2) {
        next_in_data[pair[0]] = Some(pair[1]);
    }

    let mut tensors = Vec::with_capacity(entries.len());
    for (entry, next) in entries.iter().zip(next_in_data) {
        let fail = |of: &TensorEntry<'_>, problem| Error::Malformed {
            offset: of.entry_offset,
            subject: Subject::Tensor(of.name.to_owned()),
            problem,
        };
        let next = next.map(|index: usize| &entries[index]);
        let past_end = |end| fail(entry, Problem::DataPastEnd { end, file_bytes });
        let start = data_start.saturating_add(entry.data_offset);
        if start > file_bytes {
            return Err(past_end(start.saturating_add(entry.size_bytes.unwrap_or(0))));
        }
        let limit = next.map_or(file_bytes, |next| data_start.saturating_add(next.data_offset));
        let size_bytes = entry.size_bytes.unwrap_or(limit.min(file_bytes) - start);
        let end = start.saturating_add(size_bytes);
        if end > file_bytes {
            return Err(past_end(end));
        }
        if let Some(next) = next.filter(|_| end > limit) {
            return Err(fail(next, Problem::OverlappingData { other: entry.name.to_owned() }));
        }
        tensors.push(TensorInfo {
            name: entry.name.into(),
            shape: entry.shape,
            ty: entry.ty,
            source: Arc::clone(source),
            // Within the file, whose length is a usize.
            start: start as usize,
            length_bytes: size_bytes as usize,
            entry_offset: entry.entry_offset,
        });
    }
    Ok(tensors)
}
