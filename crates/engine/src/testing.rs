//! What tests share: a device with two kernels, and graphs to run on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use graph::ops::{Binary, Linear};
use graph::{Graph, Op, Type};
use tensor::{AlignedBytes, Buffer, Bytes, DType, Shape, Tensor};

use crate::{
    Device, InferenceSession, Kernel, KernelCall, NodeTypes, Operand, PackError, PackedWeight,
    ReferenceDevice,
};

/// Adds in place, and multiplies with weights that it packs by columns.
pub(crate) struct TestDevice;

struct Add;
struct Product;

impl Device for TestDevice {
    fn name(&self) -> &str {
        "test"
    }

    fn kernel(&self, node: &NodeTypes<'_>) -> Option<Arc<dyn Kernel>> {
        match node.op {
            Op::Binary(Binary::Add)
                if node.inputs[0] == node.inputs[1] && node.inputs[0].dtype == DType::F32 =>
            {
                Some(Arc::new(Add))
            }
            Op::Linear(linear) if *linear == Linear::default() => Some(Arc::new(Product)),
            _ => None,
        }
    }

    fn packing(&self, node: &NodeTypes<'_>, position: usize) -> Option<String> {
        (matches!(node.op, Op::Linear(_)) && position == 1).then(|| "columns".to_string())
    }

    fn pack(&self, layout: &str, weight: &Tensor) -> Result<PackedWeight, PackError> {
        let &[rows, columns] = weight.shape().dims() else {
            return Err(PackError::Unfit("expected 2 axes".to_string()));
        };
        let values = weight.to_f32_vec();
        let by_columns: Vec<f32> = (0..columns)
            .flat_map(|c| (0..rows).map(move |r| (r, c)))
            .map(|(r, c)| values[r * columns + c])
            .collect();
        let bytes = by_columns.len() * 4;
        Ok(PackedWeight { layout: layout.to_string(), bytes, data: Arc::new(by_columns) })
    }

    fn save_packed(&self, weight: &PackedWeight) -> Result<Bytes, String> {
        let values = weight.data.downcast_ref::<Vec<f32>>().ok_or("another device's weight")?;
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        Ok(Bytes::new(AlignedBytes::copy_of(&bytes)))
    }

    fn load_packed(&self, layout: &str, ty: &Type, bytes: Bytes) -> Result<PackedWeight, String> {
        let tensor = Tensor::from_bytes(ty.dtype, ty.static_shape().ok_or("no sizes")?, bytes);
        let values = tensor.map_err(|error| error.to_string())?.to_vec::<f32>();
        Ok(PackedWeight { layout: layout.to_string(), bytes: values.len() * 4, data: Arc::new(values) })
    }
}

impl Kernel for Add {
    fn name(&self) -> String {
        "add.test".to_string()
    }

    fn in_place(&self) -> Option<usize> {
        Some(0)
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let result = &mut call.outputs[0].bytes;
        if let Operand::View(a) = &call.inputs[0] {
            result.copy_from_slice(a.bytes);
        }
        let b = match &call.inputs[1] {
            Operand::View(b) => b.bytes,
            _ => return Err("operand 1 is no view".to_string()),
        };
        for (sum, b) in result.chunks_exact_mut(4).zip(b.chunks_exact(4)) {
            let a = f32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
            let b = f32::from_le_bytes([b[0], b[1], b[2], b[3]]);
            sum.copy_from_slice(&(a + b).to_le_bytes());
        }
        Ok(())
    }
}

impl Kernel for Product {
    fn name(&self) -> String {
        "linear.test".to_string()
    }

    /// One f64 for each row of the weight.
    fn scratch(&self, inputs: &[Shape], _outputs: &[Shape]) -> usize {
        inputs[1][0] * 8
    }

    fn run(&self, call: KernelCall<'_, '_>) -> Result<(), String> {
        let [Operand::View(x), Operand::Packed(weight)] = call.inputs else {
            return Err("operands".to_string());
        };
        let weight = weight.data.downcast_ref::<Vec<f32>>().ok_or("another device's weight")?;
        let x_values: Vec<f32> =
            x.bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect();
        let columns = x.shape[x.shape.rank() - 1];
        let rows = call.outputs[0].shape[x.shape.rank() - 1];
        assert_eq!(call.scratch.len(), rows * 8, "the scratch asked for");
        if rows == 0 {
            return Ok(());
        }
        for (i, y) in call.outputs[0].bytes.chunks_exact_mut(rows * 4).enumerate() {
            let x = &x_values[i * columns..][..columns];
            call.scratch.fill(0);
            for (x, column) in x.iter().zip(weight.chunks_exact(rows)) {
                for (sum, w) in call.scratch.chunks_exact_mut(8).zip(column) {
                    let old = f64::from_le_bytes(sum.try_into().expect("8 bytes"));
                    sum.copy_from_slice(&(old + f64::from(*x) * f64::from(*w)).to_le_bytes());
                }
            }
            for (sum, y) in call.scratch.chunks_exact(8).zip(y.chunks_exact_mut(4)) {
                let sum = f64::from_le_bytes(sum.try_into().expect("8 bytes"));
                y.copy_from_slice(&(sum as f32).to_le_bytes());
            }
        }
        Ok(())
    }
}

/// A folder for the files of one test, which goes with the test.
pub(crate) struct TestFolder(PathBuf);

impl TestFolder {
    /// An empty folder.
    pub(crate) fn new(test: &str) -> TestFolder {
        let path = std::env::temp_dir().join(format!("perihelion-{}-{test}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        TestFolder(path)
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A session on the test device.
pub(crate) fn session() -> InferenceSession {
    InferenceSession::builder().device(Arc::new(TestDevice)).build().expect("one device")
}

/// A session that has references only.
pub(crate) fn reference_session() -> InferenceSession {
    InferenceSession::builder().device(Arc::new(ReferenceDevice)).build().expect("one device")
}

/// f32 of a shape.
pub(crate) fn f32(shape: &[&str]) -> Type {
    Type::new(
        DType::F32,
        shape.iter().map(|dim| match dim.parse::<usize>() {
            Ok(size) => graph::Dim::from(size),
            Err(_) => graph::Dim::symbol(dim),
        }),
    )
}

/// Numbers from -1 to 1 that look random.
pub(crate) fn noise(shape: impl Into<Shape>, seed: usize) -> Tensor {
    let shape = shape.into();
    let mut state = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let values: Vec<f32> = (0..shape.elements())
        .map(|_| {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect();
    Tensor::from_slice(shape, &values)
}

/// Buffers with the contents of tensors.
pub(crate) fn buffers(tensors: &[Tensor]) -> Vec<Buffer> {
    tensors.iter().map(Buffer::from_tensor).collect()
}

/// A graph built by a function.
pub(crate) fn build(
    name: &str,
    body: impl FnOnce(&mut graph::Builder) -> Result<Vec<graph::Value>, graph::Error>,
) -> Graph {
    let mut builder = graph::Builder::new(name);
    let outputs = body(&mut builder).unwrap_or_else(|error| panic!("{error}"));
    builder.finish(&outputs).unwrap_or_else(|error| panic!("{error}"))
}
