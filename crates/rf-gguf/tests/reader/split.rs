//! Models in several files.

use std::fs;
use std::path::Path;

use rf_gguf::{Gguf, GgufWriter};
use rf_quant::DType;

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn any_part_opens_the_whole_model() {
    let directory = tempfile::tempdir().unwrap();
    write_parts(directory.path(), 3, Some(6));
    for part in 1..=3 {
        let model = Gguf::open(path(directory.path(), part, 3)).unwrap();
        assert_eq!(model.paths().len(), 3);
        let names: Vec<&str> = model.tensors().iter().map(rf_gguf::TensorInfo::name).collect();
        assert_eq!(names, ["0.a", "0.b", "1.a", "1.b", "2.a", "2.b"]);
        for tensor in model.tensors() {
            let first = tensor.name().as_bytes()[0];
            assert!(model.data(tensor).iter().all(|&byte| byte == first));
        }
        // The metadata come from the first part, whichever part is opened.
        assert_eq!(model.metadata().u32("part").unwrap(), Some(0));
        let sizes = model.paths().iter().map(|path| fs::metadata(path).unwrap().len());
        assert_eq!(model.file_bytes(), sizes.sum::<u64>());
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn a_missing_part_is_named() {
    let directory = tempfile::tempdir().unwrap();
    write_parts(directory.path(), 3, None);
    let missing = path(directory.path(), 2, 3);
    fs::remove_file(&missing).unwrap();
    assert_eq!(
        Gguf::open(path(directory.path(), 1, 3)).unwrap_err().to_string(),
        format!("part 2 of 3 is missing: '{}' does not exist", missing.display())
    );
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn a_part_with_another_name_is_refused_with_the_name_it_needs() {
    let directory = tempfile::tempdir().unwrap();
    write_parts(directory.path(), 2, None);
    let renamed = directory.path().join("model.gguf");
    fs::rename(path(directory.path(), 2, 2), &renamed).unwrap();
    assert_eq!(
        Gguf::open(&renamed).unwrap_err().to_string(),
        format!(
            "{}: the file is part 2 of 2 but is not named so: parts must be called \
             NAME-00002-of-00002.gguf to be found",
            renamed.display()
        )
    );
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn parts_that_do_not_belong_together_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    write_parts(directory.path(), 3, None);
    fs::copy(path(directory.path(), 2, 3), path(directory.path(), 3, 3)).unwrap();
    let refusal = |expected: &str| {
        let error = Gguf::open(path(directory.path(), 1, 3)).unwrap_err().to_string();
        assert!(error.ends_with(expected), "{error}");
    };
    refusal("the parts of the split model do not fit together: split.no is 1, expected 2");

    write_parts(directory.path(), 3, Some(7));
    refusal(
        "the parts of the split model do not fit together: split.tensors.count is 7, and the parts \
         have 6 tensors",
    );

    write_parts(directory.path(), 3, None);
    write_part(directory.path(), 2, 3, None, "1");
    refusal("-00003-of-00003.gguf: at byte 91: tensor '1.a': the tensor occurs twice");
}

#[test]
#[cfg_attr(miri, ignore = "uses file operations that Miri does not support")]
fn part_from_memory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    write_parts(directory.path(), 2, None);
    let bytes = fs::read(path(directory.path(), 1, 2)).unwrap();
    assert_eq!(
        Gguf::from_bytes(bytes).unwrap_err().to_string(),
        "the bytes are one of 2 parts of a split model: open it by path"
    );
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn a_count_of_one_is_a_whole_model() {
    let directory = tempfile::tempdir().unwrap();
    write_part(directory.path(), 0, 1, None, "0");
    let renamed = directory.path().join("whole.gguf");
    fs::rename(path(directory.path(), 1, 1), &renamed).unwrap();
    assert_eq!(Gguf::open(renamed).unwrap().tensors().len(), 2);
}

fn path(directory: &Path, part: u32, count: u32) -> std::path::PathBuf {
    directory.join(format!("model-{part:05}-of-{count:05}.gguf"))
}

fn write_parts(directory: &Path, count: u32, tensor_count: Option<i32>) {
    for index in 0..count {
        write_part(directory, index, count, tensor_count, &index.to_string());
    }
}

/// A model of two tensors, whose bytes are the first byte of the tensor's name.
fn write_part(directory: &Path, index: u32, count: u32, tensor_count: Option<i32>, prefix: &str) {
    let mut writer = GgufWriter::new();
    writer.add("split.no", index as u16).unwrap().add("split.count", count as u16).unwrap();
    writer.add("part", index).unwrap();
    if let Some(tensor_count) = tensor_count {
        writer.add("split.tensors.count", tensor_count).unwrap();
    }
    for name in ["a", "b"] {
        writer.add_tensor(format!("{prefix}.{name}"), &[8], DType::F32).unwrap();
    }
    let data = |tensor: &rf_gguf::TensorPlan, out: &mut dyn std::io::Write| {
        Ok(out.write_all(&[tensor.name().as_bytes()[0]; 32])?)
    };
    writer.write_file(path(directory, index + 1, count), data).unwrap();
}
