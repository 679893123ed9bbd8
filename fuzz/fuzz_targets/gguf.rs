//! The reader accepts or refuses any bytes without a panic. An accepted file can be read to the
//! end, and a copy of it reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rf_gguf::{Gguf, GgufWriter};

fuzz_target!(|bytes: &[u8]| {
    let Ok(model) = Gguf::from_bytes(bytes.to_vec()) else {
        return;
    };
    for tensor in model.tensors() {
        assert_eq!(model.data(tensor).len(), tensor.size_bytes());
        assert!(model.tensor(tensor.name()).is_some());
    }
    if model.check_types().is_err() {
        return;
    }
    let mut writer = GgufWriter::new();
    for (key, value) in model.metadata().iter() {
        // The reader accepts an alignment of any integer type, the writer only u32.
        if writer.add(key, value.clone()).is_err() {
            return;
        }
    }
    for tensor in model.tensors() {
        let dtype = tensor.dtype().expect("types have been checked");
        writer
            .add_tensor(tensor.name(), tensor.shape(), dtype)
            .expect("the reader accepted this tensor");
    }
    let mut copy = Vec::new();
    writer
        .write_to(&mut copy, |tensor, out| {
            Ok(out.write_all(&model.required_tensor(tensor.name())?.data())?)
        })
        .expect("the copy is written to memory");
    let again = Gguf::from_bytes(copy).expect("what the writer makes can be read");
    let show = |model: &Gguf| format!("{:?}", model.metadata().iter().collect::<Vec<_>>());
    assert_eq!(show(&model), show(&again));
    for (one, other) in model.tensors().iter().zip(again.tensors()) {
        assert_eq!((one.name(), one.shape(), one.ty()), (other.name(), other.shape(), other.ty()));
        assert_eq!(*one.data(), *other.data());
    }
});
