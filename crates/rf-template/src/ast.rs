//! The tree of a template.

use std::sync::Arc;

use crate::value::Value;

/// Statements one after another.
pub(crate) type Statements = Vec<Node>;

/// A statement and its line.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) line: u32,
    pub(crate) statement: Statement,
}

#[derive(Debug)]
pub(crate) enum Statement {
    Text(String),
    Print(Expr),
    /// The branches with their conditions, and the block of `else`.
    If(Vec<(Expr, Statements)>, Statements),
    For(Box<For>),
    Set(AssignmentTarget, Expr),
    SetBlock(AssignmentTarget, Vec<Call>, Statements),
    /// Defines the macro with this index.
    Macro(usize),
    /// Prints a call whose `caller` is the call block with this index.
    CallBlock(Expr, usize),
    Filter(Vec<Call>, Statements),
    With(Vec<(AssignmentTarget, Expr)>, Statements),
    Break,
    Continue,
    Do(Expr),
}

#[derive(Debug)]
pub(crate) struct For {
    pub(crate) target: AssignmentTarget,
    pub(crate) items: Expr,
    pub(crate) condition: Option<Expr>,
    pub(crate) body: Statements,
    pub(crate) otherwise: Statements,
}

/// The target of `set` and `for`.
#[derive(Debug)]
pub(crate) enum AssignmentTarget {
    Name(Arc<str>),
    Field(Arc<str>, Arc<str>),
    Names(Vec<Arc<str>>),
}

/// Parameters with their defaults.
pub(crate) type Parameters = Vec<(Arc<str>, Option<Expr>)>;

/// A macro, or the body of a call block.
#[derive(Debug)]
pub(crate) struct Macro {
    pub(crate) name: Arc<str>,
    pub(crate) parameters: Parameters,
    /// True if the body reads `varargs`: positional arguments without a parameter.
    pub(crate) has_varargs: bool,
    /// True if the body reads `kwargs`: named arguments without a parameter.
    pub(crate) has_kwargs: bool,
    pub(crate) body: Statements,
}

/// A name with arguments: a filter, a test, a function or a method.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: Arc<str>,
    pub(crate) positional: Vec<Expr>,
    pub(crate) named: Vec<(Arc<str>, Expr)>,
}

/// An expression and its height, which is limited: evaluating and dropping recurse.
#[derive(Debug)]
pub(crate) struct Expr {
    pub(crate) kind: Box<NodeKind>,
    pub(crate) height: u16,
}

#[derive(Debug)]
pub(crate) enum NodeKind {
    Constant(Value),
    Name(Arc<str>),
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Map(Vec<(Expr, Expr)>),
    Not(Expr),
    Negate(Expr),
    Plus(Expr),
    And(Expr, Expr),
    Or(Expr, Expr),
    Binary(Operator, Expr, Expr),
    /// `a < b <= c`: the first operand and the others with their operators.
    Compare(Expr, Vec<(Comparison, Expr)>),
    /// The value, the condition and the value otherwise.
    Ternary(Expr, Expr, Option<Expr>),
    Field(Expr, Arc<str>),
    Item(Expr, Expr),
    Slice(Expr, [Option<Expr>; 3]),
    /// A call of a value; the name of the call is empty.
    Call(Expr, Call),
    Method(Expr, Call),
    Filter(Expr, Call),
    /// A test, and whether it is negated.
    Test(Expr, Call, bool),
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Operator {
    Add,
    Subtract,
    Concat,
    Multiply,
    Divide,
    FloorDivide,
    Remainder,
    Power,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum Comparison {
    Equal,
    NotEqual,
    Less,
    LessOrEqual,
    Greater,
    GreaterOrEqual,
    In,
    NotIn,
}
