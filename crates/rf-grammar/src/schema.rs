//! JSON schemas: their parts, limits, and the place of an error.

mod locate;
mod measure;
mod one_of;
mod parts;
mod rewrite;

pub(crate) use self::locate::locate;
pub(crate) use self::measure::{measure, measure_all};
pub(crate) use self::one_of::check_one_of;
pub(crate) use self::rewrite::{Purpose, has_references, name_warning, part_of, prepared};
