//! A template's operators as calls of ours, before it is compiled.
//!
//! `minijinja` computes operators of constants while it compiles, however large the result, and its operators are not
//! in all cases Python's. Calls are left for the rendering, which counts what they spend. Macros that read `varargs`
//! or `kwargs`, which `minijinja` does not know, take these as parameters and are wrapped: see [`super::macros`].

use minijinja::Value;
use minijinja::machinery::Span;
use minijinja::machinery::ast::*;

use super::macros::MACRO;
use super::operators as own;

/// The same template, without operators that make values.
pub(super) fn rewritten<'s>(template: &Stmt<'s>) -> Stmt<'s> {
    let mut statements = Rewriter::default().statement(template);
    statements.pop().expect("a template is one statement")
}

/// The parameters of a macro that take what its own do not.
const VARARGS: &str = "varargs";
const KWARGS: &str = "kwargs";

/// Notes whether what it has gone through reads `varargs` and `kwargs`.
#[derive(Default)]
struct Rewriter {
    reads_varargs: bool,
    reads_kwargs: bool,
}

impl Rewriter {
    fn body<'s>(&mut self, body: &[Stmt<'s>]) -> Vec<Stmt<'s>> {
        body.iter().flat_map(|statement| self.statement(statement)).collect()
    }

    /// Mostly one statement; a macro and its wrapping are two.
    fn statement<'s>(&mut self, statement: &Stmt<'s>) -> Vec<Stmt<'s>> {
        vec![match statement {
            Stmt::Template(s) => {
                Stmt::Template(Spanned::new(Template { children: self.body(&s.children) }, s.span()))
            }
            Stmt::EmitExpr(s) => {
                Stmt::EmitExpr(Spanned::new(EmitExpr { expr: self.expr(&s.expr) }, s.span()))
            }
            Stmt::EmitRaw(s) => Stmt::EmitRaw(Spanned::new(EmitRaw { raw: s.raw }, s.span())),
            Stmt::ForLoop(s) => {
                let new = ForLoop {
                    target: self.expr(&s.target),
                    iter: self.expr(&s.iter),
                    filter_expr: self.option(&s.filter_expr),
                    recursive: s.recursive,
                    body: self.body(&s.body),
                    else_body: self.body(&s.else_body),
                };
                Stmt::ForLoop(Spanned::new(new, s.span()))
            }
            Stmt::IfCond(s) => {
                let new = IfCond {
                    expr: self.expr(&s.expr),
                    true_body: self.body(&s.true_body),
                    false_body: self.body(&s.false_body),
                };
                Stmt::IfCond(Spanned::new(new, s.span()))
            }
            Stmt::WithBlock(s) => {
                let (names, values): (Vec<_>, Vec<_>) =
                    s.assignments.iter().map(|(name, value)| (self.expr(name), self.expr(value))).unzip();
                // All values are those of outside.
                let names = Expr::List(Spanned::new(List { items: names }, s.span()));
                let values = Expr::Tuple(Spanned::new(Tuple { items: values }, s.span()));
                let assignments = if s.assignments.is_empty() { Vec::new() } else { vec![(names, values)] };
                Stmt::WithBlock(Spanned::new(WithBlock { assignments, body: self.body(&s.body) }, s.span()))
            }
            Stmt::Set(s) => {
                let new = Set { target: self.expr(&s.target), expr: self.expr(&s.expr) };
                Stmt::Set(Spanned::new(new, s.span()))
            }
            Stmt::SetBlock(s) => {
                let new = SetBlock {
                    target: self.expr(&s.target),
                    filter: self.option(&s.filter),
                    body: self.body(&s.body),
                };
                Stmt::SetBlock(Spanned::new(new, s.span()))
            }
            Stmt::AutoEscape(s) => {
                let new = AutoEscape { enabled: self.expr(&s.enabled), body: self.body(&s.body) };
                Stmt::AutoEscape(Spanned::new(new, s.span()))
            }
            Stmt::FilterBlock(s) => {
                let new = FilterBlock { filter: self.expr(&s.filter), body: self.body(&s.body) };
                Stmt::FilterBlock(Spanned::new(new, s.span()))
            }
            Stmt::Block(s) => {
                let new = Block { name: s.name, required: s.required, body: self.body(&s.body) };
                Stmt::Block(Spanned::new(new, s.span()))
            }
            Stmt::Import(s) => {
                let new = Import { expr: self.expr(&s.expr), name: self.expr(&s.name) };
                Stmt::Import(Spanned::new(new, s.span()))
            }
            Stmt::FromImport(s) => {
                let names =
                    s.names.iter().map(|(name, alias)| (self.expr(name), self.option(alias))).collect();
                Stmt::FromImport(Spanned::new(FromImport { expr: self.expr(&s.expr), names }, s.span()))
            }
            Stmt::Extends(s) => Stmt::Extends(Spanned::new(Extends { name: self.expr(&s.name) }, s.span())),
            Stmt::Include(s) => {
                let new = Include { name: self.expr(&s.name), ignore_missing: s.ignore_missing };
                Stmt::Include(Spanned::new(new, s.span()))
            }
            Stmt::Macro(s) => return self.declaration(s),
            Stmt::CallBlock(s) => {
                let macro_decl = Spanned::new(self.plain_macro(&s.macro_decl), s.macro_decl.span());
                Stmt::CallBlock(Spanned::new(CallBlock { call: self.call(&s.call), macro_decl }, s.span()))
            }
            Stmt::Continue(s) => Stmt::Continue(Spanned::new(Continue, s.span())),
            Stmt::Break(s) => Stmt::Break(Spanned::new(Break, s.span())),
            Stmt::Do(s) => Stmt::Do(Spanned::new(Do { call: self.call(&s.call) }, s.span())),
        }]
    }

    /// A macro, and where it takes more than its parameters say, its wrapping under the same name.
    fn declaration<'s>(&mut self, declared: &Spanned<Macro<'s>>) -> Vec<Stmt<'s>> {
        let mut inner = Rewriter::default();
        let mut new = inner.plain_macro(declared);
        let span = declared.span();
        if !inner.reads_varargs && !inner.reads_kwargs {
            return vec![Stmt::Macro(Spanned::new(new, span))];
        }
        let names = new.args.iter().filter_map(|name| match name {
            Expr::Var(name) => Some(Value::from(name.id)),
            _ => None,
        });
        let taken = [inner.reads_varargs.into(), inner.reads_kwargs.into(), Value::from_iter(names)];
        new.args.splice(0..0, [VARARGS, KWARGS].map(|name| variable(name, span)));
        let operands = [variable(new.name, span)].into_iter().chain(taken.map(|value| constant(value, span)));
        let wrapped = call(MACRO, operands, span);
        let set = Set { target: variable(new.name, span), expr: wrapped };
        vec![Stmt::Macro(Spanned::new(new, span)), Stmt::Set(Spanned::new(set, span))]
    }

    /// A macro whose defaults are set in the order of its parameters, since one may be that of an earlier parameter.
    fn plain_macro<'s>(&mut self, declared: &Macro<'s>) -> Macro<'s> {
        let args = self.exprs(&declared.args);
        let with_default = &declared.args[declared.args.len() - declared.defaults.len()..];
        let mut body: Vec<Stmt> = with_default
            .iter()
            .zip(&declared.defaults)
            .map(|(name, value)| self.set_default(name, value))
            .collect();
        body.extend(self.body(&declared.body));
        Macro { name: declared.name, args, defaults: Vec::new(), body }
    }

    /// Sets a parameter that is undefined.
    fn set_default<'s>(&mut self, name: &Expr<'s>, value: &Expr<'s>) -> Stmt<'s> {
        let span = name.span();
        let test = Test { name: "undefined", expr: self.expr(name), args: Vec::new() };
        let set = Set { target: self.expr(name), expr: self.expr(value) };
        let condition = IfCond {
            expr: Expr::Test(Spanned::new(test, span)),
            true_body: vec![Stmt::Set(Spanned::new(set, span))],
            false_body: Vec::new(),
        };
        Stmt::IfCond(Spanned::new(condition, span))
    }

    fn option<'s>(&mut self, expr: &Option<Expr<'s>>) -> Option<Expr<'s>> {
        expr.as_ref().map(|expr| self.expr(expr))
    }

    fn exprs<'s>(&mut self, exprs: &[Expr<'s>]) -> Vec<Expr<'s>> {
        exprs.iter().map(|expr| self.expr(expr)).collect()
    }

    fn expr<'s>(&mut self, expr: &Expr<'s>) -> Expr<'s> {
        match expr {
            Expr::Var(e) => {
                self.reads_varargs |= e.id == VARARGS;
                self.reads_kwargs |= e.id == KWARGS;
                variable(e.id, e.span())
            }
            Expr::Const(e) => constant(e.value.clone(), e.span()),
            Expr::Slice(e) => {
                let bounds = [&e.start, &e.stop, &e.step];
                let bounds =
                    bounds.map(|bound| self.option(bound).unwrap_or_else(|| constant(().into(), e.span())));
                call(own::SLICE, [self.expr(&e.expr)].into_iter().chain(bounds), e.span())
            }
            Expr::UnaryOp(e) => match (&e.op, &e.expr) {
                (UnaryOpKind::Neg, Expr::Const(number)) if number.value.is_number() => Expr::UnaryOp(
                    Spanned::new(UnaryOp { op: UnaryOpKind::Neg, expr: self.expr(&e.expr) }, e.span()),
                ),
                (UnaryOpKind::Neg, operand) => call(own::NEGATE, [self.expr(operand)], e.span()),
                (UnaryOpKind::Not, operand) => Expr::UnaryOp(Spanned::new(
                    UnaryOp { op: UnaryOpKind::Not, expr: self.expr(operand) },
                    e.span(),
                )),
            },
            Expr::BinOp(e) => {
                let (left, right) = (self.expr(&e.left), self.expr(&e.right));
                match operator(e.op) {
                    Some(name) => call(name, [left, right], e.span()),
                    None => Expr::BinOp(Spanned::new(BinOp { op: e.op, left, right }, e.span())),
                }
            }
            Expr::Compare(e) => {
                let ops = e.ops.iter().map(|op| CompareOp { op: op.op, expr: self.expr(&op.expr) }).collect();
                Expr::Compare(Spanned::new(Compare { expr: self.expr(&e.expr), ops }, e.span()))
            }
            Expr::IfExpr(e) => {
                let new = IfExpr {
                    test_expr: self.expr(&e.test_expr),
                    true_expr: self.expr(&e.true_expr),
                    false_expr: self.option(&e.false_expr),
                };
                Expr::IfExpr(Spanned::new(new, e.span()))
            }
            Expr::Filter(e) => {
                let new = Filter { name: e.name, expr: self.option(&e.expr), args: self.args(&e.args) };
                Expr::Filter(Spanned::new(new, e.span()))
            }
            Expr::Test(e) => {
                let new = Test { name: e.name, expr: self.expr(&e.expr), args: self.args(&e.args) };
                Expr::Test(Spanned::new(new, e.span()))
            }
            Expr::GetAttr(e) => {
                Expr::GetAttr(Spanned::new(GetAttr { expr: self.expr(&e.expr), name: e.name }, e.span()))
            }
            Expr::GetItem(e) => {
                let new = GetItem { expr: self.expr(&e.expr), subscript_expr: self.expr(&e.subscript_expr) };
                Expr::GetItem(Spanned::new(new, e.span()))
            }
            Expr::Call(e) => Expr::Call(self.call(e)),
            Expr::List(e) => Expr::List(Spanned::new(List { items: self.exprs(&e.items) }, e.span())),
            Expr::Tuple(e) => Expr::Tuple(Spanned::new(Tuple { items: self.exprs(&e.items) }, e.span())),
            Expr::Map(e) => {
                let new = Map { keys: self.exprs(&e.keys), values: self.exprs(&e.values) };
                Expr::Map(Spanned::new(new, e.span()))
            }
        }
    }

    fn call<'s>(&mut self, e: &Spanned<Call<'s>>) -> Spanned<Call<'s>> {
        Spanned::new(Call { expr: self.expr(&e.expr), args: self.args(&e.args) }, e.span())
    }

    fn args<'s>(&mut self, args: &[CallArg<'s>]) -> Vec<CallArg<'s>> {
        let new = args.iter().map(|arg| match arg {
            CallArg::Pos(value) => CallArg::Pos(self.expr(value)),
            CallArg::Kwarg(name, value) => CallArg::Kwarg(name, self.expr(value)),
            CallArg::PosSplat(values) => CallArg::PosSplat(self.expr(values)),
            CallArg::KwargSplat(values) => CallArg::KwargSplat(self.expr(values)),
        });
        new.collect()
    }
}

/// The function that stands for an operator; those that only choose or compare for equality stay.
fn operator(op: BinOpKind) -> Option<&'static str> {
    Some(match op {
        BinOpKind::Add => own::ADD,
        BinOpKind::Sub => own::SUBTRACT,
        BinOpKind::Mul => own::MULTIPLY,
        BinOpKind::Div => own::DIVIDE,
        BinOpKind::FloorDiv => own::DIVIDE_WHOLE,
        BinOpKind::Rem => own::REMAINDER,
        BinOpKind::Pow => own::POWER,
        BinOpKind::Concat => own::CONCAT,
        BinOpKind::Lt => own::LESS,
        BinOpKind::Lte => own::LESS_OR_EQUAL,
        BinOpKind::Gt => own::GREATER,
        BinOpKind::Gte => own::GREATER_OR_EQUAL,
        BinOpKind::In => own::IN,
        BinOpKind::Eq | BinOpKind::Ne | BinOpKind::ScAnd | BinOpKind::ScOr => return None,
    })
}

fn call<'s>(name: &'static str, operands: impl IntoIterator<Item = Expr<'s>>, span: Span) -> Expr<'s> {
    let args = operands.into_iter().map(CallArg::Pos).collect();
    Expr::Call(Spanned::new(Call { expr: variable(name, span), args }, span))
}

fn variable(id: &str, span: Span) -> Expr<'_> {
    Expr::Var(Spanned::new(Var { id }, span))
}

fn constant<'s>(value: Value, span: Span) -> Expr<'s> {
    Expr::Const(Spanned::new(Const { value }, span))
}
