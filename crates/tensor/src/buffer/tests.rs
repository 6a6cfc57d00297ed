//! Buffers: guards, views, elements, files.

use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::bf16;

fn counting(dims: &[usize]) -> Buffer {
    let numbers: Vec<i32> = (0..dims.iter().product::<usize>() as i32).collect();
    Buffer::from_slice(dims, &numbers)
}

fn refused<T>(result: Result<T, Error>, message: &str) {
    assert_eq!(result.err().expect("refused").to_string(), message);
}

#[test]
fn one_writer_or_many_readers() {
    let buffer = Buffer::from_slice([2], &[1.0f32, 2.0]);
    let (first, second) = (buffer.read().unwrap(), buffer.clone().read().unwrap());
    refused(buffer.write(), "the buffer is being read by another call");
    drop((first, second));
    let mut writer = buffer.write().unwrap();
    writer[..4].copy_from_slice(&3.0f32.to_le_bytes());
    assert!(buffer.read().is_err() && buffer.write().is_err());
    drop(writer);
    assert_eq!(buffer.to_vec::<f32>(), [3.0, 2.0]);
}

#[test]
fn views_share_the_guards_of_their_memory() {
    let buffer = counting(&[4]);
    let part = buffer.slice(&[(2..).into()]).unwrap();
    let reader = part.read().unwrap();
    refused(buffer.write(), "the buffer is being read by another call");
    refused(buffer.set(&[0], 1), "the buffer is being read by another call");
    drop(reader);
    part.write().unwrap().fill(0xff);
    assert_eq!(buffer.to_vec::<i32>(), [0, 1, -1, -1]);
}

#[test]
fn tensors_are_copied_or_shared() {
    let transposed = Tensor::from_slice([2, 2], &[1i32, 2, 3, 4]).permute(&[1, 0]);
    let buffer = Buffer::from_tensor(&transposed);
    assert!(buffer.shares_memory_with(&buffer.clone()));
    assert_eq!(buffer.to_tensor().unwrap().to_vec::<i32>(), [1, 3, 2, 4]);
    let writer = buffer.write().unwrap();
    refused(buffer.to_tensor(), "the buffer is being written by another call");
    drop(writer);

    let shared = buffer.as_tensor().unwrap();
    refused(buffer.write(), "the buffer is being read by another call");
    let row = shared.narrow(0, 1..2);
    drop(shared);
    refused(buffer.write(), "the buffer is being read by another call");
    drop(row);
    assert!(buffer.write().is_ok());

    let tensor = Tensor::from_slice([2], &[5u8, 6]);
    let over = Buffer::over_tensor(&tensor);
    assert_eq!(over.read().unwrap().as_ptr(), tensor.bytes().as_ptr());
    drop(tensor);
    assert_eq!(over.to_vec::<u8>(), [5, 6]);
    refused(over.write(), "the buffer is read-only");
    refused(over.slice(&[]).unwrap().set(&[0], 1), "the buffer is read-only");
}

/// Threads that count up under a writer's guard lose no count, so guards exclude each other.
#[test]
fn guards_exclude_each_other_across_threads() {
    let buffer = Buffer::from_slice([1], &[0u64]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..1000 {
                    let mut guard = loop {
                        match buffer.write() {
                            Ok(guard) => break guard,
                            Err(_) => std::thread::yield_now(),
                        }
                    };
                    let count = u64::from_le_bytes(guard[..].try_into().unwrap());
                    guard.copy_from_slice(&(count + 1).to_le_bytes());
                }
            });
        }
    });
    assert_eq!(buffer.to_vec::<u64>(), [4000]);
}

#[test]
#[should_panic(expected = "q4_0[2, 16] is not a possible array: rows of 16 do not divide into blocks of 32")]
fn rows_end_with_a_block() {
    let _ = Buffer::from_bytes(DType::Q4_0, [2, 16], AlignedBytes::zeroed(18));
}

#[test]
fn arrays_that_cannot_be_are_errors() {
    let huge = [usize::MAX / 2, 4];
    let message = format!("f32{huge:?} is not a possible array: it has more than {} bytes", usize::MAX);
    refused(Buffer::try_zeros(DType::F32, huge), &message);
    refused(Buffer::full(DType::F32, huge, 1), &message);
    refused(Buffer::pinned(DType::F32, huge), &message);
    let rows = "q4_0[2, 16] is not a possible array: rows of 16 do not divide into blocks of 32";
    refused(Buffer::try_zeros(DType::Q4_0, [2, 16]), rows);
    refused(Buffer::pinned(DType::Q4_0, [2, 16]), rows);
    refused(Buffer::full(DType::F32, [1 << 58], 1), "the system refused 1152921504606846976 bytes of memory");
}

/// What a call that panics says.
fn panic_of<T>(call: impl FnOnce() -> T + std::panic::UnwindSafe) -> String {
    let payload = std::panic::catch_unwind(call).err().expect("a panic");
    payload.downcast_ref::<String>().expect("a formatted message").clone()
}

#[test]
fn panics_name_both_facts() {
    assert_eq!(panic_of(|| Buffer::from_slice([3], &[1f32, 2.0])), "f32[3] has 3 elements, got 2");
    assert_eq!(panic_of(|| Buffer::from_bools([1, 2], &[true])), "bool[1, 2] has 2 elements, got 1");
    assert_eq!(panic_of(|| Tensor::from_slice([3], &[1u8])), "u8[3] has 3 elements, got 1");
    assert_eq!(panic_of(|| Tensor::from_bools([0], &[true])), "bool[0] has 0 elements, got 1");
    let bytes = || Buffer::from_bytes(DType::F32, [3], AlignedBytes::zeroed(8));
    assert_eq!(panic_of(bytes), "f32[3] needs 12 bytes, got 8");
    let rows = "q4_0[33] is not a possible array: rows of 33 do not divide into blocks of 32";
    assert_eq!(panic_of(|| Tensor::zeros(DType::Q4_0, [33])), rows);
    assert_eq!(panic_of(|| Buffer::zeros(DType::Q4_0, [33])), rows);
}

#[test]
fn buffers_are_filled() {
    assert_eq!(Buffer::ones(DType::BF16, [2]).to_tensor().unwrap().to_f32_vec(), [1.0, 1.0]);
    assert_eq!(Buffer::full(DType::I16, [2], -3).unwrap().to_vec::<i16>(), [-3, -3]);
    assert_eq!(Buffer::full(DType::F32, [0], 0.5).unwrap().to_vec::<f32>(), []);
    refused(Buffer::full(DType::U8, [2], -1), "u8 cannot hold -1");
    let scalar = Buffer::scalar(2.5f64);
    assert_eq!((scalar.rank(), scalar.num_elements(), scalar.element_size()), (0, 1, 8));
    assert_eq!(Buffer::from_bools([2], &[true, false]).to_vec::<u8>(), [1, 0]);
    assert!(scalar.is_host() && scalar.device() == DeviceSpec::cpu());
}

#[test]
fn slices_alias_their_buffer() {
    let buffer = counting(&[2, 3]);
    assert_eq!(buffer.strides(), [3, 1]);
    let row = buffer.slice(&[Index::At(1)]).unwrap();
    assert!(row.is_contiguous() && row.shares_memory_with(&buffer));
    assert_eq!((row.to_vec::<i32>(), row.shape()), (vec![3, 4, 5], &Shape::new(&[3])));
    let column = buffer.slice(&[Index::ALL, Index::At(-1)]).unwrap();
    assert_eq!((column.strides(), column.is_contiguous()), (&[3isize][..], false));
    assert_eq!(column.to_vec::<i32>(), [2, 5]);
    refused(column.read(), "got strides [3], expected a row-major buffer; .contiguous() makes one");
    column.set(&[0], 20).unwrap();
    assert_eq!(buffer.to_vec::<i32>(), [0, 1, 20, 3, 4, 5]);
    let copy = column.contiguous().unwrap();
    assert!(copy.is_contiguous() && !copy.shares_memory_with(&buffer));
    assert!(buffer.contiguous().unwrap().shares_memory_with(&buffer));

    let backwards = buffer.slice(&[Index::ALL.step(-1), Index::ALL.step(-2)]).unwrap();
    assert_eq!((backwards.to_vec::<i32>(), backwards.strides()), (vec![5, 3, 20, 0], &[-3isize, -2][..]));
    let element = buffer.slice(&[Index::At(0), Index::At(1)]).unwrap();
    assert_eq!((element.rank(), element.item::<i32>()), (0, Ok(1)));
    assert_eq!(buffer.slice(&[(5..).into()]).unwrap().shape(), &Shape::new(&[0, 3]));
}

#[test]
fn indices_that_fit_no_axis_are_named() {
    let buffer = counting(&[2, 3]);
    refused(buffer.slice(&[Index::At(2)]), "index 0 of [2, 3]: position 2 is outside the axis of 2");
    refused(
        buffer.slice(&[Index::ALL, Index::At(-4)]),
        "index 1 of [2, 3]: position -4 is outside the axis of 3",
    );
    refused(buffer.slice(&[Index::ALL.step(0)]), "index 0 of [2, 3]: a range in steps of 0");
    refused(buffer.slice(&[Index::ALL; 3]), "got 3 indices, expected at most 2 for [2, 3]");
    refused(buffer.get(&[0]), "got 1 indices, expected 2 for [2, 3]");
    refused(buffer.set(&[0, 3], 1), "index 1 of [2, 3]: position 3 is outside the axis of 3");
    refused(buffer.set(&[0, 0], 0.5), "i32 cannot hold 0.5");
    refused(
        Buffer::zeros(DType::Q4_0, [1, 32]).get(&[0, 0]),
        "q4_0 is stored in blocks of 32, which cannot be strided",
    );
}

#[test]
fn rows_of_blocks_are_sliced_whole() {
    let blocks = Buffer::zeros(DType::Q4_0, [3, 64]);
    blocks.write().unwrap()[36..72].fill(1);
    let backwards = blocks.slice(&[Index::ALL.step(-1)]).unwrap();
    let bytes = backwards.contiguous().unwrap().read().unwrap().to_vec();
    assert_eq!((bytes.len(), &bytes[36..72], bytes[0]), (108, &[1u8; 36][..], 0));
    let row = blocks.slice(&[Index::At(1)]).unwrap();
    assert_eq!(row.read().unwrap()[..], [1; 36]);
    refused(
        blocks.slice(&[Index::ALL, (0..32).into()]),
        "q4_0 is stored in blocks of 32, which cannot be strided",
    );
}

#[test]
fn elements_are_read_and_set() {
    let buffer = Buffer::zeros(DType::BF16, [2, 2]);
    buffer.set(&[-1, 0], 1.5).unwrap();
    assert_eq!(buffer.get(&[1, -2]), Ok(Scalar::Float(1.5)));
    let scalar = Buffer::scalar(7u16);
    scalar.set(&[0], 8).unwrap();
    assert_eq!((scalar.get(&[]), scalar.item::<u16>()), (Ok(Scalar::UInt(8)), Ok(8)));
    refused(scalar.item::<i16>(), "a u16 buffer has no elements of type i16");
    refused(buffer.item::<bf16>(), "a single value needs a buffer of one element, but shape [2, 2] has 4");
    assert_eq!(Buffer::from_slice([1, 1], &[3i8]).item::<i8>(), Ok(3));
    assert_eq!(Buffer::from_bools([1], &[true]).item::<u8>(), Ok(1));
}

#[test]
fn views_have_other_types_and_shapes() {
    let buffer = Buffer::from_slice([2, 2], &[1.0f32, 0.0, 0.0, 0.0]);
    let bytes = buffer.view_as(DType::U8).unwrap();
    assert_eq!((bytes.shape(), bytes.shares_memory_with(&buffer)), (&Shape::new(&[2, 8]), true));
    assert_eq!(buffer.view_as(DType::F64).unwrap().shape(), &Shape::new(&[2, 1]));
    assert_eq!(buffer.view(DType::I32, [4]).unwrap().to_vec::<i32>(), [0x3f80_0000, 0, 0, 0]);
    refused(
        Buffer::zeros(DType::U8, [2, 3]).view_as(DType::U16),
        "a view of u8[2, 3] as u16: the last axis is 3 bytes, no whole number of 2 each",
    );
    refused(
        buffer.view(DType::F32, [3]),
        "a view of f32[2, 2] as f32[3]: there are 16 bytes, and 12 are needed",
    );
    refused(Buffer::scalar(1f32).view_as(DType::U8), "a view of f32[] as u8: 4 bytes are no element of 1");
    assert_eq!(Buffer::scalar(1f32).view_as(DType::I32).unwrap().item::<i32>(), Ok(0x3f80_0000));
    let column = buffer.slice(&[Index::ALL, Index::At(0)]).unwrap();
    refused(
        column.view_as(DType::U8),
        "got strides [2], expected a row-major buffer; .contiguous() makes one",
    );
    let late = Buffer::from_slice([9], &[0u8, 1, 0, 0, 0, 2, 0, 0, 0]).slice(&[(1..).into()]).unwrap();
    assert_eq!(late.view_as(DType::U32).unwrap().to_vec::<u32>(), [1, 2]);
}

#[test]
fn contents_are_copied_into_other_buffers() {
    let (from, to) = (counting(&[2, 2]), Buffer::zeros(DType::I32, [4]));
    to.inplace_copy_from(&from).unwrap();
    assert_eq!(to.to_vec::<i32>(), [0, 1, 2, 3]);
    let strided = to.slice(&[Index::ALL.step(2)]).unwrap();
    assert_eq!(strided.inplace_copy_from(&strided.clone()), Ok(()));
    refused(
        strided.inplace_copy_from(&counting(&[2])),
        "got strides [2], expected a row-major buffer; .contiguous() makes one",
    );
    refused(
        counting(&[2]).inplace_copy_from(&strided),
        "got strides [2], expected a row-major buffer; .contiguous() makes one",
    );
    refused(to.inplace_copy_from(&counting(&[3])), "copying i32[3] into i32[4]: 3 elements, expected 4");
    refused(
        to.inplace_copy_from(&Buffer::zeros(DType::F32, [4])),
        "copying f32[4] into i32[4]: the dtypes differ",
    );
    refused(to.read_only().inplace_copy_from(&from), "the buffer is read-only");
    let part = |range: std::ops::Range<isize>| to.slice(&[range.into()]).unwrap();
    part(1..4).inplace_copy_from(&part(0..3)).unwrap();
    assert_eq!(to.to_vec::<i32>(), [0, 0, 1, 2]);
    let copy = to.copy().unwrap();
    assert!(!copy.shares_memory_with(&to) && copy.to_vec::<i32>() == to.to_vec::<i32>());
}

#[test]
fn buffers_show_what_they_are_and_hold() {
    let buffer = counting(&[2, 2]);
    assert_eq!(format!("{buffer:?}"), "Buffer(i32[2, 2], cpu)");
    assert_eq!(buffer.to_string(), "Buffer([[0 1]\n        [2 3]], dtype=i32, shape=[2, 2], device=cpu)");
    let column = buffer.slice(&[Index::ALL.step(-1), Index::At(0)]).unwrap().read_only();
    assert_eq!(format!("{column:?}"), "Buffer(i32[2], strides [-2], read-only, cpu)");
    assert_eq!(column.to_string(), "Buffer([2 0], dtype=i32, shape=[2], device=cpu)");
    assert!(Buffer::zeros(DType::Q8_0, [1, 32]).to_string().starts_with("Buffer([[0. 0. "));
    let _writer = buffer.write().unwrap();
    assert_eq!(
        column.to_string(),
        "Buffer(<the buffer is being written by another call>, dtype=i32, shape=[2], device=cpu)"
    );
}

/// A file in a folder of its own, removed at the end.
struct TestFile(std::path::PathBuf);

impl TestFile {
    fn new(name: &str, bytes: &[u8]) -> TestFile {
        let folder = std::env::temp_dir().join(format!("perihelion-buffer-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("data");
        std::fs::write(&path, bytes).unwrap();
        TestFile(path)
    }

    fn bytes(&self) -> Vec<u8> {
        std::fs::read(&self.0).unwrap()
    }
}

impl Drop for TestFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(self.0.parent().unwrap());
    }
}

#[test]
fn only_mapping_for_writing_changes_a_file() {
    let file = TestFile::new("modes", &[0, 1, 2, 3, 4, 5]);
    for (mode, expected) in [("c", 3), ("r", 3), ("r+", 99)] {
        let mode: MapMode = mode.parse().unwrap();
        let buffer = Buffer::mmap(&file.0, DType::U8, [2, 2], 2, mode).unwrap();
        assert_eq!(buffer.to_vec::<u8>(), [2, 3, 4, 5]);
        buffer.set(&[0, 1], 99).unwrap();
        assert_eq!(buffer.to_vec::<u8>(), [2, 99, 4, 5]);
        assert_eq!(file.bytes()[3], expected, "{mode}");
    }
    refused("w".parse::<MapMode>(), "unknown mapping mode `w`; the modes are c, r and r+");
}

#[test]
fn elements_of_files_may_lie_anywhere() {
    let file = TestFile::new("unaligned", &[9, 1, 0, 0, 0, 2, 0, 0, 0]);
    let buffer = Buffer::mmap(&file.0, DType::U32, [2], 1, MapMode::default()).unwrap();
    assert_eq!((buffer.to_vec::<u32>(), buffer.get(&[1])), (vec![1, 2], Ok(Scalar::UInt(2))));
    let empty = Buffer::mmap(&file.0, DType::U32, [0], 9, MapMode::ReadWrite).unwrap();
    assert_eq!(empty.to_vec::<u32>(), []);
}

#[test]
fn files_that_are_too_short_are_refused_or_grown() {
    let file = TestFile::new("short", &[1, 2]);
    let map = |shape: &[usize], offset, mode| Buffer::mmap(&file.0, DType::U8, shape, offset, mode);
    for mode in [MapMode::CopyOnWrite, MapMode::Read] {
        let error = map(&[3], 0, mode).unwrap_err().to_string();
        assert!(error.ends_with(": 3 bytes from byte 0 on, in a file of 2 bytes"), "{error}");
        assert!(map(&[1], u64::MAX, mode).is_err());
    }
    assert!(map(&[usize::MAX, 2], 0, MapMode::ReadWrite).is_err());
    assert!(map(&[1], u64::MAX, MapMode::ReadWrite).is_err());
    map(&[2], 1, MapMode::ReadWrite).unwrap().set(&[1], 7).unwrap();
    assert_eq!(file.bytes(), [1, 2, 7]);
    let folder = file.0.parent().unwrap();
    let error = Buffer::mmap(folder, DType::U8, [1], 0, MapMode::Read).unwrap_err().to_string();
    assert!(error.ends_with(": no regular file"), "{error}");
    assert!(Buffer::mmap(folder.join("none"), DType::U8, [1], 0, MapMode::Read).is_err());
}

#[test]
fn checkpoints_come_back_as_they_were() {
    let folder = TestFile::new("checkpoints", &[]);
    let folder = folder.0.parent().unwrap();
    let numbers = Tensor::from_slice([2, 3], &[1f32, 2.0, 3.0, 4.0, 5.0, 6.0]);
    for (label, tensor) in [
        ("matrix", numbers.clone()),
        ("deep/transposed", numbers.permute(&[1, 0])),
        ("scalar", Tensor::scalar(bf16::ONE)),
        ("empty", Tensor::zeros(DType::I64, [0, 3])),
        ("blocks", Tensor::zeros(DType::Q4K, [2, 256])),
    ] {
        let path = crate::save_max_checkpoint(folder, label, &tensor).unwrap();
        assert_eq!(path, folder.join(format!("{label}.max")));
        let buffer = crate::load_max_buffer(&path).unwrap();
        assert_eq!((buffer.dtype(), buffer.shape()), (tensor.dtype(), tensor.shape()));
        assert_eq!(buffer.read().unwrap()[..], *tensor.contiguous().bytes());
        let path = crate::save_binary(folder, label, &tensor).unwrap();
        assert_eq!(
            (path.file_name(), std::fs::read(&path).unwrap()),
            (Path::new(label).file_name(), tensor.contiguous().bytes().to_vec())
        );
    }
    let path = crate::save_max_checkpoint(folder, "matrix", &numbers).unwrap();
    let buffer = crate::load_max_buffer(&path).unwrap();
    buffer.set(&[0, 0], 9).unwrap();
    assert_eq!(crate::load_max_buffer(&path).unwrap().to_vec::<f32>(), numbers.to_vec::<f32>());
}

#[test]
fn pinned_memory_is_locked_or_refused() {
    assert!(Buffer::pinned(DType::F32, [0]).unwrap().is_pinned());
    match Buffer::pinned(DType::F32, [4]) {
        Ok(buffer) => {
            assert!(buffer.is_pinned() && buffer.slice(&[]).unwrap().is_pinned());
            assert_eq!(buffer.to_vec::<f32>(), [0.0; 4]);
        }
        // A process may be granted none.
        Err(error) => assert!(error.to_string().starts_with("16 bytes of page-locked memory: "), "{error}"),
    }
}

fn index() -> impl Strategy<Value = Index> {
    let position = || prop::option::of(-6isize..6);
    let step = prop_oneof![-3isize..0, 1isize..4];
    let range =
        (position(), position(), step).prop_map(|(start, end, step)| Index::Range { start, end, step });
    prop_oneof![3 => range, 1 => (-4isize..4).prop_map(Index::At)]
}

/// The elements by definition: each index picks positions of its axis.
fn picked(values: &[i32], dims: &[usize], indices: &[Index]) -> Option<Vec<i32>> {
    let Some((&dim, inner)) = dims.split_first() else { return Some(values.to_vec()) };
    let (index, rest) = indices.split_first().unwrap_or((&Index::ALL, &[]));
    let taken = index.of_axis(dim).ok()?;
    let size: usize = inner.iter().product();
    let mut all = Vec::new();
    for i in 0..taken.count.unwrap_or(1) {
        let position = (taken.first as isize + i as isize * taken.step) as usize;
        all.extend(picked(&values[position * size..][..size], inner, rest)?);
    }
    // An index that fits nowhere is refused even where nothing is picked.
    picked(&vec![0; size], inner, rest)?;
    Some(all)
}

proptest! {
    #[test]
    fn slices_of_slices_pick_what_they_should(
        dims in prop::collection::vec(0usize..5, 0..4),
        first in prop::collection::vec(index(), 0..4),
        second in prop::collection::vec(index(), 0..4),
    ) {
        let buffer = counting(&dims);
        let expected = (first.len() <= dims.len()).then(|| picked(&buffer.to_vec(), &dims, &first)).flatten();
        let view = buffer.slice(&first);
        prop_assert_eq!(view.is_ok(), expected.is_some());
        let (Ok(view), Some(values)) = (view, expected) else { return Ok(()) };
        prop_assert_eq!(view.to_vec::<i32>(), values.clone());
        prop_assert!(view.to_string().contains("dtype=i32"));
        let again = (second.len() <= view.rank()).then(|| picked(&values, view.shape(), &second)).flatten();
        let both = view.slice(&second);
        prop_assert_eq!(both.is_ok(), again.is_some());
        let (Ok(both), Some(again)) = (both, again) else { return Ok(()) };
        prop_assert_eq!(both.to_vec::<i32>(), again.clone());
        prop_assert_eq!(both.to_tensor().unwrap().to_vec::<i32>(), again);
        if both.is_contiguous() && both.num_elements() > 0 {
            prop_assert_eq!(both.read().unwrap().len(), 4 * both.num_elements());
        }
    }
}
