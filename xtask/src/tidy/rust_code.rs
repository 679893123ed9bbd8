//! A minimal lexer for Rust that separates code from comments and literals.

/// Replaces every character of comments, strings and character literals in `source` by a space.
/// Line breaks stay, so line numbers do not change.
pub(super) fn code_only(source: &str) -> String {
    let mut code = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(first) = rest.chars().next() {
        let skipped = literal_or_comment(rest);
        if skipped == 0 {
            code.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            let (blank, after) = rest.split_at(skipped);
            code.extend(blank.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = after;
        }
    }
    code
}

/// The identifiers and keywords of one line of [`code_only`].
pub(super) fn words(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|word| !word.is_empty())
}

/// Length in bytes of the comment or literal at the start of `rest`, or 0. An unclosed one extends
/// to the end.
fn literal_or_comment(rest: &str) -> usize {
    let length = if rest.starts_with("//") {
        rest.find('\n')
    } else if rest.starts_with("/*") {
        block_comment(rest)
    } else if rest.starts_with('"') {
        quoted(rest, '"')
    } else if rest.starts_with('\'') {
        return character(rest);
    } else if let Some(hashes) = raw_string_hashes(rest) {
        let close = format!("\"{}", "#".repeat(hashes));
        let body = 1 + hashes + 1;
        rest[body..].find(&close).map(|at| body + at + close.len())
    } else {
        return 0;
    };
    length.unwrap_or(rest.len())
}

/// Length of a block comment. Block comments nest.
fn block_comment(rest: &str) -> Option<usize> {
    let mut depth = 0_usize;
    let mut at = 0;
    loop {
        let ahead = &rest[at..];
        if ahead.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if ahead.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += ahead.chars().next()?.len_utf8();
        }
    }
}

/// Length of a literal from one `quote` to the next one without a backslash.
fn quoted(rest: &str, quote: char) -> Option<usize> {
    let mut chars = rest.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        if c == '\\' {
            chars.next();
        } else if c == quote {
            return Some(at + 1);
        }
    }
    None
}

/// Length of a character literal; 0 for the quote of a lifetime.
fn character(rest: &str) -> usize {
    let mut inside = rest.chars().skip(1);
    match (inside.next(), inside.next()) {
        (Some('\\'), _) => quoted(rest, '\'').unwrap_or(rest.len()),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 0,
    }
}

/// The number of `#` between `r` and `"` of a raw string. An identifier cannot end directly
/// before a quote, so the character before `r` does not matter.
fn raw_string_hashes(rest: &str) -> Option<usize> {
    let after = rest.strip_prefix('r')?;
    let quote = after.find(|c| c != '#')?;
    after[quote..].starts_with('"').then_some(quote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(source: &str) -> Vec<String> {
        words(&code_only(source)).map(str::to_owned).collect()
    }

    #[test]
    fn comments_are_blank() {
        assert_eq!(kept("a // b\nc /* d /* e */ f */ g"), ["a", "c", "g"]);
        assert_eq!(kept("/// b\n//! c\na"), ["a"]);
        assert_eq!(kept("a /* never closed"), ["a"]);
    }

    #[test]
    fn strings_are_blank() {
        assert_eq!(kept(r#"a "b \" c" d"#), ["a", "d"]);
        assert_eq!(
            kept(r###"a r"b\" c r#"d " e"# f br##"g"# h"## i"###),
            ["a", "c", "f", "b", "i"]
        );
        assert_eq!(kept(r#"a "// no comment" b"#), ["a", "b"]);
    }

    #[test]
    fn characters_are_blank_and_lifetimes_are_not() {
        assert_eq!(kept(r#"'"' a '\'' b '\u{41}' c 'é' d"#), ["a", "b", "c", "d"]);
        assert_eq!(kept("fn f<'a>(x: &'a str, y: &'static str)")[2], "a");
        assert_eq!(kept("&'static str")[0], "static");
    }

    #[test]
    fn lines_stay_where_they_are() {
        let source = "a\n/* b\nc */\n\"d\ne\"\nf";
        let code = code_only(source);
        assert_eq!(code.lines().count(), source.lines().count());
        assert_eq!(code.lines().last(), Some("f"));
    }
}
