//! Version, revision and target of the build.

use std::sync::LazyLock;

use rocmforge::device::Isa;

/// The revision of the sources; `unknown` outside of a git checkout.
pub(crate) const COMMIT: &str = env!("RF_BUILD_COMMIT");

/// The number of revisions, as llama.cpp numbers its builds; 0 outside of a git checkout.
pub(crate) const NUMBER: &str = env!("RF_BUILD_NUMBER");

/// Text of `-V`.
pub(crate) fn short() -> &'static str {
    env!("CARGO_PKG_VERSION")
}

/// Text of `--version`.
pub(crate) fn long() -> &'static str {
    static LONG: LazyLock<String> = LazyLock::new(|| {
        let isas: Vec<_> = Isa::available().iter().map(ToString::to_string).collect();
        format!(
            "{} (revision {COMMIT}, build {NUMBER})\n\
             built for {} ({}) with {}\n\
             CPU: {} of {}\n\
             demo model: {}",
            short(),
            env!("RF_BUILD_TARGET"),
            env!("RF_BUILD_PROFILE"),
            env!("RF_BUILD_RUSTC"),
            Isa::best(),
            isas.join(", "),
            if cfg!(feature = "demo-model") { "built in" } else { "left out" },
        )
    });
    &LONG
}
