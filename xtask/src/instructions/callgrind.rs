//! Parses the parts of callgrind's output that the counts need.
//!
//! The format is described under "Callgrind Format Specification" in Valgrind's manual. The parser
//! expects uncompressed strings and positions.

use std::collections::BTreeMap;

/// Instructions by function.
pub(super) type Functions = BTreeMap<String, u64>;

/// Beginnings of the names of the functions with which glibc's allocator searches its free lists.
///
/// Their work depends on what was allocated before, and so on the lengths of the program's path
/// and of its environment: one allocation takes 20 instructions in one checkout and 200 in
/// another. They are not counted. `malloc` and `free` are, so another allocation is still seen.
const FREE_LISTS: [&str; 6] =
    ["_int_", "malloc_consolidate", "sysmalloc", "systrim", "tcache_", "unlink_chunk"];

/// The instructions of workloads, by function.
pub(super) type Counts = BTreeMap<String, Functions>;

/// The instructions of each dump in `output`, by function. A call counts for its callee.
pub(super) fn dumps(output: &str) -> Vec<Functions> {
    let mut dumps: Vec<Functions> = Vec::new();
    let mut function = String::new();
    let mut lines = output.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("part:") {
            dumps.push(Functions::new());
        } else if let Some(name) = line.strip_prefix("fn=") {
            function = function_name(name);
        } else if line.starts_with("calls=") {
            lines.next(); // the inclusive cost of the call
        } else if line.starts_with(|c: char| c.is_ascii_digit())
            && let Some(dump) = dumps.last_mut()
            && let Some(count) = line.split(' ').nth(1).and_then(|count| count.parse::<u64>().ok())
            && !FREE_LISTS.iter().any(|name| function.starts_with(name))
        {
            *dump.entry(function.clone()).or_default() += count;
        }
    }
    dumps
}

/// The function name without the suffix of a recursive call and the hash of a legacy symbol.
fn function_name(name: &str) -> String {
    let name = name.rsplit_once('\'').map_or(name, |(name, _)| name);
    let is_hash = |last: &str| {
        last.len() == 17
            && last.starts_with('h')
            && last[1..].bytes().all(|byte| byte.is_ascii_hexdigit())
    };
    match name.rsplit_once("::") {
        Some((path, last)) if is_hash(last) => path.to_owned(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn searches_of_the_allocator_are_not_counted() {
        let output = "part: 1\nfn=malloc\n1 20\ncfn=_int_malloc\ncalls=1 1\n1 300\n\
                      fn=_int_malloc\n2 250\nfn=unlink_chunk.constprop.0\n3 50\n";
        assert_eq!(dumps(output), [Functions::from([("malloc".to_owned(), 20)])]);
    }

    #[test]
    fn own_costs_are_summed_by_function_and_dump() {
        let output = "# callgrind format\nversion: 1\npart: 1\npositions: line\nevents: Ir\n\
                      ob=x\nfl=a.rs\nfn=a::f::h0123456789abcdef\n10 5\n11 7\n\
                      cfn=a::g\ncalls=2 20\n11 100\n12 1\nfn=a::g\n20 100\ntotals: 113\n\
                      part: 2\nfn=a::f'2\n10 3\ntotals: 3\n";
        let f = |count| ("a::f".to_owned(), count);
        let expected =
            [Functions::from([f(13), ("a::g".to_owned(), 100)]), Functions::from([f(3)])];
        assert_eq!(dumps(output), expected);
    }
}
