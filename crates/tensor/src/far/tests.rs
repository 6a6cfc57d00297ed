//! Buffers on a device: what copies and what is refused.

use std::sync::Mutex;

use super::*;
use crate::{Buffer, DType, Index, Scalar, Tensor};

/// A device with so many bytes of memory, which nothing but its methods reaches.
#[derive(Clone)]
struct Card {
    id: i32,
    room: usize,
}

impl Allocator for Card {
    fn spec(&self) -> DeviceSpec {
        DeviceSpec::accelerator(self.id).unwrap()
    }

    fn allocate(&self, bytes: usize) -> Result<Allocation, Error> {
        if bytes > self.room {
            return Err(Error::Device(format!("{} refused {bytes} bytes", self.spec())));
        }
        Ok(Allocation::Far(Arc::new(CardMemory { card: self.clone(), bytes: Mutex::new(vec![0; bytes]) })))
    }
}

struct CardMemory {
    card: Card,
    bytes: Mutex<Vec<u8>>,
}

impl FarMemory for CardMemory {
    fn allocator(&self) -> &dyn Allocator {
        &self.card
    }

    fn len(&self) -> usize {
        self.bytes.lock().unwrap().len()
    }

    fn read(&self, from: usize, into: &mut [u8]) -> Result<(), Error> {
        into.copy_from_slice(&self.bytes.lock().unwrap()[from..][..into.len()]);
        Ok(())
    }

    fn write(&self, parts: &[(usize, &[u8])]) -> Result<(), Error> {
        let mut bytes = self.bytes.lock().unwrap();
        parts.iter().for_each(|(to, part)| bytes[*to..][..part.len()].copy_from_slice(part));
        Ok(())
    }

    fn copy(&self, from: &dyn FarMemory, parts: &[[usize; 3]]) -> Result<(), Error> {
        for &[start, to, len] in parts {
            let mut part = vec![0; len];
            from.read(start, &mut part)?;
            self.write(&[(to, &part)])?;
        }
        Ok(())
    }
}

const CARD: Card = Card { id: 0, room: 1 << 20 };

/// The numbers from 0 on, on the card.
fn counting(dims: &[usize]) -> Buffer {
    let numbers: Vec<i32> = (0..dims.iter().product::<usize>() as i32).collect();
    Buffer::from_slice(dims, &numbers).to(&CARD).unwrap()
}

fn refused<T>(result: Result<T, Error>, message: &str) {
    assert_eq!(result.err().expect("refused").to_string(), message);
}

#[test]
fn buffers_go_to_devices_and_back() {
    let host = Buffer::from_slice([2, 3], &[1i32, 2, 3, 4, 5, 6]);
    assert!(host.to(&HostAllocator).unwrap().shares_memory_with(&host));
    let far = host.to(&CARD).unwrap();
    assert_eq!(
        (far.device().to_string(), far.is_host(), far.is_pinned()),
        ("gpu:0".to_string(), false, false)
    );
    assert!(far.to(&CARD).unwrap().shares_memory_with(&far));
    let back = far.to(&HostAllocator).unwrap();
    assert!(back.is_host() && back.to_vec::<i32>() == [1, 2, 3, 4, 5, 6]);
    let other = far.to(&Card { id: 1, ..CARD }).unwrap();
    assert_eq!((other.device().to_string(), other.to_vec::<i32>()), ("gpu:1".to_string(), host.to_vec()));
    let zeros = Buffer::zeros_on(&CARD, DType::F32, [2]).unwrap();
    assert_eq!((zeros.device(), zeros.to_vec::<f32>()), (CARD.spec(), vec![0.0; 2]));
    assert!(Buffer::zeros_on(&HostAllocator, DType::F32, [2]).unwrap().write().is_ok());
    let none = Buffer::zeros_on(&CARD, DType::F32, [0, 3]).unwrap();
    assert_eq!(none.copy().unwrap().to_vec::<f32>(), [] as [f32; 0]);
    if let Ok(pinned) = Buffer::pinned(DType::I32, [2, 3]) {
        pinned.inplace_copy_from(&far).unwrap();
        assert_eq!(pinned.to(&CARD).unwrap().to_vec::<i32>(), host.to_vec::<i32>());
    }
}

#[test]
fn memory_that_a_device_refuses_is_an_error() {
    let small = Card { id: 0, room: 15 };
    refused(Buffer::zeros_on(&small, DType::F32, [4]), "gpu:0 refused 16 bytes");
    refused(Buffer::from_slice([4], &[0i32; 4]).to(&small), "gpu:0 refused 16 bytes");
    let rows = "q4_0[2, 16] is not a possible array: rows of 16 do not divide into blocks of 32";
    refused(Buffer::zeros_on(&CARD, DType::Q4_0, [2, 16]), rows);
}

#[test]
fn bytes_on_a_device_are_out_of_reach() {
    let far = counting(&[4]);
    let message = "the buffer is on gpu:0: copy it with `to` first";
    refused(far.read(), message);
    refused(far.write(), message);
    refused(far.as_tensor(), message);
    refused(far.to_dlpack(), message);
    refused(far.slice(&[(1..).into()]).unwrap().to_dlpack_legacy(), message);
    refused(far.read_only().to_dlpack_legacy(), message);
}

#[test]
fn elements_and_prints_are_copied() {
    let far = counting(&[2, 3]);
    far.set(&[1, -1], 9).unwrap();
    refused(far.set(&[0, 0], 0.5), "i32 cannot hold 0.5");
    refused(far.read_only().set(&[0, 0], 1), "the buffer is read-only");
    assert_eq!((far.get(&[1, 2]), far.get(&[0, 1])), (Ok(Scalar::Int(9)), Ok(Scalar::Int(1))));
    assert_eq!(far.slice(&[Index::At(1), Index::At(0)]).unwrap().item(), Ok(3i32));
    assert_eq!(far.to_string(), "Buffer([[0 1 2]\n        [3 4 9]], dtype=i32, shape=[2, 3], device=gpu:0)");
    assert_eq!(format!("{far:?}"), "Buffer(i32[2, 3], gpu:0)");
    let blocks = Buffer::zeros_on(&CARD, DType::Q8_0, [1, 32]).unwrap();
    assert!(blocks.to_string().starts_with("Buffer([[0. 0. "));
}

#[test]
fn views_with_gaps_are_copied_row_major() {
    let far = counting(&[3, 4]);
    let view = far.slice(&[Index::ALL.step(-2), Index::from(1..4).step(2)]).unwrap();
    assert_eq!(view.to_vec::<i32>(), [9, 11, 1, 3]);
    assert_eq!(view.to_tensor().unwrap().to_vec::<i32>(), [9, 11, 1, 3]);
    assert_eq!(view.to(&HostAllocator).unwrap().to_vec::<i32>(), [9, 11, 1, 3]);
    assert_eq!(view.to_string(), "Buffer([[ 9 11]\n        [ 1  3]], dtype=i32, shape=[2, 2], device=gpu:0)");
    let rows = view.contiguous().unwrap();
    assert!(rows.is_contiguous() && !rows.is_host() && !rows.shares_memory_with(&far));
    assert_eq!(rows.to_vec::<i32>(), [9, 11, 1, 3]);
    let part = far.slice(&[(1..2).into()]).unwrap();
    assert!(part.contiguous().unwrap().shares_memory_with(&far));
    let copy = part.copy().unwrap();
    assert_eq!((copy.device(), copy.to_vec::<i32>()), (CARD.spec(), vec![4, 5, 6, 7]));
    let bytes = part.view_as(DType::U8).unwrap();
    assert_eq!(bytes.to_vec::<u8>()[..5], [4, 0, 0, 0, 5]);
}

#[test]
fn buffers_are_overwritten_from_everywhere() {
    let (far, host) = (counting(&[4]), Buffer::from_slice([2, 2], &[6i32, 7, 8, 9]));
    let same = Buffer::zeros_on(&CARD, DType::I32, [4]).unwrap();
    same.inplace_copy_from(&far).unwrap();
    assert_eq!(same.to_vec::<i32>(), [0, 1, 2, 3]);
    far.inplace_copy_from(&host).unwrap();
    assert_eq!(far.to_vec::<i32>(), [6, 7, 8, 9]);
    host.inplace_copy_from(&same).unwrap();
    assert_eq!(host.to_vec::<i32>(), [0, 1, 2, 3]);
    let other = Buffer::zeros_on(&Card { id: 1, ..CARD }, DType::I32, [4]).unwrap();
    other.inplace_copy_from(&far).unwrap();
    assert_eq!(other.to_vec::<i32>(), [6, 7, 8, 9]);
    let part = |start, end| far.slice(&[Index::from(start..end)]).unwrap();
    part(1, 4).inplace_copy_from(&part(0, 3)).unwrap();
    assert_eq!(far.to_vec::<i32>(), [6, 6, 7, 8]);
    refused(part(0, 2).inplace_copy_from(&far), "copying i32[4] into i32[2]: 4 elements, expected 2");
}

#[test]
fn rows_are_copied_within_a_buffer() {
    let check = |buffer: Buffer| {
        buffer.copy_within(&[[0, 2, 1], [2, 3, 1]]).unwrap();
        assert_eq!(buffer.to_vec::<i32>(), [0, 1, 2, 3, 0, 1, 0, 1]);
        let lower = buffer.slice(&[(1..).into()]).unwrap();
        lower.copy_within(&[[0, 1, 2]]).unwrap();
        assert_eq!(buffer.to_vec::<i32>(), [0, 1, 2, 3, 2, 3, 0, 1]);
        let outside = "index 0 of [3, 2]: 2 positions from 0 to 2 are outside the axis of 3";
        refused(lower.copy_within(&[[0, 1, 1], [0, 2, 2]]), outside);
        assert!(lower.copy_within(&[[usize::MAX, 0, 2]]).is_err());
        refused(lower.read_only().copy_within(&[]), "the buffer is read-only");
        assert_eq!(buffer.to_vec::<i32>(), [0, 1, 2, 3, 2, 3, 0, 1]);
    };
    check(counting(&[4, 2]));
    check(counting(&[4, 2]).to(&HostAllocator).unwrap());
    assert!(Buffer::scalar(1i32).copy_within(&[[0, 0, 1]]).is_err());
}

#[test]
fn tensors_and_checkpoints_come_from_devices() {
    let folder = std::env::temp_dir().join(format!("perihelion-far-{}", std::process::id()));
    let far = counting(&[2, 2]);
    let path = crate::save_max_checkpoint(&folder, "t", &far.to_tensor().unwrap()).unwrap();
    let loaded = crate::load_max_buffer(&path).unwrap().to(&CARD).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!((loaded.device(), loaded.to_vec::<i32>()), (CARD.spec(), vec![0, 1, 2, 3]));
    let over = Buffer::over_tensor(&Tensor::from_slice([2], &[5u8, 6])).to(&CARD).unwrap();
    assert_eq!((over.is_read_only(), over.to_vec::<u8>()), (false, vec![5, 6]));
}
