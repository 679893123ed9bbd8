//! The sign of a test that cannot run.

use std::fmt::Arguments;

/// Prints `skipped: <why>`: the test passes without having checked what it is for. CI counts these
/// lines, and fails for those that it does not expect.
///
/// ```
/// fn frequency_is_read() {
///     let Some(root) = rf_testing::shared("models") else { return };
///     if root.read_dir().is_err() {
///         return rf_testing::skip!("{} cannot be read", root.display());
///     }
/// }
/// # frequency_is_read();
/// ```
#[macro_export]
macro_rules! skip {
    ($($why:tt)+) => {
        $crate::skipped(::core::format_args!($($why)+))
    };
}

/// Prints the line of [`skip!`](macro@crate::skip).
#[expect(clippy::print_stderr, reason = "a skipped test must be seen")]
pub fn skipped(why: Arguments<'_>) {
    eprintln!("skipped: {why}");
}
