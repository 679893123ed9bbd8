//! Filters of lists and mappings.

use std::cmp::Ordering;
use std::sync::Arc;

use super::arguments::{Arguments, size, text, text_or};
use super::{TemplateRun, list_of};
use crate::error::Error;
use crate::meter::Text;
use crate::print;
use crate::value::{List, Value};

impl TemplateRun<'_> {
    /// The elements that a loop over `value` has.
    pub(super) fn items(&self, value: &Value) -> Result<Arc<List>, Error> {
        match value {
            Value::Undefined => list_of(Vec::new()),
            Value::List(list) => Ok(Arc::clone(list)),
            Value::Map(map) => {
                self.meter.allocate_list(map.entries.len())?;
                list_of(map.entries.keys().map(crate::value::Key::to_value).collect())
            }
            Value::Text(text) => {
                self.meter.allocate_list(text.len())?;
                self.meter.allocate(text.len().saturating_mul(32))?;
                list_of(text.chars().map(|c| Value::text(c.to_string())).collect())
            }
            _ => Err(Error::failed(format!("a {} is not iterable", value.kind()))),
        }
    }

    pub(super) fn sequence_filter(
        &mut self,
        name: &str,
        value: &Value,
        mut arguments: Arguments,
    ) -> Result<Value, Error> {
        match name {
            "items" => return self.pairs(value, "items"),
            "dictsort" => return self.sorted_pairs(value, arguments),
            "reverse" if value.as_text().is_some() => {
                let text = self.printed(value)?;
                self.meter.scan(text.len())?;
                self.meter.allocate(text.len())?;
                return Ok(Value::text(text.chars().rev().collect::<String>()));
            }
            "map" | "select" | "reject" | "selectattr" | "rejectattr" | "list" | "join"
            | "first" | "last" | "sort" | "unique" | "reverse" | "sum" | "min" | "max"
            | "batch" | "slice" | "groupby" | "zip" => {}
            _ => return Err(Error::failed(format!("unknown filter `{name}`"))),
        }
        let list = self.items(value)?;
        let items = list.items.as_slice();
        self.meter.step(items.len())?;
        match name {
            "map" => self.mapped(items, arguments),
            "select" | "reject" | "selectattr" | "rejectattr" => {
                self.selected(name, items, arguments)
            }
            "list" if list.is_tuple => {
                self.meter.allocate_list(list.items.len())?;
                Value::list(list.items.clone())
            }
            "list" => Ok(Value::List(list)),
            "join" => self.join(items, arguments),
            "first" => Ok(items.first().cloned().unwrap_or(Value::Undefined)),
            "last" => Ok(items.last().cloned().unwrap_or(Value::Undefined)),
            "reverse" => {
                self.meter.allocate_list(items.len())?;
                Value::list(items.iter().rev().cloned().collect())
            }
            "sort" => {
                let names = ["reverse", "case_sensitive", "attribute"];
                let [reverse, case_sensitive, attribute] = arguments.bind(name, names)?;
                self.sorted(items, &attribute, case_sensitive.is_true(), reverse.is_true())
            }
            "unique" => self.unique(items, arguments),
            "sum" => {
                let [attribute, start] = arguments.bind(name, ["attribute", "start"])?;
                let start = if let Value::Undefined = start { Value::Int(0) } else { start };
                items.iter().try_fold(start, |sum, item| {
                    let item = self.attribute(item, &attribute)?;
                    self.add(&sum, &item)
                })
            }
            "min" | "max" => {
                let [case_sensitive, attribute] =
                    arguments.bind(name, ["case_sensitive", "attribute"])?;
                let sorted =
                    self.sorted(items, &attribute, case_sensitive.is_true(), name == "max")?;
                Ok(self.items(&sorted)?.items.first().cloned().unwrap_or(Value::Undefined))
            }
            "batch" | "slice" => self.cut(name, items, arguments),
            "groupby" => {
                let [attribute, default] = arguments.bind(name, ["attribute", "default"])?;
                self.grouped(items, &attribute, &default)
            }
            _ => {
                let mut lists = vec![Arc::clone(&list)];
                for other in std::mem::take(&mut arguments.positional) {
                    lists.push(self.items(&other)?);
                }
                let len = lists.iter().map(|list| list.items.len()).min().unwrap_or(0);
                self.meter.allocate_list(len.saturating_mul(lists.len() + 3))?;
                let row =
                    |at: usize| Value::list(lists.iter().map(|l| l.items[at].clone()).collect());
                Value::list((0..len).map(row).collect::<Result<_, _>>()?)
            }
        }
    }

    /// The field that a dotted path names, or the value itself without a path.
    fn attribute(&self, value: &Value, path: &Value) -> Result<Value, Error> {
        let path = match path {
            Value::Undefined | Value::None => return Ok(value.clone()),
            Value::Text(path) => path,
            index => return self.item(value, index),
        };
        let mut value = value.clone();
        for part in path.split('.') {
            self.meter.step(1)?;
            let key = part.parse().map_or_else(|_| Value::text(part), Value::Int);
            value = self.item(&value, &key)?;
        }
        Ok(value)
    }

    fn mapped(&mut self, items: &[Value], mut arguments: Arguments) -> Result<Value, Error> {
        self.meter.allocate_list(items.len())?;
        let named = arguments.named.iter().position(|(name, _)| &**name == "attribute");
        if let Some(at) = named {
            let (_, path) = arguments.named.swap_remove(at);
            let default = arguments.named.into_iter().find(|(name, _)| &**name == "default");
            let values = items.iter().map(|item| {
                let value = self.attribute(item, &path)?;
                Ok(match (&value, &default) {
                    (Value::Undefined, Some((_, default))) => default.clone(),
                    _ => value,
                })
            });
            return Value::list(values.collect::<Result<_, Error>>()?);
        }
        let (filter, arguments) = leading_name("map", arguments)?;
        let values = items.iter().map(|item| {
            let arguments = self.copied(&arguments)?;
            self.deeper(|run| run.filter(&filter, item.clone(), arguments))
        });
        Value::list(values.collect::<Result<_, _>>()?)
    }

    fn selected(
        &mut self,
        name: &str,
        items: &[Value],
        mut arguments: Arguments,
    ) -> Result<Value, Error> {
        self.meter.allocate_list(items.len())?;
        let mut path = Value::Undefined;
        if name.ends_with("attr") {
            if arguments.positional.is_empty() {
                return Err(Error::failed(format!("{name} needs the name of a field")));
            }
            path = arguments.positional.remove(0);
        }
        let test = if arguments.positional.is_empty() {
            None
        } else {
            Some(leading_name(name, arguments)?)
        };
        let mut kept = Vec::new();
        for item in items {
            let field = self.attribute(item, &path)?;
            let passes = match &test {
                None => field.is_true(),
                Some((test, arguments)) => {
                    let arguments = self.copied(arguments)?;
                    self.test(test, &field, arguments)?
                }
            };
            if passes == name.starts_with("select") {
                kept.push(item.clone());
            }
        }
        Value::list(kept)
    }

    fn copied(&self, arguments: &Arguments) -> Result<Arguments, Error> {
        self.meter.step(arguments.positional.len() + arguments.named.len())?;
        let (positional, named) = (arguments.positional.clone(), arguments.named.clone());
        Ok(Arguments { positional, named })
    }

    fn join(&self, items: &[Value], arguments: Arguments) -> Result<Value, Error> {
        let [separator, attribute] = arguments.bind("join", ["d", "attribute"])?;
        let separator = text_or(&separator, "")?;
        let mut text = Text::new(self.meter);
        for (index, item) in items.iter().enumerate() {
            if index > 0 {
                text.push(&separator)?;
            }
            print::print(&self.attribute(item, &attribute)?, &mut text)?;
        }
        Ok(Value::text(text.finish()))
    }

    /// The sort keys of items: their field, in lower case unless `case_sensitive`.
    fn sort_keys(
        &self,
        items: &[Value],
        attribute: &Value,
        case_sensitive: bool,
    ) -> Result<Vec<Value>, Error> {
        self.meter.allocate_list(items.len())?;
        let key = |item: &Value| match self.attribute(item, attribute)? {
            Value::Text(text) if !case_sensitive => {
                self.meter.scan(text.len())?;
                self.meter.allocate(text.len().saturating_mul(2))?;
                Ok(Value::text(text.to_lowercase()))
            }
            key => Ok(key),
        };
        items.iter().map(key).collect()
    }

    fn sorted(
        &self,
        items: &[Value],
        attribute: &Value,
        case_sensitive: bool,
        reverse: bool,
    ) -> Result<Value, Error> {
        let keys = self.sort_keys(items, attribute, case_sensitive)?;
        self.meter.allocate_list(items.len().saturating_mul(2))?;
        let mut order: Vec<usize> = (0..items.len()).collect();
        let mut failure = None;
        order.sort_by(|&a, &b| {
            if failure.is_some() {
                return Ordering::Equal;
            }
            let order = keys[a].compare(&keys[b], self.meter).unwrap_or_else(|error| {
                failure = Some(error);
                Ordering::Equal
            });
            if reverse { order.reverse() } else { order }
        });
        match failure {
            Some(error) => Err(error),
            None => Value::list(order.into_iter().map(|at| items[at].clone()).collect()),
        }
    }

    fn sorted_pairs(&self, value: &Value, arguments: Arguments) -> Result<Value, Error> {
        let [case_sensitive, by, reverse] =
            arguments.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
        let by = Value::Int(i128::from(&*text_or(&by, "key")? == "value"));
        let pairs = self.items(&self.pairs(value, "items")?)?;
        self.sorted(&pairs.items, &by, case_sensitive.is_true(), reverse.is_true())
    }

    fn unique(&self, items: &[Value], arguments: Arguments) -> Result<Value, Error> {
        let [case_sensitive, attribute] =
            arguments.bind("unique", ["case_sensitive", "attribute"])?;
        let keys = self.sort_keys(items, &attribute, case_sensitive.is_true())?;
        let mut kept: Vec<usize> = Vec::new();
        'items: for at in 0..items.len() {
            for &earlier in &kept {
                if keys[at].equals(&keys[earlier], self.meter)? {
                    continue 'items;
                }
            }
            kept.push(at);
        }
        self.meter.allocate_list(kept.len())?;
        Value::list(kept.into_iter().map(|at| items[at].clone()).collect())
    }

    fn add(&self, a: &Value, b: &Value) -> Result<Value, Error> {
        self.meter.step(1)?;
        match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
            (Some(a), Some(b), ..) => {
                a.checked_add(b).map(Value::Int).ok_or_else(|| Error::failed("too large"))
            }
            (_, _, Some(a), Some(b)) => Ok(Value::Float(a + b)),
            _ => Err(Error::failed(format!("cannot add {} and {}", a.kind(), b.kind()))),
        }
    }

    /// `batch`: lists of a length. `slice`: a number of lists.
    fn cut(&self, name: &str, items: &[Value], arguments: Arguments) -> Result<Value, Error> {
        let [count, fill] = arguments.bind(name, ["count", "fill_with"])?;
        let count = size(&count, 0)?;
        if count == 0 {
            return Err(Error::failed(format!("{name} needs a number above 0")));
        }
        let lists = if name == "batch" { items.len().div_ceil(count) } else { count };
        let cells = if name == "batch" { lists.saturating_mul(count) } else { items.len() };
        self.meter.allocate_list(lists.saturating_mul(4).saturating_add(cells))?;
        self.meter.allocate_list(lists)?;
        let fills = !matches!(fill, Value::Undefined);
        let mut rows = Vec::new();
        let mut at = 0;
        for index in 0..lists {
            let len = if name == "batch" {
                count.min(items.len() - at)
            } else {
                items.len() / count + usize::from(index < items.len() % count)
            };
            let mut row = items[at..at + len].to_vec();
            at += len;
            if fills && name == "batch" {
                row.resize(count, fill.clone());
            } else if fills && !items.len().is_multiple_of(count) && index >= items.len() % count {
                row.push(fill.clone());
            }
            rows.push(Value::list(row)?);
        }
        Value::list(rows)
    }

    fn grouped(&self, items: &[Value], attribute: &Value, default: &Value) -> Result<Value, Error> {
        let sorted = self.sorted(items, attribute, false, false)?;
        let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
        for item in &self.items(&sorted)?.items {
            self.meter.allocate_list(6)?;
            let mut key = self.attribute(item, attribute)?;
            if matches!(key, Value::Undefined) {
                key = default.clone();
            }
            match groups.last_mut() {
                Some((last, group)) if last.equals(&key, self.meter)? => group.push(item.clone()),
                _ => groups.push((key, vec![item.clone()])),
            }
        }
        let row = |(key, group): (Value, Vec<Value>)| Value::list(vec![key, Value::list(group)?]);
        Value::list(groups.into_iter().map(row).collect::<Result<_, _>>()?)
    }
}

/// The filter or test that `function` applies, and its arguments.
fn leading_name(function: &str, mut arguments: Arguments) -> Result<(Arc<str>, Arguments), Error> {
    if arguments.positional.is_empty() {
        return Err(Error::failed(format!("{function} needs the name of a filter")));
    }
    let name = arguments.positional.remove(0);
    Ok((Arc::clone(text(&name)?), arguments))
}
