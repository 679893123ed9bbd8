//! One table of the fields of kernel parameters.
//!
//! A row of [`params!`] is a field of a struct: its name, its type, and its shape as a comment. The
//! struct in Rust follows from it, and the header in `kernels/include/rf/params`, which device code
//! includes. The header asserts the size of every struct and the offset of every field as they are
//! in Rust. A test compares the headers with the table, and writes those that differ.

/// Defines structs that are passed to kernels, in the layout of C.
///
/// The types are those of Rust, but for pointers: `*const f32` and the like are an
/// [`Address`](super::Address) in Rust.
macro_rules! params {
    ($(
        $(#[doc = $doc:literal])+
        struct $name:ident {$(
            $(#[doc = $field_doc:literal])+
            $field:ident: $type:tt $($pointee:ident)*,
        )+}
    )+) => {
        $(
            $(#[doc = $doc])+
            #[repr(C)]
            #[derive(Clone, Copy, Debug, Default, PartialEq, bytemuck::Pod, bytemuck::Zeroable)]
            pub(crate) struct $name {$(
                $(#[doc = $field_doc])+
                pub(crate) $field: $crate::params::table::host_type!($type $($pointee)*),
            )+}
        )+

        /// The rows of the table, for the header.
        #[cfg(test)]
        pub(super) const TABLE: &[$crate::params::table::Struct] = &[$(
            $crate::params::table::Struct {
                name: stringify!($name),
                docs: &[$($doc),+],
                bytes: size_of::<$name>(),
                fields: &[$(
                    $crate::params::table::Field {
                        name: stringify!($field),
                        docs: &[$($field_doc),+],
                        device_type: $crate::params::table::device_type!($type $($pointee)*),
                        elements: $crate::params::table::elements!($type $($pointee)*),
                        offset: std::mem::offset_of!($name, $field),
                    }
                ),+],
            }
        ),+];
    };
}

/// The type of a field in Rust.
macro_rules! host_type {
    (* $access:ident $type:tt) => {
        $crate::params::Address
    };
    ($type:tt) => {
        $type
    };
}

/// The type of a field in C, up to its name.
#[cfg(test)]
macro_rules! device_type {
    (* const $type:tt) => {
        concat!("const ", $crate::params::table::device_type!($type), "*")
    };
    (* mut $type:tt) => {
        concat!($crate::params::table::device_type!($type), "*")
    };
    ([$type:tt; $elements:expr]) => {
        $crate::params::table::device_type!($type)
    };
    (f32) => {
        "float "
    };
    (i8) => {
        "signed char "
    };
    (u8) => {
        "unsigned char "
    };
    (u32) => {
        "unsigned "
    };
    (u64) => {
        "unsigned long long "
    };
    (void) => {
        "void "
    };
    ($type:ident) => {
        concat!("Rf", stringify!($type), " ")
    };
}

/// The number of elements of an array.
#[cfg(test)]
macro_rules! elements {
    ([$type:tt; $elements:expr]) => {
        Some($elements)
    };
    ($($type:tt)+) => {
        None
    };
}

pub(super) use host_type;
pub(super) use params;
#[cfg(test)]
pub(super) use {device_type, elements};

/// A struct of the table.
#[cfg(test)]
pub(super) struct Struct {
    /// The name in Rust. In C it has the prefix `Rf`.
    pub(super) name: &'static str,
    pub(super) docs: &'static [&'static str],
    pub(super) bytes: usize,
    pub(super) fields: &'static [Field],
}

/// A field of a struct.
#[cfg(test)]
pub(super) struct Field {
    pub(super) name: &'static str,
    pub(super) docs: &'static [&'static str],
    /// The declaration in C before the name.
    pub(super) device_type: &'static str,
    /// The length of an array.
    pub(super) elements: Option<usize>,
    pub(super) offset: usize,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fmt::Write as _;
    use std::fs;
    use std::path::Path;

    use super::*;
    use crate::params;

    /// The structs of each header, by the name of the module and of the header.
    const HEADERS: [(&str, &[Struct]); 15] = [
        ("attention", params::attention::TABLE),
        ("batch", params::batch::TABLE),
        ("embed", params::embed::TABLE),
        ("experts", params::experts::TABLE),
        ("latent", params::latent::TABLE),
        ("matmul", params::matmul::TABLE),
        ("matvec", params::matvec::TABLE),
        ("recurrent", params::recurrent::TABLE),
        ("rope", params::rope::TABLE),
        ("rows", params::rows::TABLE),
        ("sampling", params::sampling::TABLE),
        ("skinny", params::skinny::TABLE),
        ("step", params::step::TABLE),
        ("sums", params::sums::TABLE),
        ("weight", params::weight::TABLE),
    ];

    #[test]
    fn headers_are_those_of_the_table() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/include/rf/params");
        let mut stale = Vec::new();
        for (name, structs) in HEADERS {
            let path = folder.join(format!("{name}.h"));
            let text = header(name, structs);
            if fs::read_to_string(&path).ok().as_ref() != Some(&text) {
                fs::write(&path, text).unwrap();
                stale.push(name);
            }
        }
        assert!(
            stale.is_empty(),
            "headers of kernels/include/rf/params were out of date and are written now: {stale:?}"
        );
    }

    #[test]
    fn every_header_is_of_the_table() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels/include/rf/params");
        let names = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name());
        let names: BTreeSet<String> = names.map(|name| name.into_string().unwrap()).collect();
        let tables = HEADERS.iter().map(|(name, _)| format!("{name}.h"));
        // The numbers that some fields contain are written by hand.
        let expected: BTreeSet<String> = tables.chain(["numbers.h".to_owned()]).collect();
        assert_eq!(names, expected);
    }

    fn header(name: &str, structs: &[Struct]) -> String {
        let mut text =
            format!("// Generated from crates/rf-kernels/src/params/{name}.rs: do not edit.\n");
        text.push_str("// `cargo test -p rf-kernels params` writes it.\n#pragma once\n\n");
        text.push_str("#include \"rf/params/numbers.h\"\n");
        for other in includes(name, structs) {
            writeln!(text, "#include \"rf/params/{other}.h\"").unwrap();
        }
        for Struct { name, docs, bytes, fields } in structs {
            text.push('\n');
            comment(&mut text, "", docs);
            writeln!(text, "struct Rf{name} {{").unwrap();
            for Field { name, docs, device_type, elements, .. } in *fields {
                comment(&mut text, "    ", docs);
                let array = elements.map_or_else(String::new, |n| format!("[{n}]"));
                writeln!(text, "    {device_type}{name}{array};").unwrap();
            }
            writeln!(text, "}};\nstatic_assert(sizeof(Rf{name}) == {bytes});").unwrap();
            for Field { name: field, offset, .. } in *fields {
                writeln!(text, "static_assert(__builtin_offsetof(Rf{name}, {field}) == {offset});")
                    .unwrap();
            }
        }
        text
    }

    /// The other headers whose structs are fields of these.
    fn includes(name: &str, structs: &[Struct]) -> BTreeSet<&'static str> {
        let fields = structs.iter().flat_map(|of| of.fields);
        let used: BTreeSet<&str> =
            fields.filter_map(|field| field.device_type.trim_end().strip_prefix("Rf")).collect();
        let others = HEADERS.iter().filter(|(other, _)| *other != name);
        let defines = |structs: &[Struct]| structs.iter().any(|of| used.contains(of.name));
        others.filter(|(_, structs)| defines(structs)).map(|(other, _)| *other).collect()
    }

    fn comment(text: &mut String, indent: &str, docs: &[&str]) {
        for line in docs {
            let line = format!("{indent}//{}", without_links(line));
            writeln!(text, "{}", line.trim_end()).unwrap();
        }
    }

    /// A line of documentation with the texts of its links only.
    fn without_links(line: &str) -> String {
        let mut text = String::new();
        let mut rest = line;
        while let Some((before, link)) = rest.split_once("[`") {
            let Some((name, after)) = link.split_once("`]") else { break };
            write!(text, "{before}`{name}`").unwrap();
            rest = after
                .strip_prefix('(')
                .and_then(|target| target.split_once(')'))
                .map_or(after, |(_, after)| after);
        }
        text + rest
    }

    #[test]
    fn links_of_comments_lose_their_targets() {
        for (line, expected) in [
            ("`[rows, columns]` or null", "`[rows, columns]` or null"),
            (
                "from [`top_k`], at most [`MAX`](super::MAX) of it",
                "from `top_k`, at most `MAX` of it",
            ),
            ("an array [`x", "an array [`x"),
        ] {
            assert_eq!(without_links(line), expected);
        }
    }
}
