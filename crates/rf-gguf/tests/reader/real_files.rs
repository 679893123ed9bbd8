//! Reads files of other programs.

use std::fs;
use std::path::{Path, PathBuf};

use rf_gguf::{Gguf, GgufWriter};
use rf_testing::{GoldenModel, golden_folder, golden_models, golden_models_in, shared};

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn files_of_other_programs_open() {
    let folders = ["models", "golden/arch", "vocabs"]
        .map(|folder| (folder, shared(folder).map_or_else(Vec::new, |path| gguf_files(&path))));
    let own = golden_models().iter().map(GoldenModel::path).collect();
    for (folder, paths) in folders.into_iter().chain([("golden/arch", own)]) {
        for path in paths {
            let model = Gguf::open(&path).unwrap();
            model.check_types().unwrap();
            assert_eq!(model.file_bytes(), fs::metadata(&path).unwrap().len());
            let architecture = model.metadata().required_str("general.architecture").unwrap();
            if folder == "vocabs" {
                assert!(model.tensors().is_empty());
                assert!(
                    model.metadata().required_strings("tokenizer.ggml.tokens").unwrap().len()
                        > 30_000
                );
            } else {
                let layers = model.metadata().required_u32(&format!("{architecture}.block_count"));
                assert!(layers.unwrap() > 0);
                let embeddings = model.required_tensor("token_embd.weight").unwrap();
                let width = model.metadata().u64(&format!("{architecture}.embedding_length"));
                assert_eq!(Some(embeddings.shape()[0]), width.unwrap());
            }
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn a_copy_through_the_writer_has_the_same_bytes() {
    let folders = [shared("models"), shared("vocabs")];
    let own = golden_models_in(&golden_folder().join("iq"));
    let paths = folders.iter().flatten().flat_map(|folder| gguf_files(folder));
    for path in paths.chain(own.iter().map(GoldenModel::path)) {
        let model = Gguf::open(&path).unwrap();
        let mut writer = GgufWriter::new();
        for (key, value) in model.metadata().iter() {
            writer.add(key, value.clone()).unwrap();
        }
        for tensor in model.tensors() {
            writer.add_tensor(tensor.name(), tensor.shape(), tensor.dtype().unwrap()).unwrap();
        }
        let mut copy = Vec::new();
        writer
            .write_to(&mut copy, |tensor, out| {
                Ok(out.write_all(&model.required_tensor(tensor.name())?.data())?)
            })
            .unwrap();
        let original = fs::read(&path).unwrap();
        let same = original.len().min(copy.len());
        assert!(copy[..same] == original[..same], "{}", path.display());
        // Writers differ in whether they pad after the last byte.
        assert!(copy[same..].iter().chain(&original[same..]).all(|&byte| byte == 0));
        assert!(copy.len().abs_diff(original.len()) < 32);
    }
}

/// The GGUF files in a folder of test data.
fn gguf_files(folder: &Path) -> Vec<PathBuf> {
    let paths = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut paths: Vec<_> =
        paths.filter(|path| path.extension().is_some_and(|e| e == "gguf")).collect();
    paths.sort();
    assert!(!paths.is_empty(), "no files in {}", folder.display());
    paths
}
