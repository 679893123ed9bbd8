//! `rf-cli list`: lists the models that are downloaded, or those that have a short name.

use std::io::{self, Write};

use anyhow::Result;
use chrono::{DateTime, Local};
use clap::Args;
use rocmforge::hub::{CachedModel, Hub, Product, ShortName};
use serde::Serialize;

use crate::hub;
use crate::terminal::{self, Palette};

/// Arguments of `rf-cli list`.
#[derive(Debug, Args)]
#[command(after_help = "\
Every name in the list can be given to `rf-cli run`, to -m of all commands, and to `rf-cli rm`.

Examples:
  rf-cli list
  rf-cli list --all")]
pub(crate) struct ListArgs {
    /// List all models that have a short name, with the size of the download
    #[arg(short, long)]
    all: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// A row of the list.
#[derive(Serialize)]
struct Row {
    /// The short name, else the repository and the quantisation.
    name: String,
    /// The repository and the quantisation.
    model: String,
    size: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    /// The date of the download, or what the model makes.
    note: String,
}

/// Runs `rf-cli list`.
pub(crate) fn list(arguments: &ListArgs) -> Result<()> {
    hub::warn_of_names();
    let cached = Hub::from_env()?.cached();
    let rows: Vec<Row> = if arguments.all {
        ShortName::all().iter().map(|name| Row::of_name(name, &cached)).collect()
    } else {
        cached.iter().map(Row::of_cached).collect()
    };
    let mut out = io::stdout().lock();
    if arguments.json {
        writeln!(out, "{}", serde_json::to_string_pretty(&rows)?)?;
        return Ok(());
    }
    if rows.is_empty() {
        terminal::note(
            "no model is downloaded: `rf-cli list --all` shows names, and `rf-cli pull NAME` downloads one",
        );
        return Ok(());
    }
    let headings = if arguments.all { ["DOWNLOAD", "MAKES"] } else { ["SIZE", "DOWNLOADED"] };
    print(&mut out, headings, &rows)?;
    Ok(())
}

fn print(out: &mut impl Write, [size, note]: [&str; 2], rows: &[Row]) -> io::Result<()> {
    let width = |column: fn(&Row) -> &str, heading: &str| {
        rows.iter().map(|row| column(row).chars().count()).max().unwrap_or(0).max(heading.len())
    };
    let names = width(|row| &row.name, "NAME");
    let (sizes, notes) = (width(|row| &row.size, size), width(|row| &row.note, note));
    let heading = format!("{:names$}  {size:>sizes$}  {note:notes$}  MODEL", "NAME");
    writeln!(out, "{}", Palette::stdout().bold(heading))?;
    for row in rows {
        let Row { name, model, size, note, .. } = row;
        writeln!(out, "{name:names$}  {size:>sizes$}  {note:notes$}  {model}")?;
    }
    Ok(())
}

impl Row {
    fn of_cached(model: &CachedModel) -> Self {
        let name = name_of(model);
        let date = model.modified.map(DateTime::<Local>::from);
        Self {
            name: terminal::shown(&name),
            model: terminal::shown(&model.name.to_string()),
            size: terminal::bytes(model.size_bytes),
            path: Some(model.path.display().to_string()),
            note: date.map_or_else(String::new, |date| date.format("%Y-%m-%d").to_string()),
        }
    }

    fn of_name(name: &ShortName, cached: &[CachedModel]) -> Self {
        let path = cached.iter().find(|model| is_of(name, model)).map(|model| &model.path);
        let product = match name.product() {
            Product::Embeddings => "embeddings",
            Product::Scores => "scores",
            _ => "text",
        };
        let is_here = if path.is_some() { ", downloaded" } else { "" };
        Self {
            name: name.to_string(),
            model: name.model().to_string(),
            size: format!("{} GB", name.download_gb()),
            path: path.map(|path| path.display().to_string()),
            note: format!("{product}{is_here}"),
        }
    }
}

/// The short name of a cached model, else its repository and quantisation.
pub(super) fn name_of(model: &CachedModel) -> String {
    let short = ShortName::all().iter().find(|short| is_of(short, model));
    short.map_or_else(|| model.name.to_string(), ToString::to_string)
}

/// Returns true if a cached model is the one of a short name.
pub(super) fn is_of(name: &ShortName, cached: &CachedModel) -> bool {
    let quant = |name: &rocmforge::hub::ModelName| name.quant().map(str::to_ascii_uppercase);
    let wanted = quant(name.model());
    name.model().repo() == cached.name.repo() && (wanted.is_none() || wanted == quant(&cached.name))
}
