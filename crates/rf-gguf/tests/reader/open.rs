//! Opening by path: every failure has its own error message.

use std::fs;

use rf_gguf::{Error, Gguf, TensorData};

use crate::raw::valid;

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn a_path_that_is_no_model_is_refused_by_what_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let refusal = |name: &str| {
        let error = Gguf::open(at(name)).unwrap_err().to_string();
        error.replace(&format!("{}/", directory.path().display()), "")
    };
    assert_eq!(refusal("missing.gguf"), "file 'missing.gguf' does not exist");
    fs::create_dir(at("folder.gguf")).unwrap();
    assert_eq!(
        refusal("folder.gguf"),
        "'folder.gguf' is a directory: give the path of a .gguf file"
    );
    fs::write(at("empty.gguf"), []).unwrap();
    assert_eq!(refusal("empty.gguf"), "empty.gguf: the file is empty");
    fs::write(at("text.gguf"), "just some text\n").unwrap();
    assert_eq!(refusal("text.gguf"), "text.gguf: not a GGUF file: it looks like a text file");
    fs::write(at("cut.gguf"), &valid()[..valid().len() - 1]).unwrap();
    assert_eq!(
        refusal("cut.gguf"),
        "cut.gguf: at byte 383: tensor 'b.weight': its data ends at byte 656 but the file has 655: the \
         file is truncated (was the download complete?)"
    );
}

#[cfg(unix)]
#[test]
#[cfg_attr(miri, ignore = "starts programs or sockets, which Miri does not support")]
fn a_socket_is_refused_without_waiting() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("socket");
    let _listener = std::os::unix::net::UnixListener::bind(&path).unwrap();
    assert!(matches!(Gguf::open(&path), Err(Error::NotRegular { .. })));
}

#[test]
#[cfg_attr(miri, ignore = "maps files, which Miri does not support")]
fn mapped_static_and_owned_bytes_give_the_same_model() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("valid.gguf");
    fs::write(&path, valid()).unwrap();
    let mapped = Gguf::open(&path).unwrap();
    let owned = Gguf::from_bytes(valid()).unwrap();
    let fixed = Gguf::from_static(valid().leak()).unwrap();
    assert_eq!(mapped.paths(), [path]);
    assert!(owned.paths().is_empty());
    for model in [&mapped, &owned, &fixed] {
        assert_eq!((model.version(), model.alignment(), model.file_bytes()), (3, 32, 656));
        assert!(model.metadata().iter().eq(mapped.metadata().iter()));
        assert_eq!(model.metadata().bool("tokenizer.ggml.add_bos_token").unwrap(), Some(true));
        let tensor = model.required_tensor("b.weight").unwrap();
        assert_eq!(tensor.shape(), [256]);
        assert_eq!(model.data(tensor)[..3], [65, 66, 67]);
        assert_eq!(model.data(tensor).len(), 144);
    }
    assert!(mapped.tensors()[0].data().is_mapped());
    assert!(!owned.tensors()[0].data().is_mapped());
    assert_eq!(
        mapped.required_tensor("c.weight").unwrap_err().to_string(),
        "the file has no tensor 'c.weight'"
    );
}

#[test]
fn tensor_data_outlives_the_model_and_can_be_cut() {
    let model = Gguf::from_bytes(valid()).unwrap();
    let data = model.data(&model.tensors()[0]);
    drop(model);
    let sent = std::thread::spawn(move || data.slice(4..8).unwrap()).join().unwrap();
    assert_eq!(*sent, [5, 6, 7, 8]);
    assert_eq!(*sent.slice(1..2).unwrap(), [6]);
    assert!(sent.slice(1..5).is_none());
    #[expect(clippy::reversed_empty_ranges, reason = "a reversed range must be refused as well")]
    let reversed = sent.slice(2..1);
    assert!(reversed.is_none());
    assert_eq!(*TensorData::from_vec(vec![1, 2]), [1, 2]);
}
