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

/// A node with each of its fields rewritten by the method that is named.
macro_rules! node {
    ($self:ident, $old:ident => $kind:ident::$node:ident { $($field:ident: $rewrite:ident),* }) => {
        $kind::$node(Spanned::new($node { $($field: $self.$rewrite(&$old.$field)),* }, $old.span()))
    };
}

impl Rewriter {
    fn body<'s>(&mut self, body: &[Stmt<'s>]) -> Vec<Stmt<'s>> {
        body.iter().flat_map(|statement| self.statement(statement)).collect()
    }

    /// Mostly one statement; a macro and its wrapping are two.
    fn statement<'s>(&mut self, statement: &Stmt<'s>) -> Vec<Stmt<'s>> {
        vec![match statement {
            Stmt::Template(s) => node!(self, s => Stmt::Template { children: body }),
            Stmt::EmitExpr(s) => node!(self, s => Stmt::EmitExpr { expr: expr }),
            Stmt::EmitRaw(s) => node!(self, s => Stmt::EmitRaw { raw: keep }),
            Stmt::ForLoop(s) => node!(self, s => Stmt::ForLoop {
                target: expr, iter: expr, filter_expr: option, recursive: keep, body: body, else_body: body
            }),
            Stmt::IfCond(s) => {
                node!(self, s => Stmt::IfCond { expr: expr, true_body: body, false_body: body })
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
                if let Expr::Call(call) = &s.expr
                    && let Some(change) = self.list_change(call, Some(&s.target))
                {
                    return change;
                }
                node!(self, s => Stmt::Set { target: expr, expr: expr })
            }
            Stmt::SetBlock(s) => {
                node!(self, s => Stmt::SetBlock { target: expr, filter: option, body: body })
            }
            Stmt::AutoEscape(s) => node!(self, s => Stmt::AutoEscape { enabled: expr, body: body }),
            Stmt::FilterBlock(s) => node!(self, s => Stmt::FilterBlock { filter: expr, body: body }),
            Stmt::Block(s) => node!(self, s => Stmt::Block { name: keep, required: keep, body: body }),
            Stmt::Import(s) => node!(self, s => Stmt::Import { expr: expr, name: expr }),
            Stmt::FromImport(s) => {
                let names =
                    s.names.iter().map(|(name, alias)| (self.expr(name), self.option(alias))).collect();
                Stmt::FromImport(Spanned::new(FromImport { expr: self.expr(&s.expr), names }, s.span()))
            }
            Stmt::Extends(s) => node!(self, s => Stmt::Extends { name: expr }),
            Stmt::Include(s) => node!(self, s => Stmt::Include { name: expr, ignore_missing: keep }),
            Stmt::Macro(s) => return self.declaration(s),
            Stmt::CallBlock(s) => {
                let macro_decl = Spanned::new(self.plain_macro(&s.macro_decl), s.macro_decl.span());
                Stmt::CallBlock(Spanned::new(CallBlock { call: self.call(&s.call), macro_decl }, s.span()))
            }
            Stmt::Continue(s) => Stmt::Continue(Spanned::new(Continue, s.span())),
            Stmt::Break(s) => Stmt::Break(Spanned::new(Break, s.span())),
            Stmt::Do(s) => match self.list_change(&s.call, None) {
                Some(change) => return change,
                None => node!(self, s => Stmt::Do { call: call }),
            },
        }]
    }

    /// `append` and `pop` on a list in a namespace, as in `{% set x = ns.list.pop(0) %}`: values do not change, so the
    /// namespace gets another list. The sandbox of `transformers` refuses both, but llama.cpp's templates use them.
    fn list_change<'s>(&mut self, made: &Call<'s>, target: Option<&Expr<'s>>) -> Option<Vec<Stmt<'s>>> {
        let Expr::GetAttr(method) = &made.expr else { return None };
        let span = method.span();
        if !matches!(&method.expr, Expr::GetAttr(list) if matches!(list.expr, Expr::Var(_))) {
            return None;
        }
        let (result, left) = match (method.name, &made.args[..]) {
            ("append", [CallArg::Pos(item)]) => {
                let items = Expr::List(Spanned::new(List { items: vec![self.expr(item)] }, span));
                (constant(().into(), span), call(own::ADD, [self.expr(&method.expr), items], span))
            }
            ("pop", args) => {
                let is_first = match args {
                    [] => false,
                    [CallArg::Pos(Expr::Const(at))] if at.value == Value::from(0) => true,
                    _ => return None,
                };
                let (at, bounds) =
                    if is_first { (0, [1.into(), ().into()]) } else { (-1, [().into(), Value::from(-1)]) };
                let subscript_expr = constant(at.into(), span);
                let item = GetItem { expr: self.expr(&method.expr), subscript_expr };
                let bounds = bounds.into_iter().chain([().into()]).map(|bound| constant(bound, span));
                let rest = call(own::SLICE, [self.expr(&method.expr)].into_iter().chain(bounds), span);
                (Expr::GetItem(Spanned::new(item, span)), rest)
            }
            _ => return None,
        };
        let set = |target, expr| Stmt::Set(Spanned::new(Set { target, expr }, span));
        let own = set(self.expr(&method.expr), left);
        Some(target.map(|target| set(self.expr(target), result)).into_iter().chain([own]).collect())
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

    fn keep<T: Clone>(&mut self, part: &T) -> T {
        part.clone()
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
            Expr::UnaryOp(e) => match e.op {
                UnaryOpKind::Neg => call(own::NEGATE, [self.expr(&e.expr)], e.span()),
                UnaryOpKind::Not => {
                    let new = UnaryOp { op: UnaryOpKind::Not, expr: self.expr(&e.expr) };
                    Expr::UnaryOp(Spanned::new(new, e.span()))
                }
            },
            Expr::BinOp(e) => match operator(e.op) {
                Some(name) => call(name, [self.expr(&e.left), self.expr(&e.right)], e.span()),
                None => node!(self, e => Expr::BinOp { op: keep, left: expr, right: expr }),
            },
            Expr::Compare(e) => node!(self, e => Expr::Compare { expr: expr, ops: comparisons }),
            Expr::IfExpr(e) => {
                node!(self, e => Expr::IfExpr { test_expr: expr, true_expr: expr, false_expr: option })
            }
            Expr::Filter(e) => node!(self, e => Expr::Filter { name: keep, expr: option, args: args }),
            Expr::Test(e) => node!(self, e => Expr::Test { name: keep, expr: expr, args: args }),
            Expr::GetAttr(e) => node!(self, e => Expr::GetAttr { expr: expr, name: keep }),
            Expr::GetItem(e) => node!(self, e => Expr::GetItem { expr: expr, subscript_expr: expr }),
            Expr::Call(e) => node!(self, e => Expr::Call { expr: expr, args: args }),
            Expr::List(e) => node!(self, e => Expr::List { items: exprs }),
            Expr::Tuple(e) => node!(self, e => Expr::Tuple { items: exprs }),
            Expr::Map(e) => node!(self, e => Expr::Map { keys: exprs, values: exprs }),
        }
    }

    fn comparisons<'s>(&mut self, ops: &[CompareOp<'s>]) -> Vec<CompareOp<'s>> {
        ops.iter().map(|op| CompareOp { op: op.op, expr: self.expr(&op.expr) }).collect()
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

/// The function that stands for an operator. Those whose result has the size of a number and is Python's stay.
fn operator(op: BinOpKind) -> Option<&'static str> {
    Some(match op {
        BinOpKind::Add => own::ADD,
        BinOpKind::Mul => own::MULTIPLY,
        BinOpKind::Rem => own::REMAINDER,
        BinOpKind::Pow => own::POWER,
        BinOpKind::Concat => own::CONCAT,
        BinOpKind::Lt => own::LESS,
        BinOpKind::Lte => own::LESS_OR_EQUAL,
        BinOpKind::Gt => own::GREATER,
        BinOpKind::Gte => own::GREATER_OR_EQUAL,
        BinOpKind::In => own::IN,
        _ => return None,
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
