//! The choice of formats against a file that llama-quantize wrote.

use std::path::Path;

use rf_convert::{Conversion, Mix, Options};
use rf_gguf::Gguf;

/// The mixes do not depend on the formats of the input, so the file itself serves as input.
#[test]
fn iq4_mixes_choose_the_formats_of_llama_quantize() {
    for name in ["IQ4_NL", "IQ4_XS"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join(format!("../../../shared/golden/iq/iq_llama_{name}.gguf"));
        if !path.is_file() {
            println!("skipped: no {}", path.display());
            return;
        }
        let gguf = Gguf::open(&path).unwrap();
        let mix: Mix = name.parse().unwrap();
        assert_eq!(gguf.metadata().u32("general.file_type").unwrap(), mix.file_type());
        let folder = tempfile::tempdir().unwrap();
        let options = Options { allow_requantize: true, ..Options::default() };
        let conversion =
            Conversion::plan(&gguf, folder.path().join("out.gguf"), mix, options).unwrap();
        for row in conversion.tensors() {
            assert_eq!(row.dtype, row.tensor.dtype().unwrap(), "{}", row.tensor.name());
        }
        assert_eq!(conversion.output_bytes(), conversion.input_bytes());
    }
}
