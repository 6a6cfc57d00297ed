//! Runs the parts of a block one after another. What they hand to one another lives as long as a part needs it.

use std::sync::{Arc, Mutex};
use std::time::Instant;

use graph::Bindings;
use tensor::{AlignedBytes, Bytes, DType, Shape, Tensor};

use crate::bind::BoundWeight;
use crate::frame::{Array, Frame};
use crate::model::{FRAMES, Workspace, lock};
use crate::plan::Plan;
use crate::program::{Block, Control, Part, PartStep, PartWork, Program, SizesPart, Source};
use crate::run::{self, Hooks, Memory};
use crate::{Error, StepTime, View};

/// One call of a program that is more than one plan.
pub(crate) struct Execution<'r, 'h> {
    pub(crate) program: &'r Program,
    pub(crate) weights: &'r [BoundWeight],
    /// Of each plan, the most recently used first.
    pub(crate) frames: &'r [Mutex<Vec<Arc<Frame>>>],
    pub(crate) workspace: &'r mut Workspace,
    pub(crate) hooks: &'r mut Hooks<'h>,
}

/// A value between parts.
pub(crate) struct Held<'m> {
    pub(crate) array: Array,
    pub(crate) memory: HeldMemory<'m>,
}

/// The memory of a value between parts.
pub(crate) enum HeldMemory<'m> {
    Read(&'m [u8]),
    /// A buffer that parts may write.
    Write(&'m mut [u8]),
    /// Made by a part.
    Own(AlignedBytes),
}

/// A result of a block.
pub(crate) type Made = (Array, AlignedBytes);

impl<'r> Execution<'r, '_> {
    /// The results of a block.
    pub(crate) fn block(&mut self, block: &Block, inputs: Vec<Held<'_>>) -> Result<Vec<Made>, Error> {
        let given: Vec<(DType, Shape)> =
            inputs.iter().map(|input| (input.array.dtype, input.array.shape)).collect();
        let mut bindings = block.signature.bind_inputs(&given)?;
        let mut values: Vec<Option<Held<'_>>> = inputs.into_iter().map(Some).collect();
        values.resize_with(block.values.len(), || None);
        for Part { work, last_used } in &block.parts {
            self.part(work, &mut bindings, &mut values)?;
            last_used.iter().for_each(|&value| values[value] = None);
        }
        Ok(results(&block.results, &mut values, self.program, self.weights))
    }

    fn part(
        &mut self,
        work: &PartWork,
        bindings: &mut Bindings,
        values: &mut [Option<Held<'_>>],
    ) -> Result<(), Error> {
        match work {
            PartWork::Plan { plan, inputs, outputs } => {
                let frame = self.frame(plan, bindings)?;
                let made = self.plan(plan, &frame, borrow(values, inputs, |i| plan.inputs[i].written))?;
                bindings.clone_from(&frame.bindings);
                put(values, outputs, made);
            }
            PartWork::Sizes(part) => {
                let sizes = self.sizes(part, values)?;
                for (symbol, size) in part.op.defines().into_iter().zip(sizes) {
                    bindings.insert(symbol, size);
                }
            }
            PartWork::Run { control, operands, outputs, types, .. } => {
                let operands = self.operands(operands, values, |i| control.writes(i));
                let made = self.control(control, operands)?;
                for (ty, (array, _)) in types.iter().zip(&made) {
                    ty.bind_symbols(&array.shape, bindings);
                }
                put(values, outputs, made);
            }
        }
        Ok(())
    }

    fn frame(&self, plan: &Plan, bindings: &Bindings) -> Result<Arc<Frame>, Error> {
        let mut frames = lock(&self.frames[plan.index]);
        if let Some(position) = frames.iter().position(|frame| frame.given == *bindings) {
            frames[..=position].rotate_right(1);
            return Ok(Arc::clone(&frames[0]));
        }
        let frame = Arc::new(Frame::new(plan, &self.program.weights, bindings)?);
        frames.truncate(FRAMES - 1);
        frames.insert(0, Arc::clone(&frame));
        Ok(frame)
    }

    fn plan(&mut self, plan: &Plan, frame: &Frame, inputs: Vec<Held<'_>>) -> Result<Vec<Made>, Error> {
        let arrays = plan.outputs.iter().zip(&frame.output_shapes);
        let mut made: Vec<Made> =
            arrays.map(|(ty, &shape)| empty(Array { dtype: ty.dtype, shape })).collect();
        self.workspace.reserve(frame.arena);
        let Workspace { arena, lists } = &mut *self.workspace;
        let mut memory = Memory { regions: vec![arena], inputs: Vec::new(), weights: self.weights };
        memory.regions.extend(made.iter_mut().map(|(_, bytes)| &mut bytes[..]));
        for input in inputs {
            match input.memory {
                HeldMemory::Read(bytes) => memory.inputs.push(bytes),
                HeldMemory::Write(bytes) => {
                    memory.regions.push(bytes);
                    memory.inputs.push(&[]);
                }
                HeldMemory::Own(_) => unreachable!("plans borrow what they read"),
            }
        }
        run::run(plan, frame, &mut memory, lists, self.hooks)?;
        Ok(made)
    }

    fn sizes(&mut self, part: &SizesPart, values: &mut [Option<Held<'_>>]) -> Result<Vec<usize>, Error> {
        let SizesPart { op, kernel, operands, at: PartStep { step, location } } = part;
        let start = Instant::now();
        let operands = self.operands(operands, values, |_| false);
        let views: Vec<View<'_>> = operands.iter().map(Held::view).collect();
        let found = kernel.as_ref().map_or(Ok(None), |kernel| kernel.sizes(&views));
        let found = found.and_then(|sizes| match sizes {
            Some(sizes) => Ok(sizes),
            None => {
                let tensors: Vec<Tensor> = views.iter().map(to_tensor).collect();
                run::in_words(op.sizes(&tensors.iter().collect::<Vec<_>>()))
            }
        });
        let sizes = found.map_err(|message| self.hooks.error(*step, op.name(), *location, message))?;
        assert_eq!(sizes.len(), op.defines().len(), "a size for each symbol of {}", op.name());
        if let Some(watch) = &mut self.hooks.watch {
            let shapes: Vec<String> = views.iter().map(|v| format!("{}{}", v.dtype, v.shape)).collect();
            let time = StepTime {
                op: op.name(),
                kernel: kernel.as_ref().map(|kernel| format!("sizes of {}", kernel.name())),
                shapes: format!("{} → {sizes:?}", shapes.join(", ")),
                microseconds: start.elapsed().as_secs_f64() * 1e6,
            };
            watch.steps.push((start, time));
        }
        Ok(sizes)
    }

    fn control(&mut self, control: &Control, mut operands: Vec<Held<'_>>) -> Result<Vec<Made>, Error> {
        match control {
            Control::Call(block) => self.block(block, operands),
            Control::Cond { then, otherwise } => {
                let captured = operands.split_off(1);
                self.block(if is_true(operands[0].bytes()) { then } else { otherwise }, captured)
            }
            Control::While { predicate, body } => {
                let mut captured = operands.split_off(body.outputs.len());
                let mut carried: Vec<Made> = operands.iter().map(Held::copy).collect();
                loop {
                    let condition = self.block(predicate, state(&carried, &mut captured))?;
                    if !is_true(&condition[0].1) {
                        return Ok(carried);
                    }
                    carried = self.block(body, state(&carried, &mut captured))?;
                }
            }
        }
    }

    fn operands<'v>(
        &self,
        sources: &[Source],
        values: &'v mut [Option<Held<'_>>],
        written: impl Fn(usize) -> bool,
    ) -> Vec<Held<'v>>
    where
        'r: 'v,
    {
        let (program, weights) = (self.program, self.weights);
        let positions: Vec<usize> = (0..sources.len()).filter(|&i| sources[i].value().is_some()).collect();
        let wanted: Vec<usize> = sources.iter().filter_map(|source| source.value()).collect();
        let mut borrowed = borrow(values, &wanted, |i| written(positions[i])).into_iter();
        let operand = |source: &Source| match source {
            Source::Value(_) => borrowed.next().expect("borrowed above"),
            Source::Weight(slot) => weight(program, weights, *slot),
        };
        sources.iter().map(operand).collect()
    }
}

impl Held<'_> {
    fn bytes(&self) -> &[u8] {
        match &self.memory {
            HeldMemory::Read(bytes) => bytes,
            HeldMemory::Write(bytes) => bytes,
            HeldMemory::Own(bytes) => bytes,
        }
    }

    fn view(&self) -> View<'_> {
        View { dtype: self.array.dtype, shape: self.array.shape, bytes: self.bytes() }
    }

    fn copy(&self) -> Made {
        (self.array, AlignedBytes::copy_of(self.bytes()))
    }

    fn borrow(&mut self, written: bool) -> Held<'_> {
        let memory = match &mut self.memory {
            HeldMemory::Write(bytes) => match written {
                true => HeldMemory::Write(bytes),
                false => HeldMemory::Read(bytes),
            },
            HeldMemory::Read(bytes) => HeldMemory::Read(bytes),
            HeldMemory::Own(bytes) => HeldMemory::Read(bytes),
        };
        Held { array: self.array, memory }
    }

    fn share(&self) -> Held<'_> {
        Held { array: self.array, memory: HeldMemory::Read(self.bytes()) }
    }
}

impl Control {
    /// Whether a block writes the buffer that operand `position` is.
    fn writes(&self, position: usize) -> bool {
        let writes = |block: &Block, input: usize| block.inputs.get(input).is_some_and(|input| input.written);
        match self {
            Control::Cond { then, otherwise } => position
                .checked_sub(1)
                .is_some_and(|capture| writes(then, capture) || writes(otherwise, capture)),
            Control::While { predicate, body } => writes(predicate, position) || writes(body, position),
            Control::Call(block) => writes(block, position),
        }
    }
}

/// Values to hand to a part: each to write by one taker, or to read by any number.
fn borrow<'v>(
    values: &'v mut [Option<Held<'_>>],
    wanted: &[usize],
    written: impl Fn(usize) -> bool,
) -> Vec<Held<'v>> {
    let mut order: Vec<usize> = (0..wanted.len()).collect();
    order.sort_by_key(|&position| wanted[position]);
    let mut borrowed: Vec<(usize, Held<'v>)> = Vec::with_capacity(wanted.len());
    let mut values = values.iter_mut().enumerate();
    for takers in order.chunk_by(|&a, &b| wanted[a] == wanted[b]) {
        let (_, value) = values.find(|(i, _)| *i == wanted[takers[0]]).expect("a value of the block");
        let value = value.as_mut().expect("made by an earlier part");
        match takers {
            [taker] => borrowed.push((*taker, value.borrow(written(*taker)))),
            takers => borrowed.extend(takers.iter().map(|&taker| (taker, value.share()))),
        }
    }
    borrowed.sort_by_key(|(position, _)| *position);
    borrowed.into_iter().map(|(_, held)| held).collect()
}

fn put(values: &mut [Option<Held<'_>>], outputs: &[usize], made: Vec<Made>) {
    for (&output, (array, bytes)) in outputs.iter().zip(made) {
        values[output] = Some(Held { array, memory: HeldMemory::Own(bytes) });
    }
}

/// The results of a block: what parts made is handed on, where nothing else is it; all else is copied.
fn results(
    sources: &[Source],
    values: &mut [Option<Held<'_>>],
    program: &Program,
    weights: &[BoundWeight],
) -> Vec<Made> {
    let result = |(i, source): (usize, &Source)| {
        let value = match source {
            Source::Weight(slot) => return weight(program, weights, *slot).copy(),
            Source::Value(value) => *value,
        };
        let again = sources[i + 1..].contains(source);
        match values[value].take().expect("made by a part, or an input") {
            Held { array, memory: HeldMemory::Own(bytes) } if !again => (array, bytes),
            held => {
                let copy = held.copy();
                values[value] = Some(held);
                copy
            }
        }
    };
    sources.iter().enumerate().map(result).collect()
}

/// The carried values and the captured ones.
fn state<'s>(carried: &'s [Made], captured: &'s mut [Held<'_>]) -> Vec<Held<'s>> {
    let carried =
        carried.iter().map(|(array, bytes)| Held { array: *array, memory: HeldMemory::Read(bytes) });
    carried.chain(captured.iter_mut().map(|held| held.borrow(true))).collect()
}

fn weight<'r>(program: &Program, weights: &'r [BoundWeight], slot: usize) -> Held<'r> {
    let ty = &program.weights[slot].ty;
    let shape = ty.static_shape().expect("lowering admits only static weights");
    Held { array: Array { dtype: ty.dtype, shape }, memory: HeldMemory::Read(weights[slot].raw()) }
}

fn empty(array: Array) -> Made {
    let bytes = array.dtype.bytes_for(array.shape.elements()).expect("frames have whole blocks");
    (array, AlignedBytes::zeroed(bytes))
}

fn is_true(bytes: &[u8]) -> bool {
    bytes[0] != 0
}

fn to_tensor(view: &View<'_>) -> Tensor {
    let bytes = Bytes::new(AlignedBytes::copy_of(view.bytes));
    Tensor::from_bytes(view.dtype, view.shape, bytes).expect("values fit their shapes")
}

#[cfg(test)]
mod tests {
    use graph::{Builder, Graph, Type};
    use tensor::{Buffer, DType, Tensor};

    use crate::testing::{build, f32, noise, session};
    use crate::{CompileOptions, Passes};

    /// `y = |x| < 1 ? store and multiply by w until the first is at least 1 : the buffer`, between plans.
    const GRAPH: &str = "graph g(%x: f32[n, 2], %b: mut f32[n, 2]) {
      %a = neg(%x)
      %two = constant [2.0] : f32[]
      %first = slice(%a) {axis = 0, start = 0, stop = 1}
      %corner = slice(%first) {axis = 1, start = 0, stop = 1}
      %one = constant [1.0] : f32[]
      %p = less(%corner, %one)
      %y, %steps = cond(%p, %a, %b, %one) {then = graph grow(%x: f32[m, 2], %b: mut f32[m, 2], %end: f32[]) {
        store(%b, %x)
        %zero = constant [0] : i64[]
        %y, %steps = while(%x, %zero, %end) {predicate = graph small(%x: f32[k, 2], %i: i64[], %end: f32[]) {
          %f = slice(%x) {axis = 0, start = 0, stop = 1}
          %c = slice(%f) {axis = 1, start = 0, stop = 1}
          %p = less(%c, %end)
          return %p
        }, body = graph next(%x: f32[k, 2], %i: i64[], %end: f32[]) {
          %w = weight \"w\" : f32[2, 2]
          %y = linear(%x, %w)
          %one = constant [1] : i64[]
          %next = add(%i, %one)
          return %y, %next
        }}
        return %y, %steps
      }, otherwise = graph same(%x: f32[m, 2], %b: mut f32[m, 2], %end: f32[]) {
        %y = load(%b)
        %w = weight \"w\" : f32[2, 2]
        %z = linear(%y, %w)
        %none = constant [-1] : i64[]
        return %z, %none
      }}
      %z = add(%y, %x)
      return %z, %y, %y, %steps, %two, %x
    }";

    fn double(name: &str) -> Option<Tensor> {
        (name == "w").then(|| Tensor::from_slice([2, 2], &[2f32, 0.0, 0.0, 2.0]))
    }

    #[test]
    fn branches_and_loops_run_between_plans() {
        let graph = Graph::parse(GRAPH).unwrap();
        for passes in [Passes::All, Passes::None] {
            let session = session();
            let options = CompileOptions { passes, ..CompileOptions::default() };
            let model = session.init(&session.compile_with(&graph, &options).unwrap(), &double).unwrap();
            for x in [[-0.25f32, -3.0], [-5.0, 1.0]] {
                let tensors = [Tensor::from_slice([1, 2], &x), Tensor::from_slice([1, 2], &[7f32, 8.0])];
                let expected = graph.evaluate(&tensors, &double).unwrap();
                let inputs = tensors.each_ref().map(Buffer::from_tensor);
                for _ in 0..2 {
                    let outputs = model.execute(&inputs).unwrap();
                    for (got, expected) in outputs.iter().zip(&expected.outputs) {
                        assert_eq!(got.to_tensor().unwrap().to_f64_vec(), expected.to_f64_vec());
                    }
                    let b = Buffer::from_tensor(&tensors[1]);
                    assert_eq!(inputs[1].to_vec::<f32>(), expected.buffers[0].to_vec::<f32>());
                    inputs[1].write().unwrap().copy_from_slice(&b.read().unwrap());
                }
            }
        }
    }

    #[test]
    fn parts_print_and_share_weights() {
        let graph = Graph::parse(
            "graph g(%p: bool[], %x: f32[n, 2]) {
               %w = weight \"w\" : f32[2, 2]
               %a = linear(%x, %w)
               %y = cond(%p, %a) {then = graph again(%x: f32[m, 2]) {
                 %w = weight \"w\" : f32[2, 2]
                 %y = linear(%x, %w)
                 return %y
               }, otherwise = graph same(%x: f32[m, 2]) { return %x }}
               %z = neg(%y)
               return %z
             }",
        );
        let model = session().load(&graph.unwrap(), &double).unwrap();
        let expected = "program g on test
  input 0 'p' bool[]
  input 1 'x' f32[n, 2]
  w0 = weight \"w\" f32[2, 2] as columns
  plan of '1'
    0: output 0 = linear.test('x', w0): f32[n, 2]
    arena 64 bytes where n = 1, 64 bytes where n = 16, 64 bytes where n = 256
  1: '2' = cond('p', '1'): f32[n, 2]
    then
      plan of 'output0'
        2: output 0 = linear.test('x', w0): f32[m, 2]
        arena 64 bytes where m = 1, 64 bytes where m = 16, 64 bytes where m = 256
    otherwise
      plan of 'output0'
        3: output 0 = copy('x'): f32[m, 2]
        arena 0 bytes where m = 1, 0 bytes where m = 16, 0 bytes where m = 256
  plan of '3'
    4: output 0 = neg (reference)('2'): f32[n, 2]
    arena 0 bytes where n = 1, 0 bytes where n = 16, 0 bytes where n = 256
  return '3'
  output 0 f32[n, 2]
";
        assert_eq!(model.program().to_string(), expected);
        let inputs = [Buffer::from_slice::<u8>([], &[1]), Buffer::from_slice([1, 2], &[1f32, 2.0])];
        assert!(
            model
                .execute(&inputs)
                .unwrap_err()
                .to_string()
                .starts_with("input 0 'p': got u8[], expected bool[]")
        );
        let p = Buffer::from_tensor(&Tensor::from_bools([], &[true]));
        let inputs = [p, inputs[1].clone()];
        let (outputs, profile) = model.profile(&inputs).unwrap();
        assert_eq!(outputs[0].to_vec::<f32>(), [-4.0, -8.0]);
        let ops: Vec<&str> = profile.steps.iter().map(|step| step.op).collect();
        assert_eq!(ops, ["linear", "linear", "neg"]);
        let y = Buffer::zeros(DType::F32, [1, 2]);
        model.execute_into(&inputs, std::slice::from_ref(&y)).unwrap();
        assert_eq!(y.to_vec::<f32>(), [-4.0, -8.0]);
        let wrong = [Buffer::zeros(DType::F32, [2, 2])];
        let error = model.execute_into(&inputs, &wrong).unwrap_err().to_string();
        assert_eq!(error, "output 0: got f32[2, 2], expected f32[1, 2]");
        let error = model.execute_into(&inputs, &[]).unwrap_err().to_string();
        assert_eq!(error, "model `g`: got 0 buffers for outputs, expected 1");
    }

    #[test]
    fn asserted_shapes_are_checked_before_anything_runs() {
        let graph = Graph::parse(
            "graph g(%x: f32[n], %y: f32[m]) {
               %a = rebind(%x) {shape = [k], symbols = [k]}
               %b = rebind(%y) {shape = [k], message = \"x and y go together\"}
               %c = add(%a, %b)
               %p = constant [true] : bool[]
               %d = cond(%p, %c) {then = graph same(%x: f32[l]) { return %x }, otherwise = @same}
               %e = add(%d, %b)
               return %e
             }",
        );
        let model = session().load(&graph.unwrap(), &()).unwrap();
        let of = |size: usize| Buffer::from_slice([size], &vec![1f32; size]);
        assert_eq!(model.execute(&[of(2), of(2)]).unwrap()[0].to_vec::<f32>(), [3.0; 2]);
        let error = model.execute(&[of(2), of(3)]).unwrap_err().to_string();
        assert_eq!(error, "rebind of %y: axis 0 is 3, expected k = 2: x and y go together");
    }

    #[test]
    fn sizes_found_in_data_are_known_from_then_on() {
        let graph = build("found", |b: &mut Builder| {
            let x = b.input("x", f32(&["n"]));
            let doubled = b.add(x, x)?;
            let places = b.nonzero(doubled, "k")?;
            let count = b.shape_to_tensor(places)?;
            let again = b.add(places, 1)?;
            Ok(vec![again, count, doubled])
        });
        let model = session().load(&graph, &()).unwrap();
        for values in [&[0f32, 3.0, 0.0, 4.0][..], &[0.0], &[], &[1.0, 1.0]] {
            let x = Tensor::from_slice([values.len()], values);
            let expected = graph.evaluate(std::slice::from_ref(&x), &|_| None).unwrap();
            let outputs = model.execute(&[Buffer::from_tensor(&x)]).unwrap();
            for (got, expected) in outputs.iter().zip(&expected.outputs) {
                assert_eq!(got.shape(), expected.shape());
                assert_eq!(got.to_tensor().unwrap().to_f64_vec(), expected.to_f64_vec());
            }
        }
    }

    #[test]
    fn what_is_called_may_bring_sizes() {
        let graph = Graph::parse(
            "graph g(%x: f32[n]) {
               %y = call(%x) {graph = graph named(%x: f32[n]) {
                 %y = rebind(%x) {shape = [k], symbols = [k]}
                 return %y
               }}
               %z = reshape(%y) {shape = [k, 1]}
               return %z
             }",
        );
        let model = session().load(&graph.unwrap(), &()).unwrap();
        let z = model.execute(&[Buffer::from_slice([2], &[1f32, 2.0])]).unwrap();
        assert_eq!(z[0].shape(), &tensor::Shape::new(&[2, 1]));
    }

    #[test]
    fn steps_of_all_parts_are_numbered() {
        let graph = Graph::parse(
            "graph g(%p: bool[], %x: f32[n]) {
               %a = neg(%x)
               %y = cond(%p, %a) {then = graph cut(%x: f32[m]) {
                 %t = exp(%x)
                 %y = slice(%t) {axis = 0, start = -3}
                 return %y
               }, otherwise = @cut}
               return %y
             }",
        );
        let model = session().load(&graph.unwrap(), &()).unwrap();
        let p = Buffer::from_tensor(&Tensor::from_bools([], &[true]));
        let error = model.execute(&[p, Buffer::from_slice([1], &[1f32])]).unwrap_err().to_string();
        assert_eq!(error, "step 3, slice: the range -3.. does not fit the 1 elements of axis 0");
    }

    #[test]
    fn threads_run_loops_beside_each_other() {
        let graph = build("sum", |b: &mut Builder| {
            let x = b.input("x", f32(&["n", "2"]));
            let end = b.input("end", Type::new(DType::I64, graph::dims![]));
            let zero = b.constant(Tensor::scalar(0i64));
            let last = b.while_loop(
                &[zero, x],
                &[end, x],
                |b, carried, captured| b.binary(graph::ops::Binary::Less, carried[0], captured[0]),
                |b, carried, captured| {
                    let one = b.constant(Tensor::scalar(1i64));
                    Ok(vec![b.add(carried[0], one)?, b.add(carried[1], captured[1])?])
                },
            )?;
            Ok(vec![last[1]])
        });
        let model = session().load(&graph, &()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..4usize {
                let model = model.clone();
                scope.spawn(move || {
                    for n in 1..20 {
                        let x = noise([n, 2], n + thread);
                        let end = Buffer::from_slice([], &[n as i64]);
                        let y = model.execute(&[Buffer::from_tensor(&x), end]).unwrap();
                        let mut expected = x.to_vec::<f32>();
                        for _ in 0..n {
                            expected.iter_mut().zip(x.to_vec::<f32>()).for_each(|(sum, x)| *sum += x);
                        }
                        assert_eq!(y[0].to_vec::<f32>(), expected);
                    }
                });
            }
        });
    }
}
