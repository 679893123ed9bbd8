//! What several fuzz targets share.

pub mod grammar;
