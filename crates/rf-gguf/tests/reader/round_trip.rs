//! The reader accepts the files of the writer, and a failed write leaves no file.

use std::fs;
use std::path::Path;

use rf_gguf::{Array, Error, Gguf, GgufWriter, MXFP6_LAYOUT_KEY, StringArray, TensorType, Value};
use rf_quant::DType;

#[test]
fn every_kind_of_value_comes_back() {
    let strings: StringArray = ["a", "", "ß"].iter().collect();
    let values: Vec<Value> = vec![
        1_u8.into(),
        (-1_i8).into(),
        2_u16.into(),
        (-2_i16).into(),
        3_u32.into(),
        (-3_i32).into(),
        0.1_f32.into(),
        true.into(),
        "text".into(),
        4_u64.into(),
        (-4_i64).into(),
        0.2_f64.into(),
        vec![1_u8, 2].into(),
        vec![-1_i8].into(),
        vec![1_u16].into(),
        vec![-1_i16].into(),
        vec![1_u32, 9].into(),
        vec![-1_i32].into(),
        vec![0.5_f32].into(),
        vec![true, false].into(),
        strings.into(),
        vec![1_u64].into(),
        vec![-1_i64].into(),
        vec![0.25_f64].into(),
        Array::Array(vec![Array::U8(vec![7]), Array::Array(vec![Array::Bool(vec![])])]).into(),
        Array::U32(Vec::new()).into(),
    ];
    let mut writer = GgufWriter::new();
    for (index, value) in values.iter().enumerate() {
        writer.add(format!("key.{index}"), value.clone()).unwrap();
    }
    let model = Gguf::from_bytes(write(&writer)).unwrap();
    assert!(model.metadata().iter().map(|(_, value)| value).eq(&values));
}

#[test]
fn every_format_comes_back_with_its_bytes() {
    let mut writer = GgufWriter::new();
    for (index, dtype) in DType::ALL.into_iter().enumerate() {
        let columns = 2 * dtype.block_elements() as u64;
        writer.add_tensor(format!("t{index}"), &[columns, 3], dtype).unwrap();
    }
    let model = Gguf::from_bytes(write(&writer)).unwrap();
    model.check_types().unwrap();
    for (index, dtype) in DType::ALL.into_iter().enumerate() {
        let tensor = model.required_tensor(&format!("t{index}")).unwrap();
        assert_eq!(tensor.dtype().unwrap(), dtype);
        assert_eq!(tensor.shape(), [2 * dtype.block_elements() as u64, 3]);
        assert_eq!(tensor.size_bytes(), 6 * dtype.block_bytes());
        assert_eq!(tensor.file_offset() % model.alignment(), 0);
        assert_eq!(*model.data(tensor), *contents(tensor.name(), tensor.size_bytes()));
    }
}

#[test]
fn mxfp6_has_a_private_id_and_brings_its_key() {
    let mut writer = GgufWriter::new();
    writer.add_tensor("t", &[32], DType::Mxfp6E3M2).unwrap();
    let file = write(&writer);
    let model = Gguf::from_bytes(file.clone()).unwrap();
    assert_eq!(model.metadata().u32(MXFP6_LAYOUT_KEY).unwrap(), Some(1));
    let id = rf_gguf::type_id(DType::Mxfp6E3M2).unwrap();
    assert!(id > 0x1_0000);
    assert!(file.windows(4).any(|window| window == id.to_le_bytes()));
    assert_eq!(TensorType::from_id(id), TensorType::Known(DType::Mxfp6E3M2));

    assert_eq!(
        GgufWriter::new().add(MXFP6_LAYOUT_KEY, 2_u32).unwrap_err().to_string(),
        "cannot write key 'rocmforge.mxfp6.layout': type MXFP6_E2M3 needs the key \
         'rocmforge.mxfp6.layout' with value 1, found 2"
    );
}

#[test]
fn alignment_takes_effect() {
    for alignment in [1_u32, 8, 64, 4096] {
        let mut writer = GgufWriter::new();
        writer.add("general.alignment", alignment).unwrap();
        writer.add_tensor("a", &[1], DType::F32).unwrap();
        writer.add_tensor("b", &[3], DType::F16).unwrap();
        let model = Gguf::from_bytes(write(&writer)).unwrap();
        assert_eq!(model.alignment(), u64::from(alignment));
        for tensor in model.tensors() {
            assert_eq!(tensor.file_offset() % u64::from(alignment), 0);
            assert_eq!(*tensor.data(), *contents(tensor.name(), tensor.size_bytes()));
        }
    }
}

#[test]
fn what_the_reader_would_refuse_is_not_written() {
    let mut writer = GgufWriter::new();
    writer.add("k", 1_u32).unwrap().add_tensor("t", &[1], DType::F32).unwrap();
    let key = |key: &str, value: Value| writer.clone().add(key, value).unwrap_err().to_string();
    assert_eq!(key("k", 2_u32.into()), "cannot write key 'k': the key occurs twice");
    assert_eq!(key("", 2_u32.into()), "cannot write key '': the name is empty");
    assert_eq!(
        key("general.alignment", 3_u32.into()),
        "cannot write key 'general.alignment': alignment 3 is not a power of two between 1 and 1048576"
    );
    let deep = (0..4).fold(Array::U8(vec![]), |inner, _| Array::Array(vec![inner]));
    assert_eq!(
        key("deep", deep.into()),
        "cannot write key 'deep': arrays are nested more than 4 deep"
    );
    let mut tensor = |name: &str, shape: &[u64], dtype: DType| {
        writer.add_tensor(name, shape, dtype).unwrap_err().to_string()
    };
    assert_eq!(tensor("t", &[1], DType::F32), "cannot write tensor 't': the tensor occurs twice");
    assert_eq!(
        tensor("u", &[33], DType::Q8_0),
        "cannot write tensor 'u': rows of 33 values are not a multiple of the 32 of a Q8_0 block"
    );
    assert_eq!(tensor("u", &[1, 0], DType::F32), "cannot write tensor 'u': dimension 1 is zero");
    assert_eq!(
        tensor("u", &[], DType::F32),
        "cannot write tensor 'u': 0 dimensions, where 1 to 4 are allowed"
    );
}

#[test]
fn set_replaces_in_place() {
    let mut writer = GgufWriter::new();
    writer.add("a", 1_u32).unwrap().add("b", 2_u32).unwrap();
    writer.set("a", "new").unwrap().set("c", 3_u32).unwrap();
    let model = Gguf::from_bytes(write(&writer)).unwrap();
    let entries: Vec<(&str, &Value)> = model.metadata().iter().collect();
    assert_eq!(entries, [("a", &Value::from("new")), ("b", &Value::U32(2)), ("c", &Value::U32(3))]);
}

#[test]
fn data_of_the_wrong_size_is_an_error() {
    let mut writer = GgufWriter::new();
    writer.add_tensor("t", &[4], DType::F32).unwrap();
    let error = writer.write_to(Vec::new(), |_, out| Ok(out.write_all(&[0; 15])?)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "cannot write tensor 't': 15 bytes of data were produced where the shape needs 16"
    );
}

#[test]
#[cfg_attr(miri, ignore = "uses file operations that Miri does not support")]
fn a_failed_write_leaves_the_old_file_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    fs::write(&path, "the old file").unwrap();
    let mut writer = GgufWriter::new();
    writer.add_tensor("a", &[4], DType::F32).unwrap().add_tensor("b", &[4], DType::F32).unwrap();
    let error = writer
        .write_file(&path, |tensor, out| match tensor.name() {
            "a" => Ok(out.write_all(&[1; 16])?),
            _ => Err("the source is damaged".into()),
        })
        .unwrap_err();
    assert_eq!(error.to_string(), "cannot write the data of tensor 'b'");
    assert_eq!(std::error::Error::source(&error).unwrap().to_string(), "the source is damaged");
    assert_eq!(fs::read(&path).unwrap(), b"the old file");
    assert_eq!(files_in(directory.path()), ["model.gguf"]);
}

/// A process that is killed while it writes leaves nothing behind, because the file has no name.
#[test]
#[cfg(target_os = "linux")]
#[cfg_attr(miri, ignore = "uses file operations that Miri does not support")]
fn an_incomplete_file_has_no_name() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("new.gguf");
    let mut writer = GgufWriter::new();
    writer.add_tensor("t", &[4], DType::F32).unwrap();
    let mut seen = None;
    writer
        .write_file(&path, |_, out| {
            seen = Some(files_in(directory.path()));
            Ok(out.write_all(&[0; 16])?)
        })
        .unwrap();
    assert_eq!(seen, Some(Vec::new()));
    assert_eq!(files_in(directory.path()), ["new.gguf"]);
}

#[test]
#[cfg_attr(miri, ignore = "uses file operations that Miri does not support")]
fn a_model_can_be_written_over_the_file_it_is_read_from() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("model.gguf");
    let mut writer = GgufWriter::new();
    writer.add_tensor("a", &[1 << 12], DType::F32).unwrap();
    writer
        .write_file(&path, |tensor, out| {
            Ok(out.write_all(&contents("first", tensor.size_bytes() as usize))?)
        })
        .unwrap();
    let old = Gguf::open(&path).unwrap();
    let data = old.data(&old.tensors()[0]);
    writer
        .write_file(&path, |_, out| {
            Ok(out.write_all(&data.iter().map(|byte| !byte).collect::<Vec<u8>>())?)
        })
        .unwrap();
    let new = Gguf::open(&path).unwrap();
    assert_eq!(*data, *contents("first", data.len()), "the map keeps the old file");
    assert!(new.data(&new.tensors()[0]).iter().zip(&*data).all(|(new, old)| *new == !old));
    assert_eq!(files_in(directory.path()), ["model.gguf"]);
}

#[test]
#[cfg_attr(miri, ignore = "uses file operations that Miri does not support")]
fn a_target_that_is_no_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let refusal = |path: &Path| GgufWriter::new().write_file(path, |_, _| Ok(())).unwrap_err();
    assert!(matches!(refusal(directory.path()), Error::Directory { .. }));
    assert!(matches!(refusal(&directory.path().join("no/such/folder.gguf")), Error::Io { .. }));
    #[cfg(unix)]
    assert!(matches!(refusal(Path::new("/dev/null")), Error::NotRegular { .. }));
    assert!(files_in(directory.path()).is_empty());
}

#[test]
fn file_types_have_the_names_that_benchmarks_print() {
    assert_eq!(rf_gguf::file_type_name(15), Some("Q4_K - Medium"));
    assert_eq!(rf_gguf::file_type_name(7), Some("Q8_0"));
    assert_eq!(rf_gguf::file_type_name(1024 + 12), Some("Q3_K - Medium"));
    assert_eq!(rf_gguf::file_type_name(4), None);
}

fn write(writer: &GgufWriter) -> Vec<u8> {
    let mut file = Vec::new();
    writer
        .write_to(&mut file, |tensor, out| {
            Ok(out.write_all(&contents(tensor.name(), tensor.size_bytes() as usize))?)
        })
        .unwrap();
    file
}

/// Bytes that differ from tensor to tensor and along each.
fn contents(name: &str, length: usize) -> Vec<u8> {
    let seed = name.bytes().fold(7_u8, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte));
    (0..length).map(|index| seed.wrapping_add((index * 7) as u8)).collect()
}

fn files_in(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}
