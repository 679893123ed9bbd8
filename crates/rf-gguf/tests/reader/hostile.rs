//! The reader returns a result for any bytes and does not panic.

use proptest::prelude::*;
use rf_gguf::{Gguf, GgufWriter, Value};
use rf_quant::DType;

use crate::raw::{Raw, kind, valid};

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn a_file_cut_at_any_byte_is_refused() {
    let valid = valid();
    assert!(Gguf::from_bytes(valid.clone()).is_ok());
    for length in 0..valid.len() {
        assert!(Gguf::from_bytes(valid[..length].to_vec()).is_err(), "cut to {length} bytes");
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn every_value_of_every_byte_is_answered() {
    let valid = valid();
    for at in 0..valid.len() {
        for value in 0..=255 {
            let mut bytes = valid.clone();
            bytes[at] = value;
            touch(bytes);
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "takes minutes under Miri")]
fn a_name_may_have_65535_bytes_and_no_more() {
    let file =
        |length: usize| Raw::header(3, 0, 1).key(&"k".repeat(length), kind::U8).u8(1).build();
    assert!(Gguf::from_bytes(file(65_535)).is_ok());
    let error = Gguf::from_bytes(file(65_536)).unwrap_err().to_string();
    assert_eq!(
        error,
        "at byte 24: metadata entry 0: the name has 65536 bytes, more than the 65535 allowed"
    );
}

/// Miri is slow.
const CASES: u32 = if cfg!(miri) { 4 } else { 2000 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    #[test]
    fn arbitrary_bytes_are_answered(bytes in prop::collection::vec(any::<u8>(), 0..512)) {
        touch(bytes);
    }

    #[test]
    fn arbitrary_bytes_after_a_header_are_answered(
        tensors in 0..4_u64,
        entries in 0..4_u64,
        bytes in prop::collection::vec(prop_oneof![3 => 0..14_u8, 1 => any::<u8>()], 0..512),
    ) {
        touch(Raw::header(3, tensors, entries).bytes(&bytes).build());
    }

    #[test]
    fn mutated_files_are_answered(
        edits in prop::collection::vec((any::<prop::sample::Index>(), edit()), 1..6),
    ) {
        let mut bytes = valid();
        for (at, edit) in edits {
            apply(&mut bytes, at, edit);
        }
        touch(bytes);
    }

    #[test]
    fn what_is_written_is_read_back(
        entries in prop::collection::btree_map("[a-z.]{1,12}", value(), 0..8),
        tensors in prop::collection::btree_map("[a-z.]{1,12}", tensor(), 0..8),
    ) {
        let mut writer = GgufWriter::new();
        for (key, value) in &entries {
            writer.add(key.clone(), value.clone()).unwrap();
        }
        for (name, (dtype, blocks, rows)) in &tensors {
            let shape = [blocks * dtype.block_elements() as u64, *rows];
            writer.add_tensor(name.clone(), &shape, *dtype).unwrap();
        }
        let mut file = Vec::new();
        writer
            .write_to(&mut file, |tensor, out| {
                Ok(out.write_all(&vec![tensor.name().len() as u8; tensor.size_bytes() as usize])?)
            })
            .unwrap();
        let model = Gguf::from_bytes(file).unwrap();
        for (key, value) in &entries {
            // Compared as text, because a NaN is not equal to itself.
            prop_assert_eq!(format!("{:?}", model.metadata().get(key)), format!("{:?}", Some(value)));
        }
        prop_assert_eq!(model.tensors().len(), tensors.len());
        for (name, (dtype, blocks, rows)) in &tensors {
            let tensor = model.required_tensor(name).unwrap();
            prop_assert_eq!(tensor.dtype().unwrap(), *dtype);
            prop_assert_eq!(tensor.size_bytes() as u64, blocks * rows * dtype.block_bytes() as u64);
            prop_assert!(tensor.data().iter().all(|&byte| byte == name.len() as u8));
        }
    }
}

/// Opens the bytes and, if they are accepted, reads all contents.
fn touch(bytes: Vec<u8>) {
    if let Ok(model) = Gguf::from_bytes(bytes) {
        for (key, value) in model.metadata().iter() {
            assert_eq!(model.metadata().get(key).unwrap().kind(), value.kind());
            if let Some(array) = value.as_array() {
                assert!((0..array.len()).all(|index| array.value(index).is_some()));
            }
        }
        for tensor in model.tensors() {
            assert_eq!(model.data(tensor).len(), tensor.size_bytes());
            assert!(tensor.elements() > 0);
            assert_eq!(model.tensor(tensor.name()).unwrap().file_offset(), tensor.file_offset());
        }
    }
}

#[derive(Clone, Debug)]
enum Edit {
    Byte(u8),
    Word(u64),
    Insert(Vec<u8>),
    Remove(usize),
}

fn edit() -> impl Strategy<Value = Edit> {
    prop_oneof![
        any::<u8>().prop_map(Edit::Byte),
        prop_oneof![any::<u64>(), 0..64_u64, Just(u64::MAX), (0..64_u32).prop_map(|bit| 1 << bit)]
            .prop_map(Edit::Word),
        prop::collection::vec(any::<u8>(), 1..16).prop_map(Edit::Insert),
        (1..64_usize).prop_map(Edit::Remove),
    ]
}

fn apply(bytes: &mut Vec<u8>, at: prop::sample::Index, edit: Edit) {
    if bytes.is_empty() {
        return;
    }
    let at = at.index(bytes.len());
    match edit {
        Edit::Byte(value) => bytes[at] = value,
        Edit::Word(value) => {
            for (to, from) in bytes[at..].iter_mut().zip(value.to_le_bytes()) {
                *to = from;
            }
        }
        Edit::Insert(inserted) => {
            bytes.splice(at..at, inserted);
        }
        Edit::Remove(count) => {
            let end = (at + count).min(bytes.len());
            bytes.drain(at..end);
        }
    }
}

fn value() -> impl Strategy<Value = Value> {
    prop_oneof![
        any::<u8>().prop_map(Value::from),
        any::<i8>().prop_map(Value::from),
        any::<u16>().prop_map(Value::from),
        any::<i16>().prop_map(Value::from),
        any::<u32>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<f32>().prop_map(Value::from),
        any::<bool>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::collection::vec(any::<bool>(), 0..9).prop_map(Value::from),
        prop::collection::vec(any::<i16>(), 0..9).prop_map(Value::from),
        prop::collection::vec(any::<f64>(), 0..9).prop_map(Value::from),
        prop::collection::vec(any::<String>(), 0..9)
            .prop_map(|strings| strings.iter().collect::<rf_gguf::StringArray>().into()),
    ]
}

/// Format, blocks per row, rows.
fn tensor() -> impl Strategy<Value = (DType, u64, u64)> {
    (prop::sample::select(&DType::ALL[..]), 1..4_u64, 1..4_u64)
}
