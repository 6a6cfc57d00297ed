//! Arrays that another library made and owns are weights, inputs and outputs on the CPU, without a copy.
//!
//! The producer here shares nothing with ours: it fills the structures of the protocol by hand, with memory, shape and
//! deleter of its own.

use std::collections::HashMap;
use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use engine::{Device, InferenceSession, Model};
use graph::Graph;
use perihelion_cpu::Cpu;
use tensor::dlpack::{
    DL_CPU, DLDataType, DLDevice, DLManagedTensor, DLManagedTensorVersioned, DLPACK_FLAG_BITMASK_READ_ONLY,
    DLPackVersion, DLTensor,
};
use tensor::{Buffer, DlpackTensor, RawDlpack, Tensor};

/// The code of floats in the protocol.
const FLOAT: u8 = 2;

/// What a producer keeps for one array: the numbers behind a header of its own, and the axes.
struct Owned {
    memory: Vec<f32>,
    shape: Vec<i64>,
    strides: Option<Vec<i64>>,
    deleted: Arc<AtomicUsize>,
}

/// Where the numbers start: not at a multiple of more than their own size.
const HEADER: usize = 3;

impl Owned {
    fn new(shape: &[i64], numbers: &[f32], deleted: &Arc<AtomicUsize>) -> Box<Owned> {
        let memory = [&[f32::NAN; HEADER], numbers].concat();
        Box::new(Owned { memory, shape: shape.to_vec(), strides: None, deleted: Arc::clone(deleted) })
    }

    fn tensor(&mut self) -> DLTensor {
        DLTensor {
            data: self.memory.as_mut_ptr().cast(),
            device: DLDevice { device_type: DL_CPU, device_id: 0 },
            ndim: self.shape.len() as i32,
            dtype: DLDataType { code: FLOAT, bits: 32, lanes: 1 },
            shape: self.shape.as_mut_ptr(),
            strides: self.strides.as_mut().map_or(null_mut(), |strides| strides.as_mut_ptr()),
            byte_offset: 4 * HEADER as u64,
        }
    }
}

/// # Safety
/// `context` is from [`Box::into_raw`] of an [`Owned`], and this is called once.
unsafe fn delete(context: *mut c_void) {
    // SAFETY: as the caller promises.
    let owned = unsafe { Box::from_raw(context.cast::<Owned>()) };
    owned.deleted.fetch_add(1, Ordering::SeqCst);
}

/// # Safety
/// As the protocol demands: `managed` is from [`legacy`], and this is called once.
unsafe extern "C" fn delete_legacy(managed: *mut DLManagedTensor) {
    // SAFETY: both were boxed by `legacy`.
    unsafe {
        let managed = Box::from_raw(managed);
        delete(managed.manager_ctx);
    }
}

/// # Safety
/// As [`delete_legacy`], for [`versioned`].
unsafe extern "C" fn delete_versioned(managed: *mut DLManagedTensorVersioned) {
    // SAFETY: both were boxed by `versioned`.
    unsafe {
        let managed = Box::from_raw(managed);
        delete(managed.manager_ctx);
    }
}

/// As producers before version 1 give it.
fn legacy(mut owned: Box<Owned>) -> DlpackTensor {
    let dl_tensor = owned.tensor();
    let manager_ctx = Box::into_raw(owned).cast();
    let managed = DLManagedTensor { dl_tensor, manager_ctx, deleter: Some(delete_legacy) };
    let raw = RawDlpack::Legacy(Box::into_raw(Box::new(managed)));
    // SAFETY: the memory holds the elements until the deleter, which any thread may call, frees it.
    unsafe { DlpackTensor::from_raw(raw) }.unwrap()
}

/// As producers since version 1 give it, with a minor version that is newer than ours.
fn versioned(mut owned: Box<Owned>, flags: u64) -> DlpackTensor {
    let dl_tensor = owned.tensor();
    let managed = DLManagedTensorVersioned {
        version: DLPackVersion { major: 1, minor: 9 },
        manager_ctx: Box::into_raw(owned).cast(),
        deleter: Some(delete_versioned),
        flags,
        dl_tensor,
    };
    let raw = RawDlpack::Versioned(Box::into_raw(Box::new(managed)));
    // SAFETY: as above.
    unsafe { DlpackTensor::from_raw(raw) }.unwrap()
}

fn session() -> InferenceSession {
    InferenceSession::new([Arc::new(Cpu::new(2)) as Arc<dyn Device>]).unwrap()
}

/// A layer whose weight the CPU packs, and a bias, which it reads in place.
fn layer() -> Graph {
    let text = r#"graph layer(%x: f32[n, 3]) {
                    %w = weight "w" : f32[2, 3]
                    %bias = weight "bias" : f32[2]
                    %h = linear(%x, %w)
                    %y = add(%h, %bias)
                    return %y
                  }"#;
    Graph::parse(text).unwrap()
}

const W: [f32; 6] = [1.0, 2.0, 3.0, 4.0, 5.0, 6.0];

fn run(model: &Model) -> Vec<f32> {
    model.execute(&[Buffer::from_slice([1, 3], &[1f32, 10.0, 100.0])]).unwrap()[0].to_vec()
}

#[test]
fn weights_of_a_foreign_producer_are_used_and_freed_once() {
    for flags in [None, Some(0), Some(DLPACK_FLAG_BITMASK_READ_ONLY)] {
        let deleted = Arc::new(AtomicUsize::new(0));
        let count = || deleted.load(Ordering::SeqCst);
        let give = |owned: Box<Owned>| {
            Arc::new(match flags {
                None => legacy(owned),
                Some(flags) => versioned(owned, flags),
            })
        };
        let registry = HashMap::from([
            ("w".to_string(), give(Owned::new(&[2, 3], &W, &deleted))),
            ("bias".to_string(), give(Owned::new(&[2], &[0.5, -0.5], &deleted))),
        ]);
        let model = session().load(&layer(), &registry).unwrap();
        assert_eq!(count(), 0, "{flags:?}");
        drop(registry);
        assert!(count() <= 1, "{flags:?}: the bias is read in place");
        assert_eq!(run(&model), [321.5, 653.5], "{flags:?}");
        drop(model);
        assert_eq!(count(), 2, "{flags:?}: each deleter is called once");
    }
}

#[test]
fn foreign_memory_is_read_and_written_where_it_lies() {
    let deleted = Arc::new(AtomicUsize::new(0));
    let mut state = Owned::new(&[2], &[1.0, 2.0], &deleted);
    let numbers: *const f32 = state.memory[HEADER..].as_mut_ptr();
    let state = Buffer::from_dlpack(versioned(state, 0)).unwrap();
    let x = Tensor::from_dlpack(legacy(Owned::new(&[2], &[30.0, 40.0], &deleted))).unwrap();
    let graph = "graph g(%state: mut f32[2], %x: f32[2]) {
                   %old = load(%state) %sum = add(%old, %x) store(%state, %sum) return %old
                 }";
    let model = session().load(&Graph::parse(graph).unwrap(), &()).unwrap();
    let outputs = model.execute(&[state.clone(), Buffer::over_tensor(&x)]).unwrap();
    assert_eq!(outputs[0].to_vec::<f32>(), [1.0, 2.0]);
    // SAFETY: the producer's memory lives until `state` is gone, and no call writes it now.
    let there = unsafe { [*numbers, *numbers.add(1)] };
    assert_eq!(there, [31.0, 42.0], "the producer sees what the model wrote");
    drop((state, x, outputs));
    assert_eq!(deleted.load(Ordering::SeqCst), 2);
}

#[test]
fn foreign_arrays_that_do_not_fit_are_refused_and_freed() {
    let deleted = Arc::new(AtomicUsize::new(0));
    let mut transposed = Owned::new(&[2, 3], &W, &deleted);
    transposed.strides = Some(vec![1, 2]);
    let given = [
        ("w", transposed, "row-major"),
        ("w", Owned::new(&[3, 2], &W, &deleted), "got f32[3, 2], expected f32[2, 3]"),
    ];
    for (number, (name, owned, expected)) in given.into_iter().enumerate() {
        let registry = HashMap::from([
            (name.to_string(), Arc::new(versioned(owned, 0))),
            ("bias".to_string(), Arc::new(legacy(Owned::new(&[2], &[0.5, -0.5], &deleted)))),
        ]);
        let error = session().load(&layer(), &registry).err().unwrap().to_string();
        assert!(error.starts_with("weight `w`: ") && error.contains(expected), "{error}");
        drop(registry);
        assert_eq!(deleted.load(Ordering::SeqCst), 2 * (number + 1));
    }
}
