//! Comma-separated tables with a header (RFC 4180).

use std::fs;
use std::path::Path;
use std::str::FromStr;

use crate::Error;

/// Columns whose cells may hold commas without quotes: C++ names of kernels in older tools.
const NAMES: [&str; 3] = ["KernelName", "Kernel_Name", "Name"];

/// A table: a header and rows of as many cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    origin: String,
    header: Vec<String>,
    rows: Vec<(usize, Vec<String>)>,
}

/// A row of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct Row<'a> {
    table: &'a Table,
    line: usize,
    cells: &'a [String],
}

impl Table {
    /// Reads a file. Bytes that are no UTF-8 are replaced: they can only be in names.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], and as [`Table::parse`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(|source| Error::read(path, source))?;
        Self::parse(&String::from_utf8_lossy(&bytes), &path.display().to_string())
    }

    /// Reads a text; `origin` says in errors where it is from. Blank lines are left out.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] where there is no header, a quote is not closed, or a row has another number of cells than
    /// the header.
    ///
    /// # Examples
    ///
    /// ```
    /// use rf_profile::tables::Table;
    ///
    /// let table = Table::parse("\"Name\",\"Calls\"\n\"f(int, \"\"x\"\")\",3\n", "stats")?;
    /// let row = table.rows().next().unwrap();
    /// assert_eq!(row.text("Name")?, "f(int, \"x\")");
    /// assert_eq!(row.number::<u64>("Calls")?, 3);
    /// # Ok::<(), rf_profile::Error>(())
    /// ```
    pub fn parse(text: &str, origin: &str) -> Result<Self, Error> {
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let mut records = Records { rest: text, line: 1 };
        let Some(header) = records.next_filled(origin)? else {
            return Err(Error::malformed(origin, 0, "the table is empty"));
        };
        let header: Vec<String> = header.1.iter().map(|name| name.trim().to_owned()).collect();
        let name = header.iter().position(|column| NAMES.contains(&&**column));
        let mut rows = Vec::new();
        while let Some((line, mut cells)) = records.next_filled(origin)? {
            // rocprof ends rows with a comma that its header has not got.
            if cells.len() == header.len() + 1 && cells.last().is_some_and(String::is_empty) {
                cells.pop();
            }
            if let Some(name) = name.filter(|_| cells.len() > header.len()) {
                let surplus = cells.len() - header.len();
                let joined = cells[name..=name + surplus].join(",");
                cells.splice(name..=name + surplus, [joined]);
            }
            if cells.len() != header.len() {
                let reason = format!("{} cells under {} columns", cells.len(), header.len());
                return Err(Error::malformed(origin, line, reason));
            }
            rows.push((line, cells));
        }
        Ok(Self { origin: origin.to_owned(), header, rows })
    }

    /// Where the table is from.
    pub fn origin(&self) -> &str {
        &self.origin
    }

    /// Names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.header
    }

    /// Whether there is such a column.
    pub fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    /// The rows.
    pub fn rows(&self) -> impl Iterator<Item = Row<'_>> {
        self.rows.iter().map(|(line, cells)| Row { table: self, line: *line, cells })
    }
}

impl<'a> Row<'a> {
    /// The cell under a column.
    ///
    /// # Errors
    ///
    /// [`Error::NoColumn`].
    pub fn text(&self, column: &str) -> Result<&'a str, Error> {
        self.find(&[column]).ok_or_else(|| self.no_column(column))
    }

    /// The number under a column.
    ///
    /// # Errors
    ///
    /// [`Error::NoColumn`], or [`Error::Malformed`] where it is none.
    pub fn number<T: FromStr>(&self, column: &str) -> Result<T, Error> {
        self.number_of(&[column])?.ok_or_else(|| self.no_column(column))
    }

    /// The cell under the first of `columns` that there is.
    pub(super) fn find(&self, columns: &[&str]) -> Option<&'a str> {
        let place = columns.iter().find_map(|column| {
            self.table.header.iter().position(|name| name.eq_ignore_ascii_case(column))
        })?;
        Some(self.cells[place].trim())
    }

    /// The number under the first of `columns` that there is; `None` where there is none of them, or the cell
    /// is empty or says that there is no value.
    pub(super) fn number_of<T: FromStr>(&self, columns: &[&str]) -> Result<Option<T>, Error> {
        let Some(text) = self.find(columns) else { return Ok(None) };
        if text.is_empty() || ["none", "n/a", "nan"].contains(&&*text.to_ascii_lowercase()) {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            let reason = format!("{} is '{text}', which is no such number", columns[0]);
            Error::malformed(&self.table.origin, self.line, reason)
        })
    }

    pub(super) fn no_column(&self, column: &str) -> Error {
        Error::NoColumn { origin: self.table.origin.clone(), column: column.to_owned() }
    }

    pub(super) fn malformed(&self, reason: &str) -> Error {
        Error::malformed(&self.table.origin, self.line, reason)
    }
}

struct Records<'a> {
    rest: &'a str,
    line: usize,
}

impl Records<'_> {
    /// The next record that is not blank, with its line.
    fn next_filled(&mut self, origin: &str) -> Result<Option<(usize, Vec<String>)>, Error> {
        while !self.rest.is_empty() {
            let line = self.line;
            let cells = self.record().ok_or_else(|| {
                Error::malformed(origin, line, "a quote is not closed: the file breaks off")
            })?;
            if cells.iter().any(|cell| !cell.trim().is_empty()) {
                return Ok(Some((line, cells)));
            }
        }
        Ok(None)
    }

    fn record(&mut self) -> Option<Vec<String>> {
        let mut cells = Vec::new();
        let mut cell = String::new();
        let mut chars = self.rest.char_indices().peekable();
        let mut quoted = false;
        let mut end = self.rest.len();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' if quoted && chars.peek().is_some_and(|(_, next)| *next == '"') => {
                    chars.next();
                    cell.push('"');
                }
                '"' if quoted => quoted = false,
                '"' if cell.trim().is_empty() => {
                    cell.clear();
                    quoted = true;
                }
                ',' if !quoted => cells.push(std::mem::take(&mut cell)),
                '\n' if !quoted => {
                    self.line += 1;
                    end = at + 1;
                    break;
                }
                '\r' if !quoted => {}
                c => {
                    self.line += usize::from(c == '\n');
                    cell.push(c);
                }
            }
        }
        cells.push(cell);
        self.rest = &self.rest[end..];
        (!quoted).then_some(cells)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Vec<String>> {
        Table::parse(text, "t").unwrap().rows.into_iter().map(|(_, cells)| cells).collect()
    }

    #[test]
    fn quotes_commas_and_line_breaks() {
        let text = "a,b\r\n\r\n\"x,\"\"y\"\"\",\"1\n2\"\n , \n3,4";
        assert_eq!(cells(text), [["x,\"y\"", "1\n2"], ["3", "4"]]);
    }

    #[test]
    fn kernel_names_with_bare_commas_are_one_cell() {
        let text = "Index,KernelName,gpu-id\n0,void f<int, 4>(int*, int),7\n1,g,7,\n";
        assert_eq!(cells(text), [["0", "void f<int, 4>(int*, int)", "7"], ["1", "g", "7"]]);
    }

    #[test]
    fn damage_is_named_with_its_line() {
        for (text, line, reason) in [
            ("", 0, "empty"),
            ("\n\n", 0, "empty"),
            ("a,b\n1,2\n3\n", 3, "1 cells under 2 columns"),
            ("a,b\n1,\"2\n", 2, "not closed"),
        ] {
            let Err(Error::Malformed { line: at, reason: why, .. }) = Table::parse(text, "t")
            else {
                panic!("{text:?}");
            };
            assert!(at == line && why.contains(reason), "{text:?}: {at}: {why}");
        }
    }

    #[test]
    fn numbers_that_are_none_are_errors_with_their_line() {
        let table = Table::parse("a,b\n1,None\nx,2\n", "t").unwrap();
        let rows: Vec<_> = table.rows().collect();
        assert_eq!(rows[0].number_of::<u64>(&["b"]).unwrap(), None);
        let error = rows[1].number::<u64>("a").unwrap_err().to_string();
        assert_eq!(error, "'t', line 3: a is 'x', which is no such number");
        assert!(matches!(rows[0].text("c"), Err(Error::NoColumn { .. })));
    }
}
