//! hiprtc, if installed; no GPU is needed.

use rf_hip::{Compiler, Error, Source};

const OPTIONS: &[&str] = &["--offload-arch=gfx1030", "-O3"];

fn compiler() -> Option<Compiler> {
    match Compiler::load() {
        Ok(compiler) => Some(compiler),
        Err(error) => {
            rf_testing::skip!("{error}");
            None
        }
    }
}

#[test]
fn a_source_with_a_header_becomes_a_code_object() {
    let Some(compiler) = compiler() else { return };
    assert!(compiler.version().unwrap().0 > 0);
    let source = Source {
        name: "scale.hip",
        text: "#include \"scale.h\"\n\
               extern \"C\" __attribute__((global)) void scale(float *x) { x[0] *= SCALE; }\n",
        headers: &[("scale.h", "#define SCALE 2.0f\n")],
    };
    let code = compiler.compile(source, OPTIONS).unwrap();
    let bundled = code.starts_with(b"__CLANG_OFFLOAD_BUNDLE__");
    assert!(bundled || code.starts_with(b"\x7fELF"), "{:?}", &code[..8]);
}

#[test]
fn a_failed_compilation_reports_the_compilers_messages() {
    let Some(compiler) = compiler() else { return };
    let source = Source { name: "wrong.hip", text: "int f() { return nonsense; }\n", headers: &[] };
    let error = compiler.compile(source, OPTIONS).unwrap_err();
    let Error::Compilation { source_name, log, .. } = &error else { panic!("{error}") };
    assert_eq!(source_name, "wrong.hip");
    assert!(log.contains("nonsense"), "{error}");
}

#[test]
fn a_zero_byte_in_a_source_is_an_error() {
    let Some(compiler) = compiler() else { return };
    let source = Source { name: "zero.hip", text: "int x;\0", headers: &[] };
    assert!(matches!(compiler.compile(source, OPTIONS), Err(Error::ZeroByte { .. })));
}
