//! The `driver` module exports every type in the signatures of its functions.

use perihelion::driver::{
    AlignedBytes, Block, Buffer, Bytes, DType, Element, Error, MAX_RANK, ReadGuard, Shape, Tensor,
    WriteGuard, bf16, f16,
};

fn filled<T: Element>(value: T) -> Vec<T> {
    Buffer::from_slice([2], &[value, value]).to_vec()
}

#[test]
fn driver_exports_the_types_of_its_signatures() -> Result<(), Error> {
    assert_eq!(filled(f16::ONE), [f16::ONE; 2]);
    assert_eq!(filled(bf16::ONE), [bf16::ONE; 2]);
    let bytes = AlignedBytes::copy_of(&2.5f32.to_le_bytes());
    let tensor = Tensor::from_bytes(DType::F32, [1], Bytes::new(bytes))?;
    let buffer = Buffer::from_bytes(DType::F32, [1], AlignedBytes::copy_of(tensor.bytes()));
    let reader: ReadGuard = buffer.read()?;
    assert_eq!(reader[..], 2.5f32.to_le_bytes());
    drop(reader);
    let mut writer: WriteGuard = buffer.write()?;
    writer.fill(0);
    drop(writer);
    assert_eq!(buffer.to_vec::<f32>(), [0.0]);
    let Block { elements, bytes } = DType::Q4_0.block();
    assert_eq!((elements, bytes), (32, 18));
    let strides: [isize; MAX_RANK] = Shape::new(&[3, 4]).row_major_strides();
    assert_eq!(strides[..2], [4, 1]);
    Ok(())
}
