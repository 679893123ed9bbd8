//! Runs a template: statements.

mod arguments;
mod call;
mod checks;
mod expression;
mod filters;
mod percent;
mod sequences;
mod texts;

use std::collections::HashMap;
use std::sync::Arc;

use crate::ast::{AssignmentTarget, Call, Expr, For, Node, Statement, Statements};
use crate::error::Error;
use crate::meter::{Meter, Text};
use crate::parser::Tree;
use crate::print;
use crate::value::{List, Value};

/// Depth of statements, expressions and macros within each other while a template runs. It bounds
/// the stack: a test runs the deepest templates on a small one.
const MAX_DEPTH: u16 = 400;

/// Writes the current time in a format of `strftime`, or returns `None` for a bad format.
pub(crate) type TimeFormatter<'c> = &'c dyn Fn(&str) -> Option<String>;

/// Runs `tree` with the variables `context`.
pub(crate) fn run(
    tree: &Tree,
    context: HashMap<Arc<str>, Value>,
    meter: &Meter,
    clock: TimeFormatter<'_>,
) -> Result<String, Error> {
    let mut run = TemplateRun {
        tree,
        meter,
        clock,
        frames: vec![Frame { variables: context, parent: 0 }],
        frame: 0,
        namespaces: Vec::new(),
        loops: Vec::new(),
        callers: Vec::new(),
        output: Text::new(meter),
        depth: 0,
    };
    run.block(&tree.body)?;
    Ok(run.output.finish())
}

pub(crate) struct TemplateRun<'t> {
    tree: &'t Tree,
    meter: &'t Meter,
    clock: TimeFormatter<'t>,
    frames: Vec<Frame>,
    /// The index of the innermost frame.
    frame: usize,
    namespaces: Vec<HashMap<Arc<str>, Value>>,
    loops: Vec<Loop>,
    /// Call blocks that run: their index in the tree, and the frame around them.
    callers: Vec<(usize, usize)>,
    output: Text<'t>,
    depth: u16,
}

/// The variables of a block, and the frame around it. Frame 0 has those of the whole template.
struct Frame {
    variables: HashMap<Arc<str>, Value>,
    parent: usize,
}

/// The state of a `for`.
struct Loop {
    items: Arc<List>,
    index: usize,
    depth: usize,
    /// The last arguments of `loop.changed`.
    seen: Option<Value>,
}

/// How a block ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

impl<'t> TemplateRun<'t> {
    fn block(&mut self, block: &'t Statements) -> Result<Flow, Error> {
        for node in block {
            let flow = self.deeper(|run| run.statement(node)).map_err(|e| e.on_line(node.line))?;
            if flow != Flow::Next {
                return Ok(flow);
            }
        }
        Ok(Flow::Next)
    }

    /// Runs `step` one level deeper.
    fn deeper<T>(&mut self, step: impl FnOnce(&mut Self) -> Result<T, Error>) -> Result<T, Error> {
        self.meter.step(1)?;
        if self.depth >= MAX_DEPTH {
            return Err(Error::failed("macros call each other too deeply"));
        }
        self.depth += 1;
        let result = step(self);
        self.depth -= 1;
        result
    }

    fn statement(&mut self, node: &'t Node) -> Result<Flow, Error> {
        match &node.statement {
            Statement::Text(text) => self.output.push(text)?,
            Statement::Print(value) => {
                let value = self.value(value)?;
                print::print(&value, &mut self.output)?;
            }
            Statement::If(branches, otherwise) => return self.conditional(branches, otherwise),
            Statement::For(statement) => self.for_loop(statement)?,
            Statement::Set(target, value) => {
                let value = self.value(value)?;
                self.assign(target, value)?;
            }
            Statement::SetBlock(target, filters, body) => {
                let text = self.in_frame(|run| run.captured(body))?;
                let value = self.filtered(text, filters)?;
                self.assign(target, value)?;
            }
            Statement::Macro(index) => {
                let name = Arc::clone(&self.tree.macros[*index].name);
                self.set(name, Value::Macro(*index))?;
            }
            Statement::CallBlock(call, index) => self.call_block(call, *index)?,
            Statement::Filter(filters, body) => {
                let text = self.in_frame(|run| run.captured(body))?;
                let value = self.filtered(text, filters)?;
                print::print(&value, &mut self.output)?;
            }
            Statement::With(assignments, body) => {
                return self.in_frame(|run| {
                    for (target, value) in assignments {
                        let value = run.value(value)?;
                        run.assign(target, value)?;
                    }
                    run.block(body)
                });
            }
            Statement::Break => return Ok(Flow::Break),
            Statement::Continue => return Ok(Flow::Continue),
            Statement::Do(value) => drop(self.value(value)?),
        }
        Ok(Flow::Next)
    }

    fn conditional(
        &mut self,
        branches: &'t [(Expr, Statements)],
        otherwise: &'t Statements,
    ) -> Result<Flow, Error> {
        for (condition, body) in branches {
            if self.value(condition)?.is_true() {
                return self.block(body);
            }
        }
        self.block(otherwise)
    }

    fn for_loop(&mut self, statement: &'t For) -> Result<(), Error> {
        let items = self.value(&statement.items)?;
        let mut items = self.items(&items)?;
        if let Some(condition) = &statement.condition {
            let mut kept = Vec::new();
            for item in &items.items {
                let keep = self.in_frame(|run| {
                    run.assign(&statement.target, item.clone())?;
                    Ok(run.value(condition)?.is_true())
                })?;
                if keep {
                    self.meter.allocate_list(1)?;
                    kept.push(item.clone());
                }
            }
            items = list_of(kept)?;
        }
        if items.items.is_empty() {
            return self.in_frame(|run| run.block(&statement.otherwise)).map(drop);
        }
        let (count, depth) = (items.items.len(), self.loops.len());
        self.loops.push(Loop { items, index: 0, depth, seen: None });
        let result = self.iterate(statement, depth, count);
        self.loops.truncate(depth);
        result
    }

    fn iterate(&mut self, statement: &'t For, depth: usize, count: usize) -> Result<(), Error> {
        for index in 0..count {
            self.meter.step(1)?;
            self.loops[depth].index = index;
            let item = self.loops[depth].items.items[index].clone();
            let flow = self.in_frame(|run| {
                run.set("loop".into(), Value::Loop(depth))?;
                run.assign(&statement.target, item)?;
                run.block(&statement.body)
            })?;
            if flow == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    fn call_block(&mut self, call: &'t Expr, index: usize) -> Result<(), Error> {
        let depth = self.callers.len();
        self.callers.push((index, self.frame));
        let result = self.value_with_caller(call, Value::Caller(depth));
        self.callers.truncate(depth);
        print::print(&result?, &mut self.output)
    }

    fn filtered(&mut self, text: String, filters: &'t [Call]) -> Result<Value, Error> {
        let mut value = Value::text(text);
        for filter in filters {
            value = self.apply_filter(value, filter)?;
        }
        Ok(value)
    }

    /// The output of a block as text.
    fn captured(&mut self, body: &'t Statements) -> Result<String, Error> {
        let outer = std::mem::replace(&mut self.output, Text::new(self.meter));
        let result = self.block(body);
        let inner = std::mem::replace(&mut self.output, outer);
        result.map(|_| inner.finish())
    }

    /// Runs `step` with its own frame.
    fn in_frame<T>(
        &mut self,
        step: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.in_frame_below(self.frame, step)
    }

    fn in_frame_below<T>(
        &mut self,
        parent: usize,
        step: impl FnOnce(&mut Self) -> Result<T, Error>,
    ) -> Result<T, Error> {
        let outer = self.frame;
        self.frame = self.frames.len();
        self.frames.push(Frame { variables: HashMap::new(), parent });
        let result = step(self);
        self.frames.truncate(self.frame);
        self.frame = outer;
        result
    }

    fn assign(&mut self, target: &'t AssignmentTarget, value: Value) -> Result<(), Error> {
        match target {
            AssignmentTarget::Name(name) => self.set(Arc::clone(name), value),
            AssignmentTarget::Field(name, field) => {
                let Some(Value::Namespace(index)) = self.variable(name) else {
                    return Err(Error::failed(format!("`{name}` is not a namespace")));
                };
                self.meter.allocate(VARIABLE_BYTES)?;
                self.namespaces[index].insert(Arc::clone(field), value);
                Ok(())
            }
            AssignmentTarget::Names(names) => {
                let items = self.items(&value)?;
                if items.items.len() != names.len() {
                    let (found, expected) = (items.items.len(), names.len());
                    let message = format!("{found} values for {expected} names");
                    return Err(Error::failed(message));
                }
                for (name, item) in names.iter().zip(&items.items) {
                    self.set(Arc::clone(name), item.clone())?;
                }
                Ok(())
            }
        }
    }

    fn set(&mut self, name: Arc<str>, value: Value) -> Result<(), Error> {
        self.meter.step(1)?;
        self.frames[self.frame].variables.insert(name, value);
        Ok(())
    }

    fn variable(&self, name: &str) -> Option<Value> {
        let mut index = self.frame;
        loop {
            let frame = self.frames.get(index)?;
            if let Some(value) = frame.variables.get(name) {
                return Some(value.clone());
            }
            if index == 0 {
                return None;
            }
            index = frame.parent;
        }
    }
}

/// A list whose memory is charged.
fn list_of(items: Vec<Value>) -> Result<Arc<List>, Error> {
    match Value::list(items)? {
        Value::List(list) => Ok(list),
        _ => Err(Error::failed("no list")),
    }
}

/// The memory of a field of a namespace, about.
const VARIABLE_BYTES: usize = 64;
