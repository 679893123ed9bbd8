//! Comma-separated tables with a header.

use std::fs;
use std::path::Path;
use std::str::FromStr;

use csv::{ReaderBuilder, StringRecord};

use crate::Error;

/// Columns whose cells older tools write without quotes although they hold commas: C++ names of
/// kernels.
const NAME_COLUMNS: [&str; 3] = ["KernelName", "Kernel_Name", "Name"];

/// A table whose rows have as many cells as its header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Table {
    origin: String,
    header: Vec<String>,
    /// Line numbers and cells.
    rows: Vec<(usize, StringRecord)>,
}

/// A row of a [`Table`].
#[derive(Clone, Copy, Debug)]
pub struct TableRow<'a> {
    table: &'a Table,
    line: usize,
    cells: &'a StringRecord,
}

impl Table {
    /// Reads a file. Invalid UTF-8 is replaced: it can occur only in names.
    ///
    /// # Errors
    ///
    /// [`Error::Read`], and the errors of [`Table::parse`].
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bytes = fs::read(path).map_err(|source| Error::read(path, source))?;
        Self::parse(&String::from_utf8_lossy(&bytes), &path.display().to_string())
    }

    /// Parses `text` and skips blank lines. Errors name the source of the text as `origin`.
    ///
    /// # Errors
    ///
    /// [`Error::Malformed`] if the header is missing, a quote is not closed, or a row and the
    /// header differ in length.
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
        let mut records = filled_records(text, origin)?.into_iter();
        let Some((_, header)) = records.next() else {
            return Err(Error::malformed(origin, 0, "the table is empty"));
        };
        let header: Vec<String> = header.iter().map(|name| name.trim().to_owned()).collect();
        let name = header.iter().position(|column| NAME_COLUMNS.contains(&&**column));
        let mut rows = Vec::new();
        for (line, mut cells) in records {
            // rocprof ends rows, but not the header, with a comma.
            if cells.len() == header.len() + 1 && cells.iter().next_back() == Some("") {
                cells.truncate(header.len());
            }
            if let Some(name) = name.filter(|_| cells.len() > header.len()) {
                cells = join_cells(&cells, name, cells.len() - header.len());
            }
            if cells.len() != header.len() {
                let reason = format!("{} cells under {} columns", cells.len(), header.len());
                return Err(Error::malformed(origin, line, reason));
            }
            rows.push((line, cells));
        }
        Ok(Self { origin: origin.to_owned(), header, rows })
    }

    /// Names of the columns.
    pub fn columns(&self) -> &[String] {
        &self.header
    }

    /// Returns true if the table has this column.
    pub(crate) fn has(&self, column: &str) -> bool {
        self.header.iter().any(|name| name == column)
    }

    /// The rows in order.
    pub fn rows(&self) -> impl Iterator<Item = TableRow<'_>> {
        self.rows.iter().map(|(line, cells)| TableRow { table: self, line: *line, cells })
    }
}

impl<'a> TableRow<'a> {
    /// The cell in a column.
    ///
    /// # Errors
    ///
    /// [`Error::NoColumn`].
    pub fn text(&self, column: &str) -> Result<&'a str, Error> {
        self.find(&[column]).ok_or_else(|| self.no_column(column))
    }

    /// The number in a column.
    ///
    /// # Errors
    ///
    /// [`Error::NoColumn`] also if the cell has no value, or [`Error::Malformed`] if it is not a
    /// number.
    pub fn number<T: FromStr>(&self, column: &str) -> Result<T, Error> {
        self.number_of(&[column])?.ok_or_else(|| self.no_column(column))
    }

    /// The cell in the first of `columns` that the table has.
    pub(super) fn find(&self, columns: &[&str]) -> Option<&'a str> {
        let index = columns.iter().find_map(|column| {
            self.table.header.iter().position(|name| name.eq_ignore_ascii_case(column))
        })?;
        self.cells.get(index).map(str::trim)
    }

    /// The number in the first of `columns` that the table has. `None` if it has none of them, or
    /// if the cell is empty or a word for a missing value.
    pub(super) fn number_of<T: FromStr>(&self, columns: &[&str]) -> Result<Option<T>, Error> {
        let Some(text) = self.find(columns) else { return Ok(None) };
        if text.is_empty() || ["none", "n/a", "nan"].contains(&&*text.to_ascii_lowercase()) {
            return Ok(None);
        }
        text.parse().map(Some).map_err(|_| {
            let reason = format!("{} is '{text}', not a valid number", columns[0]);
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

/// The records of `text` that are not blank, with their line numbers.
fn filled_records(text: &str, origin: &str) -> Result<Vec<(usize, StringRecord)>, Error> {
    let mut reader =
        ReaderBuilder::new().has_headers(false).flexible(true).from_reader(text.as_bytes());
    let mut records = Vec::new();
    let mut last = (0, "");
    for record in reader.records() {
        let record = record.map_err(|error| Error::malformed(origin, 0, error.to_string()))?;
        let (start, line) = record.position().map_or((0, 1), |at| (at.byte(), at.line()));
        let rest = text.get(start as usize..).unwrap_or_default();
        // The position lies before the empty lines that the reader skips.
        let raw = rest.trim_start_matches(['\r', '\n']);
        let skipped = rest[..rest.len() - raw.len()].matches('\n').count();
        last = (line as usize + skipped, raw);
        if record.iter().any(|cell| !cell.trim().is_empty()) {
            records.push((last.0, record));
        }
    }
    // The reader accepts the end of the text as the end of a quoted cell.
    let (line, raw) = last;
    if raw.matches('"').count() % 2 == 1 {
        return Err(Error::malformed(origin, line, "a quote is not closed: the table is cut off"));
    }
    Ok(records)
}

/// Joins the cell at `index` with the `surplus` cells after it.
fn join_cells(cells: &StringRecord, index: usize, surplus: usize) -> StringRecord {
    let cells: Vec<&str> = cells.iter().collect();
    let joined = cells[index..=index + surplus].join(",");
    let before = cells[..index].iter().copied();
    let after = cells[index + surplus + 1..].iter().copied();
    before.chain([&*joined]).chain(after).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cells(text: &str) -> Vec<Vec<String>> {
        let table = Table::parse(text, "t").unwrap();
        table.rows.iter().map(|(_, cells)| cells.iter().map(str::to_owned).collect()).collect()
    }

    #[test]
    fn quotes_commas_and_line_breaks() {
        let text = "\u{feff}a,b\r\n\r\n\"x,\"\"y\"\"\",\"1\n2\"\n , \n3,4";
        assert_eq!(cells(text), [["x,\"y\"", "1\n2"], ["3", "4"]]);
        assert_eq!(Table::parse(text, "t").unwrap().columns(), ["a", "b"]);
    }

    #[test]
    fn unquoted_kernel_names_with_commas_are_one_cell() {
        let text = "Index,KernelName,gpu-id\n0,void f<int, 4>(int*, int),7\n1,g,7,\n";
        assert_eq!(cells(text), [["0", "void f<int, 4>(int*, int)", "7"], ["1", "g", "7"]]);
    }

    #[test]
    fn errors_name_the_line() {
        for (text, line, reason) in [
            ("", 0, "empty"),
            ("\n\n", 0, "empty"),
            ("a,b\n1,2\n3\n", 3, "1 cells under 2 columns"),
            ("a,b\n\n\n\"1\n\",2\n\n3\n", 7, "1 cells under 2 columns"),
            ("a,b\n1,\"2\n", 2, "not closed"),
            ("a,b\n1,\"2\n3,4\n5,6\n", 2, "not closed"),
        ] {
            let Err(Error::Malformed { line: at, reason: why, .. }) = Table::parse(text, "t")
            else {
                panic!("{text:?}");
            };
            assert!(at == line && why.contains(reason), "{text:?}: {at}: {why}");
        }
    }

    #[test]
    fn invalid_numbers_are_errors_with_their_line() {
        let table = Table::parse("a,b\n1,None\nx,2\n", "t").unwrap();
        let rows: Vec<_> = table.rows().collect();
        assert_eq!(rows[0].number_of::<u64>(&["b"]).unwrap(), None);
        let error = rows[1].number::<u64>("a").unwrap_err().to_string();
        assert_eq!(error, "'t', line 3: a is 'x', not a valid number");
        assert!(matches!(rows[0].text("c"), Err(Error::NoColumn { .. })));
    }
}
